"""One update being answered: who asked, where, and the one transaction that acts and answers."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bot.chat import QUESTION_S
from bot.commands import Role
from bot.inbound import parse
from bot.store.threads import Thread
from bot.text.buttons import ButtonKind, Press
from bot.text.html import CAPTION_UNITS, escape, fit, italic, printable, shorten
from bot.text.outgoing_text import plain
from runner.api.chat import clock
from runner.api.job_names import SeveralJobsError, job_named
from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from telegram import Document, Message, Update

    from bot.access.gate import Caller
    from bot.chat import CardOf, Chat, Picture
    from bot.store.cards import Keyboard
    from bot.text.buttons import Key
    from runner.api import Queue
    from runner.model import Job

_NUMBERS = re.compile(r"#?[0-9][0-9#,-]*")
_NAME = re.compile(r"\w")
ANSWER_S = 120.0
LONGEST_ANSWER = 190
STALE_S = 600.0
TAKEN = "👍"


class Dropped(Exception):  # noqa: N818 - it is not an error
    """Nothing more is done for this update: it was handled before, or its caller may no longer use the bot here."""


class WhichJobError(UserError):
    """The message does not say which job is meant. The picker then offers jobs, or else the message is shown.

    `jobs` are those that it may mean, if it says something: `word` is the part of the message that says it.
    """

    def __init__(self, sentence: str, jobs: Sequence[int] = (), word: str = "") -> None:
        super().__init__(sentence)
        self.jobs, self.word = jobs, word


@dataclass(slots=True)
class Turn:
    """One update and its caller. Handlers prepare first, then act and answer inside `effect`.

    The caller's role is the one of when the update was admitted, and inside `effect` the one of that moment.
    """

    chat: Chat
    caller: Caller
    update_id: int
    message_id: int | None = None
    topic: int | None = None
    reply_to: int | None = None
    text: str = ""  # without the phone's changes to quotes and dashes
    sent_at: datetime | None = None
    document: Document | None = None
    query_id: str | None = None  # of a pressed button
    shown: str = ""  # the text of the message with the button, as HTML; empty if it has none or cannot be read
    pictured: bool = False  # whether that text is the caption of a picture
    in_place: bool = False  # whether the first reply replaces the message with the button
    answered: bool = False  # whether the pressed button was answered: until then the phone shows it as busy
    keeps_question: bool = False  # whether a question that waits for a typed answer stays open
    uses: list[str] = field(default_factory=list)  # buttons to mark as used when this is done
    role: Role = Role.VIEWER  # what the caller must still have in the transaction

    @contextlib.contextmanager
    def effect(self) -> Iterator[None]:
        """Commit the actions, the answers and the mark "handled" in one transaction.

        The caller's role counts as it is now. Raise UserError if it is no longer enough, and Dropped on a repeat.
        """
        with self.chat.transaction():
            role = self.chat.gate.role_in(self.caller.id, self.caller.chat)
            if role is None or not self.chat.inbox.is_open(self.update_id):
                raise Dropped
            self.caller = replace(self.caller, role=role)
            self.require(self.role)
            self.chat.heard_from(self.caller)
            self.answered = False
            if not self.keeps_question:
                self.chat.buttons.close(self.caller.id, self.caller.chat)
            yield
            if not self.answered:
                self.answer()
            for nonce in self.uses:
                self.chat.buttons.use(nonce)
            self.chat.inbox.handled(self.update_id)

    @property
    def queue(self) -> Queue:
        """Return the queue, acting as the caller."""
        return self.chat.queue.acting_as(self.caller.actor)

    def require(self, role: Role) -> None:
        """Raise UserError unless the caller has at least this role. `effect` checks it again."""
        self.role = max(self.role, role)
        if self.caller.role < role:
            raise UserError(f"That takes {role.title} of this box; you are {self.caller.role.title}.")

    @property
    def is_admin(self) -> bool:
        """Return whether the caller is an admin."""
        return self.caller.role is Role.ADMIN

    @property
    def age_s(self) -> float:
        """Return how many seconds ago the message was sent."""
        return (clock.now() - self.sent_at).total_seconds() if self.sent_at else 0.0

    # -- answering, inside `effect` or alone ---------------------------------------------------------

    def reply(
        self, html: str, rows: Sequence[Sequence[Key]] = (), *, job_id: int | None = None,
        picture: Picture | None = None, card: CardOf | None = None,
    ) -> None:  # fmt: skip
        """Send a message to where the caller asked. With `in_place`, change the one with the pressed button instead."""
        if self.in_place and picture is None:
            self.in_place = False
            if card is not None:
                self.become_card(html, rows, card)
            else:
                self.edit(html, rows, job_id=job_id)
            return
        quote = self.message_id if self.query_id is None and (not self.caller.private or job_id) else None
        with self._in_effect():
            self.chat.say(
                self.caller.chat, self.caller.id, html, rows, job_id=job_id, reply_to=quote, topic=self.topic,
                picture=picture, card=card, silent=card is not None,
            )  # fmt: skip

    def ask(
        self, html: str, command: str, before: str, *, verbatim: bool = False, rows: Sequence[Sequence[Press]] = ()
    ) -> None:
        """Ask for a text: the caller's next message here is put behind `before`, and the command is run with it.

        The text counts as one word, unless it is `verbatim`. In a group it must be a reply.
        """
        how = "" if self.caller.private else "\n" + italic("Reply to this message.")
        with self._in_effect():
            data = {"command": command, "before": before, "verbatim": verbatim}
            self.chat.buttons.ask(self.caller.id, self.caller.chat, data, QUESTION_S)
            self.reply(f"{html}{how}", [*rows, [Press(ButtonKind.CANCEL)]])

    def card(self, html: str, rows: Sequence[Sequence[Key]], of: CardOf) -> None:
        """Answer with the card of what was queued.

        If there is nothing to say yet, a reaction is enough: the card comes if the job is not over soon.
        """
        if of.after_s is not None and self.query_id is None and self.message_id is not None:
            reaction = {"message_id": self.message_id, "emoji": TAKEN}
            self._send("setMessageReaction", reaction, "edit", job_id=of.job_id, lasts_s=ANSWER_S)
        self.reply(html, rows, job_id=of.job_id, card=of)

    def become_card(self, html: str, rows: Sequence[Sequence[Key]], of: CardOf) -> None:
        """Turn the message whose button was pressed into the card of what was queued."""
        keyboard = self.edit(html, rows, job_id=of.job_id)
        self.chat.cards.add(
            self.caller.chat, self.caller.id, self.chat.presentable(html), keyboard, of.state, job_id=of.job_id,
            group=of.group, number=self.message_id,
        )  # fmt: skip

    def report(self, sentences: Sequence[str], jobs: Sequence[Job]) -> None:
        """Reply with what was done to these jobs, one sentence per line."""
        html = fit([escape(self.chat.named("\n".join(sentences)))])
        self.reply(html, job_id=jobs[0].id if len(jobs) == 1 else None)

    def answer(self, text: str = "", *, alert: bool = False) -> None:
        """Show a short text over the pressed button; do nothing if no button was pressed."""
        self.answered = True
        if self.query_id is not None:
            words = shorten(printable(plain(self.chat.redactor.text(text))), LONGEST_ANSWER)
            body = {"query": self.query_id, "text": words, "alert": alert}
            self._send("answerCallbackQuery", body, "answer", lasts_s=ANSWER_S)

    def edit(self, html: str | None, rows: Sequence[Sequence[Key]] = (), *, job_id: int | None = None) -> Keyboard:
        """Change the message whose button was pressed; without `html` only its buttons. Return these buttons."""
        assert self.message_id is not None
        method = "editMessageReplyMarkup"
        body: dict[str, Any] = {"message_id": self.message_id}
        if html is not None and self.pictured:
            method, body["caption"] = "editMessageCaption", self.chat.presentable(html, CAPTION_UNITS)
        elif html is not None:
            method, body["text"] = "editMessageText", self.chat.presentable(html)
        with self._in_effect():
            self.chat.outbox.supersede(self.caller.chat, self.message_id)
            body["keyboard"] = keyboard = self.chat.keyboard(self.caller.id, rows)
            self._send(method, body, "edit", job_id=job_id)
            self.chat.cards.note_keyboard(self.caller.chat, self.message_id, keyboard)
        return keyboard

    def settle(self, outcome: str, rows: Sequence[Sequence[Key]] = (), *, job_id: int | None = None) -> None:
        """Add the outcome to the message whose button was pressed, and change its buttons."""
        self.edit(f"{self.shown}\n{italic(outcome)}" if self.shown else None, rows, job_id=job_id)

    def send_log(self, job_id: int) -> None:
        """Send a job's whole output as a file."""
        with self._in_effect():
            self.chat.queue.audit.add(self.caller.actor, "log", {"job": job_id, "whole": True})
            self._send("sendDocument", {"log_of": job_id, **self._place()}, "file", job_id=job_id)

    def send_results(self, group: str) -> None:
        """Send a group's results as a file."""
        self._send("sendDocument", {"csv_of": group, **self._place()}, "file")

    def _place(self) -> dict[str, Any]:
        return {"reply_to": self.message_id} | ({"topic": self.topic} if self.topic else {})

    def _send(
        self, method: str, body: dict[str, Any], lane: str, *, job_id: int | None = None, lasts_s: float | None = None
    ) -> None:
        with self._in_effect():
            self.chat.outbox.add(
                self.caller.chat, method, body, lane=lane, person=self.caller.id, job_id=job_id, lasts_s=lasts_s
            )

    @contextlib.contextmanager
    def _in_effect(self) -> Iterator[None]:
        if self.chat.queue.store.connection.in_transaction:
            yield
        else:
            with self.effect():
                yield

    # -- jobs ----------------------------------------------------------------------------------------

    def job(self, job_id: int) -> Job:
        """Return one job as it may be shown. Raise UserError if there is no such job."""
        job = self.chat.queue.jobs.get(job_id)
        if job is None:
            raise UserError(f"There is no job #{job_id}. /status lists the latest.")
        return self.chat.shown(job)

    def own_jobs(self, numbers: Iterable[int]) -> list[Job]:
        """Return these jobs. Raise UserError unless the caller may change all of them."""
        jobs = [self.job(number) for number in numbers]
        for job in jobs:
            self.require_owner(job)
        return jobs

    def may_change(self, job: Job) -> bool:
        """Return whether the caller owns the job or is an admin."""
        return job.spec.owner == self.caller.actor or self.is_admin

    def require_owner(self, job: Job) -> None:
        """Raise UserError unless the caller owns the job or is an admin."""
        self.require(Role.USER)
        if not self.may_change(job):
            owner = self.chat.name_of(job.spec.owner)
            raise UserError(f"#{job.id} belongs to {owner}: only they or an admin may change it.")

    def numbers(self, text: str, example: str) -> list[int]:
        """Return the jobs named, or else those that the message replied to is about."""
        if text.strip():
            return parse.job_numbers(text, lambda number: self.chat.queue.jobs.get(number) is not None, self.job_named)
        numbers = self._addressed()
        if not numbers:
            raise WhichJobError(f"Which job? Send {example}, or reply to a message about it.")
        return numbers

    def job_named(self, name: str) -> int | None:
        """Return the job that the caller means by a name, or None. Raise WhichJobError if it means several."""
        try:
            return job_named(self.queue, name) or job_named(self.queue, name.lower())  # a phone begins with a capital
        except SeveralJobsError as error:
            raise WhichJobError(str(error), error.jobs, name) from None

    def job_and_rest(self, text: str) -> tuple[str, str]:
        """Split off the first word if it is a job number, a range or a job's name; else return all as the rest."""
        first, *more = text.strip().split(maxsplit=1)[:2] or [""]
        rest = more[0] if more else ""
        may_be_name = self.reply_to is None and _NAME.match(first) and "=" not in first
        is_job = _NUMBERS.fullmatch(first) or (may_be_name and self.job_named(first))
        return (first, rest) if is_job else ("", text.strip())

    def _addressed(self) -> list[int]:
        if self.reply_to is None:
            return []
        job_id = self.chat.outbox.job_of(self.caller.chat, self.reply_to)
        return [job_id] if job_id else self.chat.threads.begun_by(self.caller.chat, self.reply_to)

    def start_threads(self, job_ids: Iterable[int]) -> None:
        """Send the notices of these jobs here."""
        for job_id in job_ids:
            self.chat.threads.start(Thread(job_id, self.caller.id, self.caller.chat, self.message_id, self.topic))


