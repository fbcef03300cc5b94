"""Short messages about groups of jobs, with tables narrow enough for a phone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bot.telegram_html import CAPTION_UNITS, bold, escape, fit, pre, printable, shorten
from bot.text.job_words import called, numbered
from runner.api.chat import clock, format_duration
from runner.api.groups import best_words, count_words
from runner.model import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.api.groups import Results, Standing
    from runner.model import Job

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


def queued(name: str, ids: Sequence[int], at_most: int | None, reason: str | None, *, again: bool = False) -> str:
    """Say that a group's jobs are queued."""
    limit = f", at most {at_most} at once" if at_most else ""
    why = f"\n{escape(reason)}" if reason else ""
    how = "queued again" if again else "queued"
    return f"⏳ {bold(name)}: {len(ids):,} job{'s' if len(ids) != 1 else ''} {how}, {numbered(ids)}{limit}{why}"


def status(standing: Standing, results: Results, *, below_a_picture: bool = False) -> str:
    """Say how far a group is and which job is best, with a table of its jobs."""
    line = standing.line.removeprefix(standing.group.name)
    head = f"{_sign(standing.counts)} {bold(standing.group.name)}{escape(line)}"
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


def listed(found: Sequence[Standing]) -> str:
    """List these groups, one line each."""
    if not found:
        return "There are no groups yet: /sweep makes one, and so does `/submit --group NAME …`"
    lines = [
        f"{_sign(one.counts)} {bold(one.group.name)}{escape(one.line.removeprefix(one.group.name))}" for one in found
    ]
    return fit(["\n".join([*lines, "", "`/group NAME` shows one of them."])])


def _sign(counts: Mapping[State, int]) -> str:
    if any(count for state, count in counts.items() if state.live):
        return "▶️"
    if counts.get(State.QUEUED):
        return "⏳"
    if any(counts.get(state) for state in _BAD):
        return "❌"
    return "✅" if counts.get(State.SUCCEEDED) else "⏹"


def done(data: Mapping[str, Any], box: str, results: Results, limit: int | None = None) -> str:
    """Say that all jobs of a group have ended, how, and after how long."""
    counts = {State(state): int(count) for state, count in data["counts"].items()}
    in_all = {State(state): int(count) for state, count in data["in_all"].items()}
    said = [count_words(counts)]
    if sum(in_all.values()) > sum(counts.values()):
        said[0] += f" ({in_all.get(State.SUCCEEDED, 0):,} of {sum(in_all.values()):,} in all)"
    said += [part for part in (best_words(results), results.trouble, _lasted(data)) if part]
    head = f"{_sign(counts)} {bold(str(data['group']))} is done on {escape(box)}: {escape(', '.join(said))}"
    return fit([head], *([limit] if limit else []))


def _lasted(data: Mapping[str, Any]) -> str:
    since, until = clock.moment(data.get("since")), clock.moment(data.get("until"))
    return format_duration((until - since).total_seconds()) if since and until else ""


def table(results: Results, most: int) -> str:
    """Return the first `most` jobs in columns that fit a phone: number, varied parameters, result."""
    rows, names = results.rows[:most], results.varied or results.names
    came = [_came(row.job, row.reading.text if row.reading else "", metric=bool(results.metric)) for row in rows]
    ids = [f"#{row.job.id}" for row in rows]
    given = [[printable(row.job.spec.parameters.get(name, "–")) for row in rows] for name in names]
    headed = [[name, *values] for name, values in zip(names, given, strict=True)]
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
