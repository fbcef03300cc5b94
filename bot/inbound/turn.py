"""One update being answered: who asked, where, and the one transaction that acts and answers."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bot.inbound import parse
from bot.roles import Role
from bot.telegram_html import CAPTION_UNITS, italic, printable, shorten
from bot.text.outgoing_text import plain
from runner.api.chat import Thread, clock
from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from telegram import Document, Message, Update

    from bot.access.gate import Caller
    from bot.chat import Chat, Picture
    from bot.text.keyboards import Link, Press
    from runner.api import Queue
    from runner.model import Job

ANSWER_S = 120.0
LONGEST_ANSWER = 190
STALE_S = 600.0


class AlreadyDone(Exception):  # noqa: N818 - it is not an error
    """This update was handled before."""


@dataclass(slots=True)
class Turn:
    """One update and its caller. Handlers prepare first, then act and answer inside `effect`."""

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
    uses: list[str] = field(default_factory=list)  # buttons to mark as used when this is done

    @contextlib.contextmanager
    def effect(self) -> Iterator[None]:
        """Commit the actions, the answers and the mark "handled" in one transaction. Raise AlreadyDone on a repeat."""
        with self.chat.transaction():
            if not self.chat.inbox.is_open(self.update_id):
                raise AlreadyDone
            self.chat.heard_from(self.caller)
            yield
            for nonce in self.uses:
                self.chat.buttons.use(nonce)
            self.chat.inbox.handled(self.update_id)

    @property
    def queue(self) -> Queue:
        """Return the queue, acting as the caller."""
        return self.chat.queue.acting_as(self.caller.actor)

    def require(self, role: Role) -> None:
        """Raise UserError unless the caller has at least this role right now."""
        now = self.chat.gate.role_of(self.caller.id)
        if now is None or now < role:
            you = f"; you are {now.title}" if now else ""
            raise UserError(f"That takes {role.title} of this box{you}.")

    @property
    def is_admin(self) -> bool:
        """Return whether the caller is an admin right now."""
        return self.chat.gate.role_of(self.caller.id) is Role.ADMIN

    @property
    def age_s(self) -> float:
        """Return how many seconds ago the message was sent."""
        return (clock.now() - self.sent_at).total_seconds() if self.sent_at else 0.0

    # -- answering, inside `effect` or alone ---------------------------------------------------------

    def reply(
        self, html: str, rows: Sequence[Sequence[Press | Link]] = (), *, job_id: int | None = None,
        picture: Picture | None = None,
    ) -> None:  # fmt: skip
        """Send a message to where the caller asked."""
        quote = self.message_id if self.query_id is None and (not self.caller.private or job_id) else None
        with self._whole():
            self.chat.say(
                self.caller.chat, self.caller.id, html, rows, job_id=job_id, reply_to=quote, topic=self.topic,
                picture=picture,
            )  # fmt: skip

    def answer(self, text: str = "", *, alert: bool = False) -> None:
        """Show a short text over the pressed button; do nothing if no button was pressed."""
        if self.query_id is None:
            return
        shown = shorten(printable(plain(self.chat.redactor.text(text))), LONGEST_ANSWER)
        body: dict[str, Any] = {"query": self.query_id, "text": shown, "alert": alert}
        with self._whole():
            self.chat.messages.add(
                self.caller.chat, "answerCallbackQuery", body, lane="answer", person=self.caller.id, lasts_s=ANSWER_S
            )

    def edit(self, html: str | None, rows: Sequence[Sequence[Press | Link]] = (), *, job_id: int | None = None) -> None:
        """Change the message whose button was pressed; without `html` only its buttons."""
        assert self.message_id is not None
        method = "editMessageReplyMarkup"
        body: dict[str, Any] = {"message_id": self.message_id}
        if html is not None and self.pictured:
            method, body["caption"] = "editMessageCaption", self.chat.presentable(html, CAPTION_UNITS)
        elif html is not None:
            method, body["text"] = "editMessageText", self.chat.presentable(html)
        with self._whole():
            self.chat.messages.supersede(self.caller.chat, self.message_id)
            body["keyboard"] = self.chat.keyboard(self.caller.id, rows)
            self.chat.messages.add(self.caller.chat, method, body, lane="edit", person=self.caller.id, job_id=job_id)

    def settle(self, outcome: str, rows: Sequence[Sequence[Press | Link]] = (), *, job_id: int | None = None) -> None:
        """Add the outcome to the message whose button was pressed, and change its buttons."""
        added = f"\n{italic(outcome)}"
        self.edit(f"{self.shown}{added}" if self.shown else None, rows, job_id=job_id)

    def send_log(self, job_id: int) -> None:
        """Send a job's whole output as a file."""
        body = {"log_of": job_id, "reply_to": self.message_id} | ({"topic": self.topic} if self.topic else {})
        with self._whole():
            self.chat.queue.audit.add(self.caller.actor, "log", {"job": job_id, "whole": True})
            self.chat.messages.add(
                self.caller.chat, "sendDocument", body, lane="file", person=self.caller.id, job_id=job_id
            )

    def send_results(self, group: str) -> None:
        """Send a group's results as a file."""
        body = {"csv_of": group, "reply_to": self.message_id} | ({"topic": self.topic} if self.topic else {})
        with self._whole():
            self.chat.messages.add(self.caller.chat, "sendDocument", body, lane="file", person=self.caller.id)

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        if self.chat.queue.store.connection.in_transaction:
            yield
        else:
            with self.effect():
                yield

    # -- jobs ----------------------------------------------------------------------------------------

    def job(self, job_id: int) -> Job:
        """Return one job as it may be shown. Raise UserError if there is no such job."""
        found = self.chat.queue.jobs.get(job_id)
        if found is None:
            raise UserError(f"There is no job #{job_id}. /status lists the latest.")
        return self.chat.shown(found)

    def numbers(self, text: str, example: str) -> list[int]:
        """Return the jobs named, or else those that the message replied to is about."""
        if text.strip():
            return parse.job_numbers(text, lambda number: self.chat.queue.jobs.get(number) is not None)
        found = self._addressed()
        if not found:
            raise UserError(f"Which job? Send {example}, or reply to a message about it.")
        return found

    def _addressed(self) -> list[int]:
        if self.reply_to is None:
            return []
        job_id = self.chat.messages.job_of(self.caller.chat, self.reply_to)
        return [job_id] if job_id else self.chat.threads.begun_by(self.caller.chat, self.reply_to)

    def thread(self, job_id: int) -> None:
        """Send the notices of this job here."""
        quoted = self.message_id
        self.chat.threads.start(Thread(job_id, self.caller.id, self.caller.chat, quoted, self.topic))

    def may_stop(self, job: Job) -> bool:
        """Return whether the caller owns the job or is an admin."""
        return job.spec.owner == self.caller.actor or self.is_admin


def of_message(chat: Chat, caller: Caller, update: Update) -> Turn:
    """Make the turn for a message."""
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


def of_tap(chat: Chat, caller: Caller, update: Update) -> Turn:
    """Make the turn for a pressed button."""
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