def turn_of(chat: Chat, caller: Caller, update: Update) -> Turn:
    """Make the turn for a message or a pressed button."""
    return _of_tap(chat, caller, update) if update.callback_query is not None else _of_message(chat, caller, update)


def _of_message(chat: Chat, caller: Caller, update: Update) -> Turn:
    message = update.message
    assert message is not None
    entities = message.entities or message.caption_entities
    marked = [(str(entity.type), entity.offset, entity.length) for entity in entities]
    return Turn(
        chat=chat,
        caller=caller,
        update_id=update.update_id,
        message_id=message.message_id,
        topic=message.message_thread_id if message.is_topic_message else None,
        reply_to=message.reply_to_message.message_id if message.reply_to_message else None,
        text=parse.straighten(message.text or message.caption or "", marked),
        sent_at=message.date,
        document=message.document,
    )


def _of_tap(chat: Chat, caller: Caller, update: Update) -> Turn:
    query = update.callback_query
    assert query is not None
    assert query.message is not None
    message: Message | None = query.message if query.message.is_accessible else None  # type: ignore[assignment]
    return Turn(
        chat=chat,
        caller=caller,
        update_id=update.update_id,
        message_id=query.message.message_id,
        topic=message.message_thread_id if message and message.is_topic_message else None,
        query_id=query.id,
        sent_at=clock.now(),  # Telegram does not say when a button was pressed
        shown=(message.text_html or message.caption_html or "") if message else "",
        pictured=bool(message and message.caption),
    )
