"""Fetches updates into the inbox. An update is confirmed only once it is on disk, so a crash loses none."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from typing import TYPE_CHECKING, Any

from telegram import Update
from telegram.error import Conflict, InvalidToken, RetryAfter, TelegramError

from bot.access.gate import STRANGER, Added, Caller, Denied, Verdict
from bot.outbound.retry_policy import Then, after_failure, is_of_a_stranger, pause_s
from bot.outbound.telegram_http import update_number
from bot.text.html import escape, shorten
from bot.waiting import cancel_all, patiently, within
from runner.api.chat import QueueLostError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from telegram import Bot

    from bot.chat import Chat
    from bot.outbound.telegram_client import TelegramClient

log = logging.getLogger(__name__)

ALLOWED = ["message", "callback_query", "my_chat_member"]
POLL_S = 50
STALLED_AFTER_S = 25.0  # longer than the poll itself
CONFLICT_PAUSE_S, LONGEST_CONFLICT_S = 15.0, 300.0
FORGIVEN_AFTER_S = 1800.0  # conflicts closer together count as one, even if a poll between them succeeds
DISK_PAUSE_S = 5.0
SHORTEST_POLL_S = 1.0  # a poll that brings nothing takes at least this long
UNWANTED_AT_MOST = 1000  # groups waiting to be left; the bot stays in further ones, but does not serve them
OTHER_POLLER = (
    "Another program is fetching this bot's messages, so commands may go there instead of to me. If it is not yours,"
    " the token has leaked: revoke it with @BotFather (/revoke) and give me the new one. I still send messages,"
    " but I fetch yours less often."
)
NOT_STORED = "What you sent is done as soon as I can write it down; you need not send it again."
WEBHOOK = (
    "This bot has a webhook: another program gets its messages. Give nightshift a bot of its own (@BotFather), or take "
    "this one over: nightshift bot --take-over"
)


class Poller:
    """Fetches updates, stores them, and only then confirms them."""

    def __init__(
        self, chat: Chat, client: TelegramClient, on_stored: Callable[[Iterable[Update]], None], *,
        poll_s: float = POLL_S,
    ) -> None:  # fmt: skip
        self._chat, self._client, self._on_stored, self._poll_s = chat, client, on_stored, poll_s
        self._offset: int | None = None
        self._unwanted = UnwantedGroups(client.bot)
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
                fetching = self._client.bot.raw_updates(self._offset, self._poll_s, ALLOWED)
                updates = await within(self._poll_s + STALLED_AFTER_S, fetching)
            except (asyncio.TimeoutError, TelegramError) as problem:
                is_refused = isinstance(problem, InvalidToken) and not is_of_a_stranger(problem)
                if is_refused and await self._client.is_unknown():
                    raise
                await self._failed(problem)
                continue
            self._succeeded()
            await self._store(self._numbered(updates))
            if self._offset == before:  # do not poll in a tight loop if the server answers at once
                await asyncio.sleep(max(0.0, began + SHORTEST_POLL_S - time.monotonic()))

    def _numbered(self, updates: list[Any]) -> list[dict[str, Any]]:
        """Return the updates with a number, which can be confirmed. The others come with every poll: log them once."""
        numbered = [update for update in updates if update_number(update) is not None]
        if len(numbered) < len(updates) and not self._odd:
            log.error("some of what Telegram sent is no update, and left out")
        self._odd = len(numbered) < len(updates)
        return numbered

    async def _store(self, updates: list[dict[str, Any]]) -> None:
        """Store the updates, retrying until that works. The next fetch confirms them."""
        received = [pair for raw in updates if (pair := self._parsed(raw)) is not None]
        tries = 0
        while updates:
            try:
                with self._chat.queue.store.transaction():
                    stored = [update for raw, update in received if self._admitted(raw, update)]
            except QueueLostError:
                raise
            except StoreError as error:
                log.error("updates cannot be stored, trying again: %s", error)
                await asyncio.sleep(DISK_PAUSE_S)
                tries += 1
                if tries == 1:  # once, not at every retry
                    await self._excuse([update for _, update in received], str(error))
                continue
            self._offset = max(update["update_id"] for update in updates) + 1
            self._chat.wake_sender()
            self._on_stored(stored)
            return

    def _parsed(self, raw: dict[str, Any]) -> tuple[dict[str, Any], Update] | None:
        """Return an update as it can be stored, and as parsed. None for an unknown kind: it must not block others."""
        try:
            whole = _without_surrogates(raw)
            return whole, Update.de_json(whole, self._client.bot)
        except Exception:
            log.exception("update %s cannot be read", raw["update_id"])
            return None

    async def _excuse(self, updates: list[Update], why: str) -> None:
        """Tell the senders that their messages have to wait. Send it directly: the outbox cannot be written either."""
        verdicts = [self._judge(update) for update in updates]
        for chat in {verdict.chat for verdict in verdicts if isinstance(verdict, Caller)}:
            with contextlib.suppress(TelegramError):
                await self._client.bot.send_message(chat, f"⚠️ {why}\n{NOT_STORED}")

    def _judge(self, update: Update) -> Verdict:
        try:
            return self._chat.gate.judge(update)
        except StoreError:
            raise
        except Exception:  # an update of an odd shape must not block those behind it
            log.exception("update %s cannot be judged", update.update_id)
            return Denied("an update that cannot be read")

    def _admitted(self, raw: dict[str, Any], update: Update) -> bool:
        """Store one update if its sender may come in, and return whether to handle it. Strangers are only counted."""
        verdict = self._judge(update)
        if isinstance(verdict, Added) and self._chat.gate.role_of(verdict.by) is None:
            self._unwanted.leave(verdict.chat)
            verdict = Denied(STRANGER)
        if isinstance(verdict, Denied):
            self._chat.gate.turn_away(verdict)
            return False
        stored = self._chat.inbox.keep(update.update_id, raw)
        if stored and isinstance(verdict, Added):
            self._leave(verdict)
            self._chat.inbox.handled(update.update_id)
            return False
        return stored

    def _leave(self, added: Added) -> None:
        """Leave a group that is not served, without a message there, and tell the person who added the bot."""
        self._chat.outbox.add(added.chat, "leaveChat", {}, lasts_s=3600)
        group = escape(shorten(added.title, 200))
        why = f"I left the group {group}: I serve only groups that are named on the box. To allow it:"
        self._chat.say(added.by, added.by, f"{why}\n<code>NIGHTSHIFT_GROUPS={added.chat}</code>")

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
            await self._client.reconnect()
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
            await patiently(self._alarm, words)
        await asyncio.sleep(min(CONFLICT_PAUSE_S * 2 ** (self._conflicts - 1), LONGEST_CONFLICT_S))

    def _alarm(self, words: str) -> None:
        with self._chat.transaction():
            self._chat.tell_admins(f"🚨 {escape(words)}")


def _without_surrogates(update: dict[str, Any]) -> dict[str, Any]:
    """Replace lone surrogates with question marks: JSON can carry them, but the database cannot store them."""
    whole: dict[str, Any] = json.loads(json.dumps(update, ensure_ascii=False).encode("utf-8", "replace"))
    return whole


class UnwantedGroups:
    """Leaves groups that strangers added the bot to, one after the other.

    Nothing is stored, so that strangers cannot fill the disk.
    """

    def __init__(self, bot: Bot) -> None:
        self._bot = bot
        self._groups: set[int] = set()
        self._task: asyncio.Task[None] | None = None

    def leave(self, group: int) -> None:
        """Leave this group soon, unless too many are waiting."""
        if len(self._groups) < UNWANTED_AT_MOST:
            self._groups.add(group)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._leave_all())

    async def close(self) -> None:
        """Leave no more groups."""
        await cancel_all([self._task] if self._task else [])

    async def _leave_all(self) -> None:
        failures = 0
        while self._groups:
            group = next(iter(self._groups))
            try:
                await self._bot.leave_chat(group)
            except TelegramError as problem:
                failures += 1
                verdict = after_failure(problem, failures)
                if verdict.then in {Then.AGAIN, Then.WAIT, Then.PERHAPS}:
                    await asyncio.sleep(max(verdict.after_s, pause_s(failures)))
                    continue
            failures = 0
            self._groups.discard(group)
