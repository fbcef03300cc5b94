"""How each kind of notice is told: text, buttons, recipients, and whether it makes a sound."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING, Any

from bot.text import box_notices, group_words, job_notices, keyboards
from runner.model import State
from runner.notices import NoticeKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bot.text.keyboards import Rows
    from bot.text.notice_context import GroupContext, JobContext, NoticeContext
    from runner.notices import (
        Ended,
        GoesOn,
        GroupDone,
        LooksHung,
        Payload,
        QueueEmpty,
        TimeWarning,
        Unknown,
        WhenEmptyRan,
    )


class To(Enum):
    """Who gets a notice."""

    SUBMITTER = auto()  # in the chat where the job was submitted; the admins if that was a terminal
    SUBMITTERS = auto()  # of the jobs of a group
    ADMINS = auto()


class News(IntEnum):
    """What kind of news it is. The choices of /notify leave out what is below them."""

    START = 0
    GOOD = 1
    TROUBLE = 2


LEAST_NEWS = {"all": News.START, "ends": News.GOOD, "failures": News.TROUBLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How one kind of notice is told. Every function gets the payload; most also get its context."""

    text: Callable[[Any, Any], str]
    caption: Callable[[Any, Any], str] | None = None  # the text below a picture, if there is one to draw
    buttons: Callable[[Any, Any], Rows] = lambda _payload, _context: []
    to: To = To.ADMINS
    owners_of: Callable[[Any], Iterable[int]] = lambda _payload: ()  # the owners of these jobs get it, too
    news: Callable[[Any], News] = lambda _payload: News.TROUBLE
    silent: Callable[[Any], bool] = lambda _payload: False


# -- news and sound --------------------------------------------------------------------------------


def _good(_: Payload) -> News:
    return News.GOOD


def _always(_: Payload) -> bool:
    return True


def _news_of_end(end: Ended) -> News:
    return News.GOOD if end.state is State.SUCCEEDED else News.TROUBLE


def _news_of_group(done: GroupDone) -> News:
    return News.GOOD if set(done.counts) <= {State.SUCCEEDED.value} else News.TROUBLE


def _news_of_command(ran: WhenEmptyRan) -> News:
    return News.GOOD if ran.exit_code == 0 else News.TROUBLE


def _was_lone_job(empty: QueueEmpty) -> bool:
    """Return whether a single job has ended, and nothing else is announced: the end of that job made a sound."""
    return empty.jobs < 2 and not empty.command


# -- buttons ---------------------------------------------------------------------------------------


def _of_job(_: Payload, context: JobContext) -> Rows:
    return keyboards.of_job(context.job)


def _keep_idle(_: Payload, context: JobContext) -> Rows:
    return keyboards.of_idle(context.job) if context.is_live else keyboards.of_job(context.job)


def _keep_hung(warning: LooksHung, context: JobContext) -> Rows:
    return _keep_idle(warning, context) if warning.stops_at else keyboards.of_job(context.job)


def _extend(warning: TimeWarning, context: JobContext) -> Rows:
    """Offer to extend the job, unless it has ended, is stopping, or was extended meanwhile."""
    job = context.job
    if not context.is_live or job.spec.time_limit_s != warning.limit_s:
        return keyboards.of_job(job)
    return keyboards.of_time(job, warning.limit_s, warning.more_s)


def _of_group(_: GroupDone, context: GroupContext) -> Rows:
    return keyboards.of_group(context.standing) if context.standing else []


def _resume(_: Payload, __: NoticeContext) -> Rows:
    return keyboards.resume()


def _release(notice: GoesOn, _: NoticeContext) -> Rows:
    return keyboards.release(notice.held) if notice.held else []


def _cancel_command(empty: QueueEmpty, _: NoticeContext) -> Rows:
    return keyboards.cancel_when_empty() if empty.command else []


# -- the table -------------------------------------------------------------------------------------

FORMS: dict[NoticeKind, Form] = {
    NoticeKind.STARTED: Form(
        text=job_notices.started, buttons=_of_job, to=To.SUBMITTER, news=lambda _: News.START, silent=_always
    ),
    NoticeKind.ENDED: Form(
        text=job_notices.ended, caption=job_notices.ended_caption, buttons=_of_job, to=To.SUBMITTER, news=_news_of_end
    ),
    NoticeKind.REQUEUED: Form(text=job_notices.requeued, buttons=_of_job, to=To.SUBMITTER, news=_good),
    NoticeKind.IDLE_WARNING: Form(
        text=job_notices.idle_warning, caption=job_notices.idle_caption, buttons=_keep_idle, to=To.SUBMITTER
    ),
    NoticeKind.LOOKS_HUNG: Form(text=job_notices.looks_hung, buttons=_keep_hung, to=To.SUBMITTER),
    NoticeKind.TIME_WARNING: Form(text=job_notices.time_warning, buttons=_extend, to=To.SUBMITTER),
    NoticeKind.GROUP_DONE: Form(
        text=group_words.done, caption=group_words.done_caption, buttons=_of_group, to=To.SUBMITTERS,
        news=_news_of_group,
    ),
    NoticeKind.PAUSED: Form(text=box_notices.paused, buttons=_resume, owners_of=lambda notice: notice.jobs),
    NoticeKind.GOES_ON: Form(
        text=box_notices.goes_on, buttons=_release, owners_of=lambda notice: (*notice.jobs, *notice.held)
    ),
    NoticeKind.DRAINED: Form(text=box_notices.drained, buttons=_resume, news=_good, silent=_always),
    NoticeKind.QUEUE_EMPTY: Form(
        text=box_notices.queue_empty, buttons=_cancel_command, news=_good, silent=_was_lone_job
    ),
    NoticeKind.WHEN_EMPTY_RAN: Form(text=box_notices.when_empty_ran, news=_news_of_command),
    NoticeKind.GPU_LOST: Form(text=box_notices.gpu_lost),
    NoticeKind.GPU_BACK: Form(text=box_notices.gpu_back, news=_good, silent=_always),
    NoticeKind.GPU_HELD: Form(text=box_notices.gpu_held),
    NoticeKind.DISK_LOW: Form(text=box_notices.disk_low),
    NoticeKind.DISK_BACK: Form(text=box_notices.disk_back, news=_good, silent=_always),
    NoticeKind.BACKUP_FAILING: Form(text=box_notices.backup_failing),
    NoticeKind.BACKUP_BACK: Form(text=box_notices.backup_back, news=_good, silent=_always),
    NoticeKind.NO_RUNNER: Form(text=box_notices.no_runner),
    NoticeKind.RUNNER_BACK: Form(text=box_notices.runner_back, news=_good, silent=_always),
    NoticeKind.NEW_QUEUE: Form(text=box_notices.new_queue),
    NoticeKind.QUEUE_RESTORED: Form(text=box_notices.queue_restored),
}  # fmt: skip


def form_of(payload: Payload | Unknown) -> Form | None:
    """Return how a notice is told; None for one that this version cannot read."""
    return FORMS.get(payload.kind) if isinstance(payload.kind, NoticeKind) else None
