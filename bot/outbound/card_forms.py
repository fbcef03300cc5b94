"""What cards look like, and when they begin: a card follows from the state of its job or group."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bot.chat import SOON_OVER_S, CardOf
from bot.outbound.recipients import recipients_of
from bot.store.cards import UNFINISHED, WAITING
from bot.text import card_words, group_words, job_words, keyboards, views
from bot.text.box_notices import NoticeContext
from bot.text.notice_forms import WANT_CARDS
from runner.api import groups
from runner.api.chat import STARTS_NEXT, clock
from runner.model import State
from runner.notices import Ended, GroupDone, Started

if TYPE_CHECKING:
    from bot.chat import Chat
    from bot.text.keyboards import Rows
    from runner.model import Job
    from runner.notices import Notice

RUNNING_LINES = 4  # jobs of a group that its card shows


class CardForm(NamedTuple):
    """What a card should look like now. `rows` is None for one that is over: it needs no buttons."""

    html: str
    state: str
    rows: Rows | None


def state_of(job: Job) -> str:
    """Return the state that the buttons of a job's card depend on."""
    return WAITING if job.state is State.QUEUED else f"{job.state.value} {job.attempt}"


def of_job(chat: Chat, job: Job, reason: str | None = None) -> CardForm:
    """Return the form of a job's card. `reason` says why the job waits."""
    why = chat.named(reason) if reason and not reason.startswith(STARTS_NEXT) else None
    html = card_words.card(
        chat.shown(job), _context(chat), clock.now(), reason=why, progress=chat.queue.view.progress(job),
        probe=chat.probe_of(job), metrics=chat.settings.log_text,
    )  # fmt: skip
    return CardForm(html, state_of(job), None if job.state.final else keyboards.of_job(job))


def of_group(chat: Chat, name: str) -> CardForm:
    """Return the form of a group's card."""
    standing = groups.standing(chat.queue, name)
    context, now, view = _context(chat), clock.now(), chat.queue.view
    lines = [
        job_words.running_line(
            chat.shown(job), context.indices, now, chat.name_of, view.progress(job), metrics=chat.settings.log_text
        )
        for job in running_in(chat, name)
    ]
    state = f"{UNFINISHED}, some failed" if chat.queue.groups.failed(name) else UNFINISHED
    rows = keyboards.of_group(standing) if standing.unfinished else None
    return CardForm(group_words.card(standing, lines), state, rows)


def running_in(chat: Chat, name: str) -> list[Job]:
    """Return the jobs that the card of a group shows."""
    return [job for job in chat.queue.jobs.live() if job.spec.group == name][:RUNNING_LINES]


def _context(chat: Chat) -> NoticeContext:
    indices = views.indices_of(chat.queue.view.gpus())
    return NoticeContext(box=chat.settings.box, indices=indices, name_of=chat.name_of)


def begin_or_drop(chat: Chat, notice: Notice) -> None:
    """Start the card of a job that runs and has none, and drop a card that would come after the end.

    In the transaction of the notice's messages.
    """
    payload = notice.payload
    if isinstance(payload, GroupDone):
        chat.cards.drop_unsent(None, payload.group)
    elif isinstance(payload, Ended):
        chat.cards.drop_unsent(notice.job_id, None)
    elif isinstance(payload, Started) and notice.job_id is not None:
        job = chat.queue.jobs.get(notice.job_id)
        if job is not None and not job.state.final:
            _begin(chat, notice, job)


def _begin(chat: Chat, notice: Notice, job: Job) -> None:
    group = job.spec.group
    job_id = job.id if group is None else None
    for to in recipients_of(chat, notice):
        has_one = chat.cards.has(to.chat, job.id, None) or (group is not None and chat.cards.has(to.chat, None, group))
        if has_one or chat.people.get(to.person).noise not in WANT_CARDS:
            continue
        with chat.read_by(to.person, to.chat):
            form = of_job(chat, job) if group is None else of_group(chat, group)
        chat.say(
            to.chat, to.person, form.html, form.rows or [], job_id=job_id, reply_to=to.message, topic=to.topic,
            silent=True, card=CardOf(job_id=job_id, group=group, state=form.state, after_s=SOON_OVER_S),
        )  # fmt: skip
