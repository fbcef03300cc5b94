"""Notices about one job, as HTML for Telegram."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from bot.text import job_words
from bot.text.box_notices import NoticeContext
from bot.text.html import CAPTION_UNITS, MESSAGE_UNITS, Shrink, bold, code, escape, fit, link, local_time, pre
from bot.text.job_words import command_line, heading
from bot.text.log_excerpt import folded
from runner.api.chat import clock, end_words, format_duration, signal_name
from runner.model import Memory, Reason, State
from runner.notices import AttemptEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runner.model import Job
    from runner.notices import (
        BadMetric,
        Ended,
        IdleWarning,
        LooksHung,
        Notice,
        Requeued,
        Started,
        TimeWarning,
        TrialFailed,
    )

UNLESS_KEPT, UNLESS_EXTENDED = "unless it is kept or works again", "unless it is extended"
_STOP = re.compile(rf"(?: and|\nIt) will be stopped [^\n]*(?:{UNLESS_KEPT}|{UNLESS_EXTENDED})")
_SIGNALS = {4: "illegal instruction", 6: "it aborted", 7: "bus error", 8: "arithmetic error", 11: "segmentation fault"}


class JobOutput(NamedTuple):
    """What to show of an ended job's output. A job stopped by a watchdog has the watchdog's evidence instead."""

    excerpt: str = ""
    wandb: str | None = None
    evidence: Mapping[str, Any] | None = None


NO_OUTPUT = JobOutput()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext(NoticeContext):
    """The job that a notice is about, without its secrets."""

    job: Job
    quoted: bool = False  # the message is a reply to one that has the command
    output: JobOutput = NO_OUTPUT
    probe: str | None = None  # how the batch of the attempt was found
    progress: str = ""  # how far an ended job came, with its last metrics

    @property
    def is_live(self) -> bool:
        """Return whether the job has neither ended nor been stopped."""
        return not self.job.state.final and self.job.stop is None


def started(start: Started, context: JobContext) -> str:
    """Say that a job has started. Leave out its command if this message replies to one that shows it."""
    job = context.job
    where = job_words.gpu_names(start.gpus, context.indices) or "no GPU"
    again = f" · attempt {start.attempt}" if start.attempt > 1 else ""
    batch = start.probe or (f"batch {job.batch_size}" if job.batch_size else "")
    lines = [f"▶️ {heading(job)} started on {escape(context.box)} · {where}{again}", escape(batch)]
    return fit(["\n".join(line for line in [*lines, "" if context.quoted else command_line(job)] if line)])


# -- the end of a job or of an attempt ---------------------------------------------------------------


def ended(
    end: Ended, context: JobContext, *, limit: int = MESSAGE_UNITS, show: Callable[[str], str] = folded,
) -> str:  # fmt: skip
    """Say how a job ended, where and after how long, with the part of its output that says why."""
    by = end.by or (context.job.stop.by if context.job.stop else None)
    first = _first_line(heading(context.job), end, context.box, context.name_of(by) if by else None)
    return _with_output(first, end, context, limit, show)


def _with_output(
    first: str, end: AttemptEnd, context: JobContext, limit: int = MESSAGE_UNITS, show: Callable[[str], str] = pre
) -> str:
    """Return a first line about the end of an attempt, what it used, and the part of its output that says why."""
    job, output = context.job, context.output
    used = [
        job_words.gpu_names(end.gpus, context.indices),
        job_words.usage_words(end.usage, None if context.probe else job.batch_size, memory=not context.probe),
    ]
    lines = [first, escape(context.progress), command_line(job), escape(" · ".join(part for part in used if part))]
    lines.append(escape(context.probe or ""))
    lines.append(link("📈 wandb", output.wandb) if output.wandb else "")
    parts: list[str | Shrink] = ["\n".join(line for line in lines if line)]
    if output.excerpt.strip():
        parts += ["\n", Shrink(output.excerpt, show, keep="end", at_least=300)]
    return fit(parts, limit)


def ended_caption(end: Ended, context: JobContext) -> str:
    """Return the same as the caption of a picture, which shows the evidence."""
    why = str((context.output.evidence or {}).get("why", ""))
    context = replace(context, output=context.output._replace(excerpt=why))
    return ended(end, context, limit=CAPTION_UNITS, show=escape)


def _first_line(which: str, end: AttemptEnd, box: str, by: str | None) -> str:
    """Return the line that a lock screen shows: which job, how it ended, where, after how long, why."""
    how, why = ending(end, by)
    line = f"{job_words.SIGNS[end.state]} {which} {escape(how)} on {escape(box)}"
    if end.duration_s is not None and end.reason is not Reason.SPAWN:
        line += f" after {'about ' if end.duration_about else ''}{format_duration(end.duration_s)}"
    elif not end.attempt:
        line += " before it started"
    again = f"attempt {end.attempt}" if (end.attempt or 1) > 1 else ""
    return " · ".join([line, *(escape(part) for part in (why, again) if part)])


def ending(end: AttemptEnd, by: str | None) -> tuple[str, str]:
    """Return how it ended, as a verb and a reason, which may be empty. `by` is the person who stopped it."""
    if end.state is State.SUCCEEDED:
        return "finished", ""
    if end.reason is Reason.EXIT:
        return "failed", f"exit {end.exit_code}"
    if end.reason is Reason.SIGNAL:
        return _signalled(end.signal)
    if end.reason is Reason.USER:
        verb = "stopped" if end.attempt else "cancelled"
        return f"{verb} by {by}" if by else verb, ""
    if end.reason is Reason.SPAWN:
        return "could not start", end.why or ""
    verb, why = end_words(end.reason, end.memory)
    if end.reason is Reason.DEPENDENCY and (end.by or "").startswith("#"):
        why = f"it depends on {end.by}, which did not succeed"
    return verb, end.why if end.state is State.LOST and end.why else why


def _signalled(number: int | None) -> tuple[str, str]:
    name = signal_name(number)
    if name == "SIGKILL":
        return "was killed", f"SIGKILL, perhaps because {Memory.HOST.ran_out}"
    return "crashed", f"{name}, {_SIGNALS[number]}" if number in _SIGNALS else name


def cancelled(notices: Sequence[Notice], context: NoticeContext) -> str:
    """Say that many jobs were cancelled at once, before they started."""
    numbers = [notice.job_id for notice in notices if notice.job_id is not None]
    first = notices[0].payload
    by = f" by {escape(context.name_of(first.by))}" if isinstance(first, AttemptEnd) and first.by else ""
    head = f"⏹ {len(numbers)} jobs cancelled{by} on {escape(context.box)} before they started"
    return f"{head}: {job_words.numbered(numbers)}"


def requeued(end: Requeued, context: JobContext) -> str:
    """Say that a job is queued again after an attempt, and why."""
    verb, how = ending(replace(end, why=None), None) if end.wait_s is not None else ("", "")
    why = " · ".join(part for part in (how or verb, end.why or "") if part)
    first = f"🔁 {heading(context.job)} is queued again on {escape(context.box)} · {escape(why)}\n"
    rest = "\nThe next message comes when the job ends." if end.wait_s else ""
    return fit([first, command_line(context.job), rest])


def trial_failed(end: TrialFailed, context: JobContext) -> str:
    """Say how the trial of a job failed, with the part of its output that says why, and that the job is held."""
    first = f"{_first_line(heading(context.job), end, context.box, None)} · in its trial"
    release = code(f"/release {context.job.id}")
    held = f"It keeps its place, and is held until somebody releases it: {release} tries it again."
    return _with_output(f"{first}\n{held}" if context.job.held_by else first, end, context)


def in_few_words(notice: Notice, box: str) -> str:
    """Describe a notice briefly, for when its job is gone, its kind is unknown, or its full text cannot be written."""
    which = bold(f"#{notice.job_id}") if notice.job_id is not None else ""
    if isinstance(notice.payload, AttemptEnd):
        return fit([_first_line(which, notice.payload, box, notice.payload.by)])
    return fit([f"{bold(box)}{f' {which}' if which else ''}: {escape(str(notice.payload.kind))}"])


# -- warnings --------------------------------------------------------------------------------------


def answered(html: str) -> str:
    """Return the warning without its announced stop, for a job that somebody has kept or extended."""
    return _STOP.sub("", html).replace("has almost reached", "had almost reached")


def idle_warning(warning: IdleWarning, context: JobContext) -> str:
    """Warn that a job's GPUs are idle and that it will be stopped."""
    samples = Shrink(warning.text or warning.why, pre, keep="end", at_least=200)
    return fit([_is_idle(warning, context), samples])


