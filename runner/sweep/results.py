"""The results of a group's jobs, the best first. Pure."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, NamedTuple

from runner import clock
from runner.model import LIVE_STATES, State
from runner.sweep.sweeps import as_number
from runner.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from runner.model import Job
    from runner.sweep.metrics import Metric, MetricValue

FAILED = (State.FAILED, State.LOST)


class Result(NamedTuple):
    """One job of a group, and the number it printed."""

    job: Job
    value: MetricValue | None = None

    @property
    def number(self) -> float | None:
        """Return the number to compare it by, or None."""
        return self.value.number if self.value else None


class Results(NamedTuple):
    """All results, the best first, those without a number last."""

    rows: tuple[Result, ...]
    metric: Metric | None
    trouble: str = ""  # why numbers may be missing

    @property
    def best(self) -> Result | None:
        """Return the best job that has succeeded. If none has, return the best one so far."""
        measured = [row for row in self.rows if row.number is not None]
        return next((row for row in measured if row.job.state is State.SUCCEEDED), measured[0] if measured else None)

    @property
    def names(self) -> list[str]:
        """Return the names of the parameters, in the order they were given."""
        return list(dict.fromkeys(name for row in self.rows for name in row.job.spec.parameters))

    @property
    def varied(self) -> list[str]:
        """Return the names of the parameters that have more than one value."""
        return [name for name in self.names if len({row.job.spec.parameters.get(name) for row in self.rows}) > 1]


def compared(
    jobs: Iterable[Job], values: Mapping[int, MetricValue], metric: Metric | None, trouble: str = ""
) -> Results:
    """Sort jobs by their number, the best first. `trouble` says why numbers may be missing."""
    rows = sorted((Result(job, values.get(job.id)) for job in jobs), key=lambda row: row.job.id)
    if metric:
        sign = -1 if metric.largest else 1
        rows.sort(key=lambda row: _order(row, sign))
    return Results(tuple(rows), metric, trouble)


def _order(row: Result, sign: int) -> tuple[float, ...]:
    """Return the sort key: jobs with a number first; of the others running ones first, waiting ones last."""
    if row.number is not None:
        return 0, sign * row.number
    return 1, not row.job.state.live, row.job.state is State.QUEUED


def best_words(results: Results) -> str:
    """Return `best val_loss 0.31 with lr=1e-3 bs=64`, or "" if there is no best."""
    best = results.best
    if best is None or best.value is None or results.metric is None:
        return ""
    parameters = best.job.spec.parameters
    names = results.varied or list(parameters)
    values = " ".join(f"{name}={parameters[name]}" for name in names if name in parameters)
    return f"best {results.metric.name} {best.value.text} with {values or f'#{best.job.id}'}"


def count_words(counts: Mapping[State, int]) -> str:
    """Return how many jobs have ended and how: `8 succeeded, 1 failed`."""
    ends = {"succeeded": (State.SUCCEEDED,), "failed": FAILED, "stopped": (State.CANCELLED,)}
    return ", ".join(_counted({word: _count(counts, *states) for word, states in ends.items()})) or "nothing"


def _count(counts: Mapping[State, int], *states: State) -> int:
    return sum(counts.get(state, 0) for state in states)


def _counted(counts: Mapping[str, int]) -> list[str]:
    return [f"{count:,} {word}" for word, count in counts.items() if count]


def status_words(counts: Mapping[State, int], left_s: float | None = None, in_vain: int = 0) -> str:
    """Return `4 of 9 done, 1 failed, 2 running, 2 waiting, about 2h 10m left`.

    `in_vain`: jobs cancelled because a job they depended on did not succeed.
    """
    total, done = sum(counts.values()), counts.get(State.SUCCEEDED, 0)
    parts = [f"{'all' if done == total else f'{done:,} of'} {total:,} done" if total > 1 or not done else "done"]
    rest = {
        "failed": _count(counts, *FAILED),
        "cancelled by dependency": in_vain,
        "stopped": _count(counts, State.CANCELLED) - in_vain,
        "running": _count(counts, *LIVE_STATES),
        "waiting": _count(counts, State.QUEUED),
    }
    parts += _counted(rest)
    parts += [f"about {format_duration(left_s)} left"] if left_s is not None else []
    return ", ".join(parts)


def ran_s(job: Job, now: datetime) -> float | None:
    """Return how many seconds it has run, or None if it never started."""
    return ((job.finished_at or now) - job.started_at).total_seconds() if job.started_at else None


_FORMULA = ("=", "+", "-", "@", "\t", "\n")


def _cell(value: object) -> object:
    """Return a value that a spreadsheet takes as text: put an apostrophe before what looks like a formula."""
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")  # the writer does not quote a lone \r, which ends the row
    return f"'{text}" if text.startswith(_FORMULA) and as_number(text) is None else text


def as_csv(results: Results) -> str:
    """Return a CSV table for a spreadsheet, with one row per job."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    metric = [results.metric.name] if results.metric else []
    more = ["state", "reason", "exit_code", "started_at", "finished_at", "seconds", "command"]
    writer.writerow(map(_cell, ["job", *results.names, *metric, *more]))
    now = clock.now()
    for row in results.rows:
        job, seconds = row.job, ran_s(row.job, now)
        values = [job.spec.parameters.get(name, "") for name in results.names]
        number = [row.value.text if row.value else ""] if metric else []
        moments = [clock.text(at) if at else "" for at in (job.started_at, job.finished_at)]
        reason, code = job.reason.value if job.reason else "", "" if job.exit_code is None else job.exit_code
        taken = "" if seconds is None else f"{seconds:.1f}"
        row_of = [job.id, *values, *number, job.state.value, reason, code, *moments, taken, job.spec.command]
        writer.writerow(map(_cell, row_of))
    return text.getvalue()


def plotted(results: Results, most: int) -> dict[str, Any] | None:
    """Return data for a plot: the metric over the numeric parameter with the most values, coloured by another one.

    None: there are fewer than two points.
    """
    points = [row for row in results.rows if row.number is not None][:most]
    if results.metric is None or len(points) < 2:
        return None
    numeric = [name for name in results.varied if all(_at(row, name) is not None for row in points)]
    over = max(numeric, key=lambda name: len({_at(row, name) for row in points}), default=None)
    shade = _shade(results.varied, points, over)
    shades = list(dict.fromkeys(row.job.spec.parameters.get(shade, "") for row in points)) if shade else []
    at = [(_at(row, over) if over else float(rank)) or 0.0 for rank, row in enumerate(points, 1)]
    best = results.best
    return {
        "results": [
            [x, row.number, shades.index(row.job.spec.parameters.get(shade, "")) if shade else 0]
            for x, row in zip(at, points, strict=True)
        ],
        "best": next((at for at, row in enumerate(points) if best and row.job.id == best.job.id), None),
        "over": over or "rank",
        "logarithmic": bool(over) and min(at) > 0 and max(at) / min(at) >= 30,
        "metric": results.metric.name,
        "largest": results.metric.largest,
        "shades": [f"{shade}={value}" for value in shades],
    }


def _at(row: Result, name: str) -> float | None:
    return as_number(row.job.spec.parameters.get(name, ""))


MOST_SHADES = 4


def _shade(varied: Sequence[str], points: Sequence[Result], over: str | None) -> str | None:
    """Return the parameter with the most values that colours can still show, or None."""
    counts = {name: len({row.job.spec.parameters.get(name) for row in points}) for name in varied if name != over}
    few = {name: count for name, count in counts.items() if 1 < count <= MOST_SHADES}
    return max(few, key=lambda name: few[name], default=None)
