"""Passes updates that the gate admits from the inbox to the handlers: in order for each chat, and none twice."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from telegram import Update

from bot.access.gate import Caller, Candidate, Denied, Moved, actor_of
from bot.outbound.sender import follow
from bot.text.html import bold, code, escape
from bot.waiting import cancel_all, patiently
from runner.api.chat import QueueLostError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from telegram import Bot

    from bot.chat import Chat

log = logging.getLogger(__name__)

TRIES = 5  # of an update that was still open each time the bot ended
SET_ASIDE = (
    "⚠️ Each time I worked on this I was stopped before it was done, so I set it aside and nothing was done. Tell"
    " an admin of the box; its log has more."
)


class Dispatcher:
    """Admits each update in the inbox, passes it on, and makes sure that it is marked as handled."""

    def __init__(self, chat: Chat, bot: Bot, answer: Callable[[Caller, Update], Awaitable[None]]) -> None:
        self._chat, self._bot, self._answer = chat, bot, answer
        self._wake = asyncio.Event()
        self._parsed: dict[int, Update] = {}  # by the poller, so that they are not parsed twice
        self._under_way: set[int] = set()
        self._left_open = {update_id for update_id, _ in chat.inbox.open()}  # by an earlier run of the bot
        self._lanes: dict[int, asyncio.Task[None]] = {}
        self._waiting: dict[int, list[Update]] = {}

    def wake(self, stored: Iterable[Update] = ()) -> None:
        """Wake the dispatcher: there may be something in the inbox, perhaps these updates."""
        self._parsed |= {update.update_id: update for update in stored}
        self._wake.set()

    async def run(self) -> None:
        """Run until cancelled. Updates from before the bot started come first."""
        try:
            while True:
                self._wake.clear()
                await patiently(self.take)
                await self._wake.wait()
        finally:
            await cancel_all(self._lanes.values())

    def take(self) -> None:
        """Start on every update in the inbox that is not being handled yet."""
        for update_id, raw in self._chat.inbox.open():
            if update_id in self._under_way:
                continue
            update = self._parsed.pop(update_id, None) or self._parse(update_id, raw)
            if update is None:
                continue
            self._under_way.add(update_id)
            lane = update.effective_chat.id if update.effective_chat else 0
            self._waiting.setdefault(lane, []).append(update)
            if lane not in self._lanes:
                self._lanes[lane] = asyncio.get_running_loop().create_task(self._lane(lane))

    def _parse(self, update_id: int, raw: dict[str, Any]) -> Update | None:
        """Parse a stored update. If this version of the bot cannot, mark it as handled and return None."""
        try:
            return Update.de_json(raw, self._bot)
        except Exception:
            log.exception("update %s cannot be read", update_id)
            self._chat.inbox.handled(update_id)
            return None

    async def _lane(self, lane: int) -> None:
        try:
            while self._waiting[lane]:
                update = self._waiting[lane].pop(0)
                try:
                    await self._handle(update)
                finally:
                    self._under_way.discard(update.update_id)
        except QueueLostError as error:  # it makes the bot exit
            log.error("update not handled: %s", error)
        finally:
            del self._waiting[lane], self._lanes[lane]

    async def _handle(self, update: Update) -> None:
        if update.update_id in self._left_open and await patiently(self._set_aside, update):
            return
        try:
            caller = await patiently(let_in, self._chat, update)
            if caller is not None:
                await self._answer(caller, update)
        except QueueLostError:
            raise
        except Exception:
            log.exception("update %s could not be handled", update.update_id)
        await patiently(self._close, update.update_id)

    def _set_aside(self, update: Update) -> bool:
        """Give up an update after TRIES tries and tell its sender. Return whether it was given up.

        An update that ends the bot each time must not block the rest of its chat.
        """
        with self._chat.transaction():
            if self._chat.inbox.try_again(update.update_id) <= TRIES:
                return False
            log.error("update %s was left open %s times and is set aside", update.update_id, TRIES)
            self._chat.inbox.handled(update.update_id)
            caller = self._chat.gate.judge(update)
            if isinstance(caller, Caller):
                quoted = update.message.message_id if update.message else None
                self._chat.say(caller.chat, caller.id, SET_ASIDE, reply_to=quoted)
        return True

    def _close(self, update_id: int) -> None:
        if self._chat.inbox.is_open(update_id):  # no handler took it
            self._chat.inbox.handled(update_id)


def let_in(chat: Chat, update: Update) -> Caller | None:
    """Return the caller if the update may go on to the handlers; otherwise deal with it here and return None."""
    verdict = chat.gate.judge(update)
    if isinstance(verdict, Caller):
        return verdict
    if isinstance(verdict, Candidate):
        _pair(chat, update.update_id, verdict)
    elif isinstance(verdict, Moved):
        follow(chat, verdict.chat, verdict.became)
    elif isinstance(verdict, Denied):
        chat.gate.turn_away(verdict)
    return None


def _pair(chat: Chat, update_id: int, candidate: Candidate) -> None:
    with chat.transaction():
        role = chat.people.accept(candidate.code, candidate.id, candidate.name)
        chat.inbox.handled(update_id)
        if role is not None:
            _welcome(chat, candidate.id, candidate.name, role)


def _welcome(chat: Chat, person_id: int, name: str, role: str) -> None:
    """Greet a person who joined by a link, and tell the admins. Inside a transaction."""
    chat.queue.audit.add(actor_of(person_id), "paired", {"role": role})
    greeting = f"🌙 Welcome. You are {bold(role)} of {bold(chat.settings.box)}. /help lists what you can do."
    chat.say(person_id, person_id, greeting)
    chat.set_menu(person_id)
    joined = f"🔑 {escape(name)} ({code(str(person_id))}) is now {bold(role)} of {bold(chat.settings.box)}"
    chat.tell_admins(f"{joined}, by a pairing link. /pair lists everybody and can take it back.", but=person_id)
