"""How long earlier jobs took that are like those still to come, found by index."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from runner import clock
from runner.forecast.estimates import agree, length_of
from runner.forecast.simulation import Rest
from runner.schedule.request import request_in
from runner.store.connection import marks

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from runner.forecast.simulation import Length
    from runner.store.connection import Store

RUNS = 15  # at most this many of the latest runs of a kind are used
DISTINCT = 300  # of the jobs that are only summed up, this many kinds are looked up by command


class Known(NamedTuple):
    """What is known about how long a job takes: earlier runs, how they are like it, and its time limit."""

    past_s: tuple[float, ...] = ()
    like: str = ""
    limit_s: float | None = None
    ran_s: float = 0.0  # so far

    @property
    def length(self) -> Length:
        """Return how long the rest of the job takes."""
        return length_of(self.past_s, self.limit_s, self.ran_s)


class Durations:
    """Durations of earlier runs. Caches them as long as this object lives."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: dict[tuple[str, str], tuple[float, ...]] = {}

    def of(self, job_ids: Collection[int]) -> dict[int, Known]:
        """Return what is known about each of these jobs."""
        rows = self._store.rows(
            f"SELECT id, kind, shape, lane, started_at FROM jobs WHERE id IN ({marks(job_ids)})",
            tuple(job_ids),
        )
        now = clock.now()
        return {row["id"]: self._known(row)._replace(ran_s=_so_far_s(row["started_at"], now)) for row in rows}

    def of_the_rest(self, but: Collection[int]) -> list[Rest]:
        """Return all ready jobs except these, summed up by lane and kind."""
        rows = self._store.rows(
            "SELECT kind, shape, lane, count(*) AS count FROM jobs WHERE state = 'QUEUED' AND ready = 1"
            " GROUP BY lane, kind, shape"
        )
        seen = self._store.rows(
            f"SELECT kind, shape, lane, count(*) AS count FROM jobs WHERE id IN ({marks(but)})"
            " AND state = 'QUEUED' AND ready = 1 GROUP BY lane, kind, shape",
            tuple(but),
        )
        looked_at = {(row["lane"], row["kind"], row["shape"]): row["count"] for row in seen}
        found = []
        for number, row in enumerate(rows):
            count = row["count"] - looked_at.get((row["lane"], row["kind"], row["shape"]), 0)
            if count:
                request = request_in(row["lane"])
                found.append(Rest(count, request.gpus, self._known(row, closely=number < DISTINCT).length))
        return found

    def _known(self, row: Any, *, closely: bool = True) -> Known:
        """Look for runs of the same kind, then of its group, then of the same program; the last two must agree."""
        request = request_in(row["lane"])
        if closely and (past := self._past("kind", row["kind"])):
            return Known(past, "of the same command", request.limit_s)
        if request.group is not None and agree(past := self._past("group_name", request.group)):
            return Known(past, f"of {request.group}", request.limit_s)
        if agree(past := self._past("shape", row["shape"])):
            return Known(past, "of the same program", request.limit_s)
        return Known(limit_s=request.limit_s)

    def _past(self, column: str, value: str | None) -> tuple[float, ...]:
        if value is None:
            return ()
        if (column, value) not in self._found:
            rows = self._store.rows(_PAST[column], (value, RUNS))
            self._found[column, value] = tuple(_seconds(row) for row in rows if row["started_at"])
        return self._found[column, value]


_PAST = {
    column: f"SELECT started_at, finished_at FROM jobs INDEXED BY {index}"
    f" WHERE {column} = ? AND state = 'SUCCEEDED' ORDER BY finished_at DESC LIMIT ?"
    for column, index in (("kind", "jobs_of_kind"), ("shape", "jobs_of_shape"), ("group_name", "jobs_of_group_done"))
}


def _seconds(row: Sequence[str]) -> float:
    began, ended = (datetime.fromisoformat(stored) for stored in row)
    return max(0.0, (ended - began).total_seconds())


def _so_far_s(started_at: str | None, now: datetime) -> float:
    began = clock.moment(started_at)
    return max(0.0, (now - began).total_seconds()) if began else 0.0
