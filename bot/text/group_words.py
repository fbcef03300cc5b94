"""Short messages about groups of jobs, with tables narrow enough for a phone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.text.box_notices import NoticeContext
from bot.text.html import CAPTION_UNITS, MESSAGE_UNITS, bold, escape, fit, pre, printable, shorten
from bot.text.job_words import called, counted, numbered
from runner.api.chat import clock, format_duration
from runner.api.groups import best_words, count_words
from runner.model import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.api.groups import Results, Standing
    from runner.model import Job
    from runner.notices import GroupDone

WIDTH = 34  # of a phone, in monospace characters
ROWS, ROWS_BELOW_A_PICTURE = 25, 8
_WIDEST, _NARROWEST = 12, 4
_BAD = (State.FAILED, State.LOST)
_STATES = {
    State.QUEUED: "waits",
    State.STARTING: "runs",
    State.RUNNING: "runs",
    State.SUCCEEDED: "done",
    State.FAILED: "failed",
    State.CANCELLED: "stopped",
    State.LOST: "lost",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupContext(NoticeContext):
    """The results of a group that is done. `standing` is None if the group is no longer stored."""

    results: Results
    standing: Standing | None = None


def queued(name: str, ids: Sequence[int], at_most: int | None, reason: str | None, *, again: bool = False) -> str:
    """Say that a group's jobs are queued."""
    limit = f", at most {at_most} at once" if at_most else ""
    why = f"\n{escape(reason)}" if reason else ""
    how = "queued again" if again else "queued"
    return f"⏳ {bold(name)}: {counted(len(ids), 'job')} {how}, {numbered(ids)}{limit}{why}"


def status(standing: Standing, results: Results, *, below_a_picture: bool = False) -> str:
    """Say how far a group is and which job is best, with a table of its jobs."""
    head = _headline(standing)
    if best := best_words(results):
        head += f"\n{escape(best)}"
    elif results.metric:
        head += f"\nno job has printed {escape(results.metric.name)} so far"
    if results.trouble:
        head += f"\n⚠️ {escape(results.trouble)}"
    most = ROWS_BELOW_A_PICTURE if below_a_picture else ROWS
    more = f"\n… and {len(results.rows) - most:,} more" if len(results.rows) > most else ""
    shown = pre(table(results, most)) if results.rows else ""
    return fit([f"{head}\n{shown}{more}"], *([CAPTION_UNITS] if below_a_picture else []))


def card(standing: Standing, running: Sequence[str]) -> str:
    """Say how far a group is, with a line or two about each of these running jobs."""
    others = sum(count for state, count in standing.counts.items() if state.live) - len(running)
    more = [f"… and {others:,} more"] if others > 0 else []
    return fit(["\n".join([_headline(standing), *running, *more])])


def listed(standings: Sequence[Standing]) -> str:
    """List these groups, one line each."""
    if not standings:
        return "There are no groups yet. /sweep makes one, and so does `/submit --group NAME …`"
    return fit(["\n".join([*map(_headline, standings), "", "`/group NAME` shows one of them."])])


def _headline(standing: Standing) -> str:
    name = standing.group.name
    return f"{_sign(standing.counts)} {bold(name)}{escape(standing.line.removeprefix(name))}"


def _sign(counts: Mapping[State, int]) -> str:
    if any(count for state, count in counts.items() if state.live):
        return "▶️"
    if counts.get(State.QUEUED):
        return "⏳"
    if any(counts.get(state) for state in _BAD):
        return "❌"
    return "✅" if counts.get(State.SUCCEEDED) else "⏹"


def done(notice: GroupDone, context: GroupContext, limit: int = MESSAGE_UNITS) -> str:
    """Say that all jobs of a group have ended, how, and after how long."""
    counts = {State(state): count for state, count in notice.counts.items()}
    summary, total = count_words(counts), sum(notice.in_all.values())
    if total > sum(counts.values()):
        summary += f" ({notice.in_all.get(State.SUCCEEDED.value, 0):,} of {total:,} in all)"
    results = context.results
    parts = [part for part in (summary, best_words(results), results.trouble, _duration(notice)) if part]
    return fit(
        [f"{_sign(counts)} {bold(notice.group)} is done on {escape(context.box)}: {escape(', '.join(parts))}"], limit
    )


def done_caption(notice: GroupDone, context: GroupContext) -> str:
    """Return the same as the caption of a picture of the results."""
    return done(notice, context, CAPTION_UNITS)


def _duration(notice: GroupDone) -> str:
    since, until = clock.moment(notice.since), clock.moment(notice.until)
    return format_duration((until - since).total_seconds()) if since and until else ""


def table(results: Results, most: int) -> str:
    """Return the first `most` jobs in columns that fit a phone: number, varied parameters, result."""
    rows, names = results.rows[:most], results.varied or results.names
    came = [_came(row.job, row.value.text if row.value else "", metric=bool(results.metric)) for row in rows]
    ids = [f"#{row.job.id}" for row in rows]
    values = [[printable(row.job.spec.parameters.get(name, "–")) for row in rows] for name in names]
    headed = [[name, *column] for name, column in zip(names, values, strict=True)]
    if not names:
        headed = [["", *(called(row.job) for row in rows)]]
    last = [results.metric.name if results.metric else "", *came]
    ends = [["", *ids], [shorten(cell, _WIDEST) for cell in last]]
    while len(headed) > 1 and _width(ends) + len(headed) * (_NARROWEST + 1) > WIDTH:
        headed.pop()  # the CSV has all of them
    widest = max((WIDTH - _width(ends)) // len(headed) - 1, _NARROWEST)
    middle = [[shorten(cell, widest) for cell in column] for column in headed]
    return _in_columns([ends[0], *middle, ends[1]])


def _came(job: Job, number: str, *, metric: bool) -> str:
    if number:
        number = shorten(number, _WIDEST - 2)
        return f"{number} …" if job.state.live else number if job.state is State.SUCCEEDED else f"{number} !"
    return "–" if metric and job.state is State.SUCCEEDED else _STATES[job.state]


def _width(columns: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 1 for column in columns) - 1


def _in_columns(columns: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in columns]
    lines = [
        " ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in zip(*columns, strict=True)
    ]
    return "\n".join(lines if lines[0] else lines[1:])
