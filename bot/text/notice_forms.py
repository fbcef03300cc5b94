"""How each kind of notice is told: text, buttons, recipients, and whether it makes a sound."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from functools import partial
from typing import TYPE_CHECKING, Any

from bot.text import box_notices, group_words, job_notices, keyboards
from runner.model import State
from runner.notices import NoticeKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bot.text.job_notices import JobContext
    from bot.text.keyboards import Rows
    from runner import notices


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


LEAST_NEWS = {"more": News.START, "all": News.GOOD, "ends": News.GOOD, "failures": News.TROUBLE}
WANT_CARDS = {"more", "all"}  # of jobs that came from elsewhere; what people submit in the chat always has a card


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


_of_job = partial(Form, to=To.SUBMITTER, buttons=lambda _, context: keyboards.of_job(context.job))
_good = partial(Form, news=lambda _: News.GOOD)
_silent_good = partial(_good, silent=lambda _: True)


def _good_if(is_good: Callable[[Any], bool]) -> Callable[[Any], News]:
    return lambda payload: News.GOOD if is_good(payload) else News.TROUBLE


def _keep(warning: notices.IdleWarning | notices.LooksHung, context: JobContext) -> Rows:
    """Offer to keep the job, unless it has ended, is stopping, or was never going to be stopped."""
    is_left_alone = warning.kind is NoticeKind.LOOKS_HUNG and not warning.stops_at
    return keyboards.of_idle(context.job) if context.is_live and not is_left_alone else keyboards.of_job(context.job)


def _keep_or_kill(warning: notices.BadMetric, context: JobContext) -> Rows:
    """Offer to kill the job or to leave it alone, unless it has ended or is stopping."""
    choice = context.is_live and not warning.stops
    return keyboards.of_idle(context.job) if choice else keyboards.of_job(context.job)


def _extend(warning: notices.TimeWarning, context: JobContext) -> Rows:
    """Offer to extend the job, unless it has ended, is stopping, or was extended meanwhile."""
    job = context.job
    if not context.is_live or job.spec.time_limit_s != warning.limit_s:
        return keyboards.of_job(job)
    return keyboards.of_time(job, warning.limit_s, warning.more_s)


FORMS: dict[NoticeKind, Form] = {
    NoticeKind.STARTED: _of_job(text=job_notices.started, news=lambda _: News.START, silent=lambda _: True),
    NoticeKind.ENDED: _of_job(
        text=job_notices.ended, caption=job_notices.ended_caption,
        news=_good_if(lambda end: end.state is State.SUCCEEDED),
    ),
    NoticeKind.REQUEUED: _of_job(text=job_notices.requeued, news=lambda _: News.GOOD),
    NoticeKind.TRIAL_FAILED: _of_job(
        text=job_notices.trial_failed, buttons=lambda _, context: keyboards.of_failed_trial(context.job)
    ),
    NoticeKind.IDLE_WARNING: _of_job(text=job_notices.idle_warning, caption=job_notices.idle_caption, buttons=_keep),
    NoticeKind.LOOKS_HUNG: _of_job(text=job_notices.looks_hung, buttons=_keep),
    NoticeKind.BAD_METRIC: _of_job(text=job_notices.bad_metric, buttons=_keep_or_kill),
    NoticeKind.TIME_WARNING: _of_job(text=job_notices.time_warning, buttons=_extend),
    NoticeKind.GROUP_DONE: Form(
        text=group_words.done, caption=group_words.done_caption, to=To.SUBMITTERS,
        buttons=lambda _, context: keyboards.of_group(context.standing) if context.standing else [],
        news=_good_if(lambda done: set(done.counts) <= {State.SUCCEEDED.value}),
    ),
    NoticeKind.PAUSED: Form(
        text=box_notices.paused, buttons=lambda *_: keyboards.resume(), owners_of=lambda notice: notice.jobs
    ),
    NoticeKind.GOES_ON: Form(
        text=box_notices.goes_on, owners_of=lambda notice: (*notice.jobs, *notice.held),
        buttons=lambda notice, _: keyboards.release(notice.held) if notice.held else [],
    ),
    NoticeKind.DRAINED: _silent_good(text=box_notices.drained, buttons=lambda *_: keyboards.resume()),
    NoticeKind.QUEUE_EMPTY: _good(
        text=box_notices.queue_empty,
        buttons=lambda empty, _: keyboards.cancel_when_empty() if empty.command else [],
        silent=lambda empty: empty.jobs < 2 and not empty.command,  # the end of a single job has just made a sound
    ),
    NoticeKind.WHEN_EMPTY_RAN: Form(text=box_notices.when_empty_ran, news=_good_if(lambda ran: ran.exit_code == 0)),
    NoticeKind.GPU_LOST: Form(text=box_notices.gpu_lost),
    NoticeKind.GPU_BACK: _silent_good(text=box_notices.gpu_back),
    NoticeKind.GPU_HELD: Form(text=box_notices.gpu_held),
    NoticeKind.DISK_LOW: Form(text=box_notices.disk_low),
    NoticeKind.DISK_BACK: _silent_good(text=box_notices.disk_back),
    NoticeKind.BACKUP_FAILING: Form(text=box_notices.backup_failing),
    NoticeKind.BACKUP_BACK: _silent_good(text=box_notices.backup_back),
    NoticeKind.NO_RUNNER: Form(text=box_notices.no_runner),
    NoticeKind.RUNNER_BACK: _silent_good(text=box_notices.runner_back),
    NoticeKind.NEW_QUEUE: Form(text=box_notices.new_queue),
    NoticeKind.QUEUE_RESTORED: Form(text=box_notices.queue_restored),
}  # fmt: skip


def form_of(payload: notices.Payload | notices.Unknown) -> Form | None:
    """Return how a notice is told; None for one that this version cannot read."""
    return FORMS.get(payload.kind) if isinstance(payload.kind, NoticeKind) else None
