"""Fetches updates into the inbox. An update is confirmed only once it is on disk, so a crash loses none."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from telegram import Update
from telegram.error import Conflict, InvalidToken, RetryAfter, TelegramError

from bot.access.gate import STRANGER, Added, Caller, Denied
from bot.inbound.unwanted_groups import UnwantedGroups
from bot.outbound.retry_policy import after_failure, is_of_a_stranger, pause_s
from bot.store_retry import patiently
from bot.telegram_html import escape, shorten
from bot.telegram_http import update_number
from bot.timeouts import within
from runner.api.chat import QueueLostError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.chat import Chat
    from bot.telegram_client import Wire

log = logging.getLogger(__name__)

ALLOWED = ["message", "callback_query", "my_chat_member"]
POLL_S = 50
STALLED_AFTER_S = 25.0  # longer than the poll itself
CONFLICT_PAUSE_S, LONGEST_CONFLICT_S = 15.0, 300.0
FORGIVEN_AFTER_S = 1800.0  # conflicts closer together count as one, even if a poll between them succeeds
DISK_PAUSE_S = 5.0
SHORTEST_POLL_S = 1.0  # a poll that brings nothing takes at least this long
OTHER_POLLER = (
    "Another program is fetching this bot's messages, so commands may go there instead of to me. If it is not yours,"
    " the token has leaked: revoke it with @BotFather (/revoke) and give me the new one. I keep sending, and look again"
    " now and then."
)
NOT_KEPT = "What you sent is done as soon as I can write it down; you need not send it again."
WEBHOOK = (
    "This bot has a webhook: another program gets its messages. Give nightshift a bot of its own (@BotFather), or take "
    "this one over: nightshift bot --take-over"
)


class Poller:
    """Fetches updates, stores them, and only then confirms them."""

    def __init__(self, chat: Chat, wire: Wire, on_kept: Callable[[], None], *, poll_s: float = POLL_S) -> None:
        self._chat, self._wire, self._on_kept, self._poll_s = chat, wire, on_kept, poll_s
        self._offset: int | None = None
        self._unwanted = UnwantedGroups(wire.bot)
        self._failures = 0
        self._odd = False
        self._conflicts, self._conflict_at = 0, -FORGIVEN_AFTER_S
        self.answered_at = time.monotonic()

    async def run(self) -> None:
        """Run until cancelled. Raise InvalidToken if the token is no longer valid."""
        try:
            await self._poll()
        finally:
            await self._unwanted.close()

    async def _poll(self) -> None:
        while True:
            began, before = time.monotonic(), self._offset
            try:
                updates = await within(self._poll_s + STALLED_AFTER_S, self._fetch())
            except InvalidToken as problem:
                if not is_of_a_stranger(problem) and await self._wire.is_unknown():
                    raise
                await self._failed(problem)
                continue
            except (asyncio.TimeoutError, TelegramError) as problem:
                await self._failed(problem)
                continue
            self._succeeded()
            await self._keep(self._numbered(updates))
            if self._offset == before:  # do not poll in a tight loop if the server answers at once
                await asyncio.sleep(max(0.0, began + SHORTEST_POLL_S - time.monotonic()))

    async def _fetch(self) -> list[Any]:
        return await self._wire.updates(self._offset, self._poll_s, ALLOWED)

    def _numbered(self, updates: list[Any]) -> list[dict[str, Any]]:
        """Return the updates with a number, which can be confirmed. The others come with every poll: log them once."""
        found = [update for update in updates if update_number(update) is not None]
        if len(found) < len(updates) and not self._odd:
            log.error("some of what Telegram sent is no update, and left out")
        self._odd = len(found) < len(updates)
        return found

    async def _keep(self, updates: list[dict[str, Any]]) -> None:
        """Store the updates, retrying until that works. The next fetch confirms them."""
        tries = 0
        while updates:
            try:
                with self._chat.transaction():
                    kept = [self._take(update) for update in updates]
            except QueueLostError:
                raise
            except StoreError as error:
                log.error("updates cannot be kept, trying again: %s", error)
                await asyncio.sleep(DISK_PAUSE_S)
                tries += 1
                if tries == 1:  # once, not at every retry
                    await self._excuse(updates, str(error))
                continue
            self._offset = max(update["update_id"] for update in updates) + 1
            if any(kept):
                self._on_kept()
            return

    async def _excuse(self, updates: list[dict[str, Any]], why: str) -> None:
        """Tell the senders that their messages have to wait. Send it directly: the outbox cannot be written either."""
        for chat in {caller.chat for update in updates if (caller := self._caller(update))}:
            with contextlib.suppress(TelegramError):
                await self._wire.bot.send_message(chat, f"⚠️ {why}\n{NOT_KEPT}")

    def _caller(self, raw: dict[str, Any]) -> Caller | None:
        try:
            verdict = self._chat.gate.judge(Update.de_json(raw, self._wire.bot))
        except Exception:  # it is judged again when it can be stored
            return None
        return verdict if isinstance(verdict, Caller) else None

    def _take(self, raw: dict[str, Any]) -> bool:
        """Store one update if its sender may come in, and return whether it was stored. Strangers are only counted."""
        try:
            return self._kept(_whole(raw))
        except StoreError:
            raise
        except Exception:  # an unknown kind of update must not block those behind it
            log.exception("update %s cannot be read", raw["update_id"])
            return False

    def _kept(self, raw: dict[str, Any]) -> bool:
        verdict = self._chat.gate.judge(Update.de_json(raw, self._wire.bot))
        if isinstance(verdict, Added) and self._chat.gate.role_of(verdict.by) is None:
            self._unwanted.leave(verdict.chat)
            verdict = Denied(STRANGER)
        if isinstance(verdict, Denied):
            self._chat.gate.turn_away(verdict)
            return False
        kept = self._chat.inbox.keep(raw["update_id"], raw)
        if kept and isinstance(verdict, Added):
            self._leave(verdict)
            self._chat.inbox.handled(raw["update_id"])
        return kept

    def _leave(self, added: Added) -> None:
        """Leave a group that is not served, without a message there, and tell the person who added the bot."""
        self._chat.messages.add(added.chat, "leaveChat", {}, lasts_s=3600)
        group = escape(shorten(added.title, 200))
        self._chat.say(
            added.by,
            added.by,
            f"I left the group {group}: I serve only groups that are named on the box. To allow it:\n"
            f"<code>NIGHTSHIFT_GROUPS={added.chat}</code>",
        )

    # -- when it fails -----------------------------------------------------------------------------

    def _succeeded(self) -> None:
        if self._failures or "poll" in self._chat.troubles:
            log.info("Telegram answers again")
            self._chat.wake_sender()
        self._failures = 0
        self.answered_at = time.monotonic()
        self._chat.troubles.pop("poll", None)

    async def _failed(self, problem: BaseException) -> None:
        if isinstance(problem, Conflict):
            await self._conflict(problem)
            return
        self._failures += 1
        if isinstance(problem, asyncio.TimeoutError):
            log.warning("the poll stalled; starting it again")
            await self._wire.reconnect()
            return
        wait_s = max(after_failure(problem, self._failures).after_s, pause_s(self._failures))
        if self._failures == 1 or isinstance(problem, RetryAfter):
            log.warning("Telegram does not answer (%s); trying again", problem)
        await asyncio.sleep(wait_s)

    async def _conflict(self, problem: Conflict) -> None:
        """Alert the admins and poll less often: two pollers would take each other's messages forever."""
        now = time.monotonic()
        self._conflicts = self._conflicts + 1 if now < self._conflict_at + FORGIVEN_AFTER_S else 1
        self._conflict_at = now
        words = WEBHOOK if "webhook" in str(problem).lower() else OTHER_POLLER
        log.error("%s", words)
        self._chat.troubles["poll"] = words
        if self._conflicts == 1:
            await patiently(partial(self._alarm, words))
        await asyncio.sleep(min(CONFLICT_PAUSE_S * 2 ** (self._conflicts - 1), LONGEST_CONFLICT_S))

    def _alarm(self, words: str) -> None:
        with self._chat.transaction():
            self._chat.tell_admins(f"🚨 {escape(words)}")


def _whole(update: dict[str, Any]) -> dict[str, Any]:
    """Replace lone surrogates with question marks: JSON can carry them, but the database cannot store them."""
    whole: dict[str, Any] = json.loads(json.dumps(update, ensure_ascii=False).encode("utf-8", "replace"))
    return whole