def idle_caption(warning: IdleWarning, context: JobContext) -> str:
    """Return the same warning as the caption of a picture, which shows the samples."""
    return fit([_is_idle(warning, context), escape(warning.why)], CAPTION_UNITS)


def _is_idle(warning: IdleWarning, context: JobContext) -> str:
    stop = f"{_will_be_stopped(warning.stops_at)} {UNLESS_KEPT}"
    return f"💤 {heading(context.job)} on {escape(context.box)} is idle and {stop}\n"


def _will_be_stopped(stops_at: str | None) -> str:
    due = clock.moment(stops_at)
    return f"will be stopped at {local_time(due, f'{due.astimezone():%H:%M:%S}')}" if due else "will be stopped soon"


def time_warning(warning: TimeWarning, context: JobContext) -> str:
    """Warn that a job is close to its time limit."""
    may_be_extended = warning.more_s is None or warning.more_s > 0
    longest, unless = ("", f" {UNLESS_EXTENDED}") if may_be_extended else (", the longest allowed here,", "")
    limit = f"its limit of {format_duration(warning.limit_s)}{longest}"
    if warning.needs_s is None:
        words = f"has almost reached {limit} and {_will_be_stopped(warning.stops_at)}{unless}"
    else:
        needs = f"needs about {format_duration(warning.needs_s)}, has {format_duration(warning.left_s or 0.0)}"
        words = f"will not make {limit.rstrip(',')}: {needs}. It will be stopped{unless}"
    text = f"⏰ {heading(context.job)} on {escape(context.box)} {words}\n"
    return fit([text, command_line(context.job)])


def bad_metric(warning: BadMetric, context: JobContext) -> str:
    """Tell that a job prints a metric that is not a number, or that breaks its rule."""
    where = f" at {warning.where}" if warning.where else ""
    then = f"It is being stopped, as --stop-on {warning.rule} says." if warning.stops else "It goes on."
    text = f"📉 {heading(context.job)} on {escape(context.box)} prints {code(warning.metric)}{where}. {escape(then)}\n"
    return fit([text, command_line(context.job)])


def looks_hung(warning: LooksHung, context: JobContext) -> str:
    """Warn that a job looks hung: its GPUs look busy, but it makes no progress."""
    text = f"🧊 {heading(context.job)} on {escape(context.box)} {escape(warning.why)}\n"
    if warning.stops_at:
        only = " if another job waits for its GPUs," if warning.yields else ""
        text += f"It {_will_be_stopped(warning.stops_at)}{only} {UNLESS_KEPT}\n"
    return fit([text, command_line(context.job)])
