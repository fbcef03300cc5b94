"""Keeps cards up to date: changes them in place, as often as Telegram allows and never before an alert.

What a card says follows from its job, so progress is not stored here. A restart costs at most one needless edit a card.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from telegram.constants import ParseMode
from telegram.error import TelegramError

from bot.outbound.card_forms import of_group, of_job, running_in, state_of
from bot.outbound.retry_policy import Then, after_failure
from bot.outbound.sender import NO_PREVIEW, keyboard_of
from bot.outbound.stale_buttons import QUESTION
from bot.store.cards import WAITING
from bot.text.buttons import BY_ACTION
from bot.waiting import patiently, within
from runner.api.chat import Changes, clock
from runner.model import State
from runner.notices import GroupDone

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from telegram import Bot

    from bot.chat import Chat
    from bot.outbound.card_forms import CardForm
    from bot.outbound.sender import Sender
    from bot.store.cards import JobCard, Keyboard
    from bot.store.outbox import Message
    from runner.model import Job
    from runner.notices import Notice

log = logging.getLogger(__name__)

AT_ONCE = 4  # calls for all chats together; the other connections are for alerts
LOOK_AGAIN_S = 10.0  # at a job whose folder cannot be watched
_RETRIED = {Then.WAIT, Then.AGAIN, Then.PERHAPS, Then.DOUBT}


class CardEditor:
    """Changes cards whose job or group has changed. Each chat gets one edit after the other, with a pause between."""

    def __init__(self, chat: Chat, sender: Sender, bot: Bot) -> None:
        self._chat, self._sender, self._bot = chat, sender, bot
        self._wake = asyncio.Event()
        self._changed: set[int] = set()  # cards to look at
        self._missed: set[int] = set()  # cards to look at once they are sent
        self._shown: dict[int, str] = {}  # by card: its text, if it changed since that was stored
        self._edited_at: dict[int, float] = {}
        self._calls = asyncio.Semaphore(AT_ONCE)
        self._changes = Changes()
        self._watched: dict[int, int] = {}  # number of a watch -> job
        self._timers: dict[int, asyncio.TimerHandle] = {}  # by job, if its folder cannot be watched
        self._editing = False
        sender.on_sent, sender.on_rest = self._sent, self.wake

    @property
    def busy(self) -> bool:
        """Return whether cards are being changed or could be now."""
        changed = (card for card in self._chat.cards.all() if card.id in self._changed)
        return self._editing or any(self._sender.card_wait_s(card.chat) <= 0 for card in changed)

    def wake(self) -> None:
        """Wake the editor: a card may be due."""
        self._wake.set()

    def news(self, notices: Sequence[Notice]) -> None:
        """Look at the cards of these notices' jobs and groups."""
        jobs = {notice.job_id for notice in notices if notice.job_id is not None}
        self._look(jobs, {notice.payload.group for notice in notices if isinstance(notice.payload, GroupDone)})
        if jobs:  # what starts or ends changes why others wait
            self._changed |= {card.id for card in self._chat.cards.all() if card.state == WAITING}

    def _look(self, job_ids: Iterable[int], names: Iterable[str] = ()) -> None:
        jobs = {job_id: self._chat.queue.jobs.get(job_id) for job_id in job_ids}
        named = {*names, *(job.spec.group for job in jobs.values() if job is not None and job.spec.group is not None)}
        about = [card for card in self._chat.cards.all() if card.job_id in jobs or card.group in named]
        self._changed |= {card.id for card in about}
        self._wake.set()

    def _sent(self, message: Message) -> None:
        """Look at a card that was just sent, if its job may be further."""
        sent = {card.id: card for card in self._chat.cards.all() if card.message_id == message.id}
        self._changed |= {number for number, card in sent.items() if card.job_id is not None or number in self._missed}
        self._missed -= sent.keys()

    async def run(self) -> None:
        """Run until cancelled."""
        loop, watched = asyncio.get_running_loop(), self._changes.fileno()
        if watched >= 0:
            loop.add_reader(watched, self._progressed)
        try:
            self._changed |= {card.id for card in await patiently(self._chat.cards.all)}
            while True:
                self._wake.clear()
                wait_s = await self._edit_due()
                with contextlib.suppress(asyncio.TimeoutError):
                    await within(wait_s, self._wake.wait())
        finally:
            if watched >= 0:
                loop.remove_reader(watched)
            self._changes.close()
            for timer in self._timers.values():
                timer.cancel()

    # -- progress ----------------------------------------------------------------------------------

    def _watch(self, job: Job) -> None:
        """Learn when a running job gets further. Comes before its progress is read."""
        if job.state is not State.RUNNING:
            return
        watch = self._changes.add_once(self._chat.queue.view.folder_of(job))
        if watch >= 0:
            self._watched[watch] = job.id
        elif job.id not in self._timers:
            later = asyncio.get_running_loop().call_later
            self._timers[job.id] = later(LOOK_AGAIN_S, self._look_again, job.id)

    def _look_again(self, job_id: int) -> None:
        del self._timers[job_id]
        self._look([job_id])

    def _progressed(self) -> None:
        """Take in that jobs are further than their cards say. They are watched again when their cards are written."""
        self._look([job for watch in self._changes.read() if (job := self._watched.pop(watch, None)) is not None])

    # -- when --------------------------------------------------------------------------------------

    async def _edit_due(self) -> float | None:
        """Change one card in each chat that may be called now. Return the seconds until more may be; None if none."""
        by_chat: dict[int, list[JobCard]] = {}
        for card in await patiently(self._chat.cards.all):
            if card.id in self._changed:
                by_chat.setdefault(card.chat, []).append(card)
        self._changed &= {card.id for cards in by_chat.values() for card in cards}
        waits = {chat: self._sender.card_wait_s(chat) for chat in by_chat}
        due = [chat for chat in by_chat if waits[chat] <= 0 and not self._sender.is_behind(chat)]
        self._editing = bool(due)
        await asyncio.gather(*(self._edit_one(by_chat[chat]) for chat in due))
        self._editing = False
        return 0.0 if due else min((wait_s for wait_s in waits.values() if wait_s > 0), default=None)

    async def _edit_one(self, cards: Sequence[JobCard]) -> None:
        """Change the first of a chat's cards that is not up to date: an end, a start, or else the oldest text."""
        with self._chat.read_by(cards[0].person, cards[0].chat):
            await self._edit_first(cards)

    async def _edit_first(self, cards: Sequence[JobCard]) -> None:
        queue = self._chat.queue
        jobs = {card.id: queue.jobs.get(card.job_id) for card in cards if card.job_id is not None}
        waiting = [job for job in jobs.values() if job is not None and job.state is State.QUEUED]
        reasons = await patiently(queue.reasons.of, waiting) if waiting else {}
        for card in sorted(cards, key=lambda card: self._urgency(card, jobs.get(card.id))):
            job = jobs.get(card.id)
            form = await patiently(self._form, card, job, reasons.get(job.id) if job else None)
            self._changed.discard(card.id)
            if form is None:
                await patiently(self._finish, card)
            elif await self._update(card, form):
                return
            await asyncio.sleep(0)

    def _urgency(self, card: JobCard, job: Job | None) -> tuple[bool, bool, float]:
        is_live = not job.state.final if job else card.group is not None
        is_same = job is None or state_of(job) == card.state
        return is_live, is_same, self._edited_at.get(card.id, 0.0)

    # -- one card ----------------------------------------------------------------------------------

    def _form(self, card: JobCard, job: Job | None, reason: str | None) -> CardForm | None:
        """Return what a card should look like; None if nobody can see it, or what it is about is no longer stored."""
        if card.is_gone or not self._chat.gate.may_reach(card.person, card.chat):
            return None
        if job is not None:
            self._watch(job)
            return of_job(self._chat, job, reason)
        if card.group is None or self._chat.queue.groups.get(card.group) is None:
            return None
        for member in running_in(self._chat, card.group):
            self._watch(member)
        return of_group(self._chat, card.group)

    async def _update(self, card: JobCard, form: CardForm) -> bool:
        """Bring one card to its form. Return whether Telegram was called."""
        text = self._chat.presentable(form.html)
        if card.number is None:
            await patiently(self._change_unsent, card, form, text)
            return False
        keyboard = await patiently(self._buttons, card, form)
        is_right = text == self._shown.get(card.id, card.text) and keyboard == card.keyboard
        if not is_right and not await self._call(card, text, keyboard):
            return True
        self._shown[card.id], self._edited_at[card.id] = text, clock.monotonic()
        if form.rows is None:
            await patiently(self._finish, card)
        elif form.state != card.state and not self._asks(card):
            await patiently(self._chat.cards.note, card.id, text, keyboard, form.state)
        return not is_right

    def _change_unsent(self, card: JobCard, form: CardForm, text: str) -> None:
        """Change a card that waits in the outbox. One that is being sent is looked at again afterwards."""
        self._missed.add(card.id)
        if card.waits and form.state != card.state and card.message_id is not None:
            with self._chat.transaction():
                keyboard = self._chat.keyboard(card.person, form.rows or [])
                self._chat.outbox.rewrite(card.message_id, text, keyboard)
                self._chat.cards.note(card.id, text, keyboard, form.state)

    def _buttons(self, card: JobCard, form: CardForm) -> Keyboard:
        """Return the buttons that a card should have: the same, unless its state has changed and it asks nothing."""
        if form.rows is None:
            return []
        is_kept = form.state == card.state or self._asks(card)
        return card.keyboard if is_kept else self._chat.keyboard(card.person, form.rows)

    def _asks(self, card: JobCard) -> bool:
        """Return whether a card shows a question that can still be answered."""
        nonces = [button["data"] for row in card.keyboard for button in row if "data" in button]
        buttons = [button for nonce in nonces if (button := self._chat.buttons.find(nonce)) is not None]
        return any(BY_ACTION.get(button.action) in QUESTION and not button.expired for button in buttons)

    async def _call(self, card: JobCard, text: str, keyboard: Keyboard) -> bool:
        """Edit the message. Return whether it is now as it should be."""
        async with self._calls:
            self._sender.pace.note_call(card.chat)
            try:
                await self._bot.edit_message_text(
                    text, card.chat, card.number, parse_mode=ParseMode.HTML, link_preview_options=NO_PREVIEW,
                    reply_markup=keyboard_of({"keyboard": keyboard}),
                )  # fmt: skip
            except TelegramError as problem:
                return await self._failed(card, problem)
        return True

    async def _failed(self, card: JobCard, problem: TelegramError) -> bool:
        """Decide what becomes of a card that could not be edited. Return whether it is as it should be."""
        verdict = after_failure(problem, 1)
        if "not modified" in verdict.why:
            return True
        if verdict.then not in _RETRIED:
            log.info("a card in chat %s can no longer be changed: %s", card.chat, verdict.why)
            await patiently(self._finish, card)
            return False
        self._changed.add(card.id)
        if verdict.then is Then.WAIT:
            self._sender.leave_alone(card.chat, verdict.after_s)
        else:
            self._sender.pace.slow_down(card.chat)
        return False

    def _finish(self, card: JobCard) -> None:
        with self._chat.transaction():
            self._chat.cards.finish(card)
        self._shown.pop(card.id, None)
        self._edited_at.pop(card.id, None)
