"""Who gets a notice, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bot.access.gate import person_of
from bot.text.notice_forms import form_of
from runner.notices import GroupDone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bot.chat import Chat
    from bot.store.threads import Thread
    from runner.notices import Notice


class Recipient(NamedTuple):
    """A person, and the place for the message."""

    person: int
    chat: int
    message: int | None = None
    topic: int | None = None


def recipients_of(chat: Chat, notice: Notice) -> list[Recipient]:
    """Return the place where the job was submitted, or the admins if it came from a terminal or is about the box.

    The admins also get a notice whose submitter has no role any more.
    """
    if isinstance(notice.payload, GroupDone):
        return _of_group(chat, notice.payload)
    thread = chat.threads.get(notice.job_id) if notice.job_id is not None else None
    if thread is not None and (submitter := _submitter(chat, thread)):
        return [submitter]
    form = form_of(notice.payload)
    owners = _owners(chat, form.owners_of(notice.payload)) if form else set()
    return [Recipient(person, person) for person in sorted({*chat.gate.admins(), *owners})]


def _owners(chat: Chat, numbers: Iterable[int]) -> set[int]:
    """Return the owners of these jobs, if they still have a role."""
    people = {person_of(job.spec.owner) for number in numbers if (job := chat.queue.jobs.get(number))}
    return {person for person in people if person is not None and chat.gate.role_of(person) is not None}


def _submitter(chat: Chat, thread: Thread) -> Recipient | None:
    """Return the submitter in the chat where they asked, or in private; None if they have no role any more."""
    if chat.gate.may_reach(thread.person, thread.chat):
        return Recipient(thread.person, thread.chat, thread.message, thread.topic)
    return Recipient(thread.person, thread.person) if chat.gate.role_of(thread.person) is not None else None


def _of_group(chat: Chat, done: GroupDone) -> list[Recipient]:
    """Return everybody who submitted one of the group's jobs, once per chat.

    The admins are added if a job came from a terminal, or if one of these people has no role any more.
    """
    threads, others = chat.threads.of_group(done.group, done.after)
    submitters = [_submitter(chat, thread) for thread in threads]
    recipients = list({(to.person, to.chat): to for to in reversed(submitters) if to}.values())
    if others or None in submitters or not recipients:
        reached = {to.person for to in recipients}
        recipients += [Recipient(admin, admin) for admin in chat.gate.admins() if admin not in reached]
    return recipients
