"""Updates as Telegram queues them: of the kinds that the bot wants, while they last, and for one poll at a time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from bot.local_chat.bot_api.world import UpdateQueue
from tests.telegram.api_errors import conflict
from tests.telegram.limits import update_life_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.local_chat.bot_api.objects import JsonObject

KINDS = (
    *("message", "edited_message", "channel_post", "edited_channel_post", "inline_query", "chosen_inline_result"),
    *("callback_query", "shipping_query", "pre_checkout_query", "poll", "poll_answer", "my_chat_member"),
    *("chat_member", "chat_join_request", "chat_boost", "removed_chat_boost", "message_reaction"),
    *("message_reaction_count", "business_connection", "business_message", "edited_business_message"),
    *("deleted_business_messages", "purchased_paid_media", "managed_bot", "guest_message"),
)
ON_REQUEST = frozenset({"chat_member", "message_reaction", "message_reaction_count"})
DEFAULT = frozenset(KINDS) - ON_REQUEST
OTHER_POLLER = "terminated by other getUpdates request; make sure that only one bot instance is running"
WEBHOOK_SET = "terminated by setWebhook request"
AHEAD = 10


class StrictUpdates(UpdateQueue):
    """Delivers only what the bot wants, drops what has expired, and can deliver an update more than once."""

    def __init__(self, clock: Callable[[], float], first_id: int) -> None:
        super().__init__(first_id)
        self._clock = clock
        self._expires_at: dict[int, float] = {}
        self._repeats: tuple[random.Random, int] | None = None
        self._again: list[tuple[JsonObject, int]] = []
        self.allowed = DEFAULT
        self.given = 0

    def repeat(self, seed: int, at_most: int) -> None:
        """From now on, deliver each confirmed update again up to `at_most` times. 0 turns this off."""
        self._repeats = (random.Random(seed), at_most) if at_most else None

    def add(self, kind: str, payload: JsonObject) -> int | None:
        """Queue an update and wake the poll. Return its id, or None if the bot does not want such updates."""
        if kind not in self.allowed:
            return None
        update_id = super().add(kind, payload)
        assert update_id is not None
        self._expires_at[update_id] = self._clock() + update_life_s(kind)
        return update_id

    def allow(self, kinds: list[str]) -> None:
        """Set which kinds of update the bot wants from now on. If none is known, use the default."""
        self.allowed = frozenset(kinds) & frozenset(KINDS) or DEFAULT

    def pending(self) -> list[JsonObject]:
        """Return the waiting updates that have not expired, in order."""
        now = self._clock()
        self._pending = {key: update for key, update in self._pending.items() if self._expires_at[key] > now}
        return super().pending()

    def confirm(self, offset: int) -> None:
        """Forget updates before the offset. A negative one keeps that many from the end."""
        waiting = self.pending()
        if offset > self._next_id + AHEAD:
            # an offset from another queue confirms nothing
            return
        keep = waiting[offset:] if offset < 0 else [update for update in waiting if update["update_id"] >= offset]
        if self._repeats is not None:
            draw, at_most = self._repeats
            drawn = [(update, draw.randint(0, at_most)) for update in waiting if update not in keep]
            self._again += [(update, times) for update, times in drawn if times]
        self._pending = {update["update_id"]: update for update in keep}

    def clear(self) -> None:
        """Forget everything that waits."""
        self._pending.clear()

    async def get(self, offset: int, limit: int, timeout_s: float) -> list[JsonObject]:
        """Confirm, then return what is there. If nothing is, end any other poll and wait."""
        self.confirm(offset)
        again = self._given_again(limit)
        if not self._pending and not again and timeout_s > 0:
            self.end_poll(OTHER_POLLER)
            await self._wait(timeout_s)
        updates = [*again, *self.pending()][:limit]
        self.given += len(updates)
        return updates

    def _given_again(self, limit: int) -> list[JsonObject]:
        """Return the confirmed updates that are to be delivered again now."""
        due = self._again[:limit]
        self._again = [(update, repeats - 1) for update, repeats in due if repeats > 1] + self._again[len(due) :]
        return [update for update, _ in due]

    def end_poll(self, reason: str) -> None:
        """Answer a waiting poll with a conflict."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(conflict(reason))
