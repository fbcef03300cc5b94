"""Hold and release single jobs, and change the order of queued ones."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from runner.schedule.request import request_in, request_of
from runner.store.box import Box, BoxKey
from runner.store.connection import Table
from runner.store.scheduling_queries import Line

if TYPE_CHECKING:
    from runner.model import Job
    from runner.schedule.request import Request
    from runner.store.connection import Store

AROUND = 64  # jobs on each side that are spread out if there is no room between two
TOO_NARROW = 1e-6
_FROM = "FROM jobs INDEXED BY jobs_in_order WHERE state IN ('QUEUED', 'STARTING', 'RUNNING') AND position"
_LOWER = f"SELECT id, position {_FROM} <= ? ORDER BY position DESC LIMIT ?"
_UPPER = f"SELECT id, position {_FROM} > ? ORDER BY position LIMIT ?"


class OrderTable(Table):
    """Holds, releases and moves queued jobs, within the caller's transaction."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._box, self._line = Box(store), Line(store)

    def hold(self, job: Job, by: str) -> bool:
        """Keep a queued job from starting. Return False if it is already held or has left the queue."""
        sql = "UPDATE jobs SET held_by = ?, ready = 0 WHERE id = ? AND state = 'QUEUED' AND held_by IS NULL"
        return bool(self._store.execute(sql, (by, job.id)).rowcount)

    def release(self, job: Job) -> bool:
        """Release a held job; it keeps its position. Return False if it is not held."""
        changed = self._store.execute(
            "UPDATE jobs SET held_by = NULL, ready = (blockers = 0 AND begin_at IS NULL)"
            " WHERE id = ? AND state = 'QUEUED' AND held_by IS NOT NULL",
            (job.id,),
        ).rowcount
        return bool(changed)

    def to_front(self, job: Job) -> bool:
        """Move a job before all others of its owner and priority, held ones too. Return False if none is before it."""
        if self._neighbour(job, job.position, after=False) is None:
            return False
        first = self._beginning()
        self._box.set(BoxKey.FRONT, first)
        self._place(job.id, first)
        return True

    def to_back(self, job: Job) -> bool:
        """Move a job behind all others of its owner and priority, held ones too. Return False if it is already last."""
        last = self._neighbour(job, self._end(), after=False)
        if last is None or last[1] == job.id:
            return False
        self._place(job.id, self._beside(last[1], after=True))
        return True

    def move_up(self, job: Job) -> int | None:
        """Swap positions with the job before it, of the same owner and priority. Return that job's number, or None.

        A ready job skips jobs that may not start yet, unless there are only such jobs before it.
        """
        return self._swap(job, after=False)

    def move_down(self, job: Job) -> int | None:
        """Swap positions with the job behind it, like `move_up`. Return that job's number, or None."""
        return self._swap(job, after=True)

    def put_beside(self, job: Job, other: Job, *, after: bool) -> bool:
        """Move a job right before or after another of its owner and priority. Return False if it is already there."""
        beside = self._neighbour(job, other.position, after=after)
        if beside is not None and beside[1] == job.id:
            return False
        self._place(job.id, self._beside(other.id, after=after))
        return True

    # -- positions -----------------------------------------------------------------------------------

    def _beside(self, job_id: int, *, after: bool) -> float:
        """Return a free position right before or after this job: the middle of the gap to the next job.

        So a move writes one row. If the gap is too narrow, the jobs around it are spread out first.
        """
        for around in (AROUND, 8 * AROUND, 64 * AROUND):
            at = float(self._store.value("SELECT position FROM jobs WHERE id = ?", (job_id,)))
            low, high = (at, self._following(at)) if after else (self._preceding(at), at)
            if high - low > TOO_NARROW:
                return (low + high) / 2
            self._spread(at, around)
        raise AssertionError(f"no room beside job {job_id}")

    def _following(self, position: float) -> float:
        following = self._store.value(f"SELECT min(position) {_FROM} > ?", (position,))
        return float(self._end() if following is None else following)

    def _preceding(self, position: float) -> float:
        preceding = self._store.value(f"SELECT max(position) {_FROM} < ?", (position,))
        return float(self._beginning() if preceding is None else preceding)

    def _beginning(self) -> int:
        """Return the position for the next job that is moved to the front."""
        return min(0, int(self._box.get(BoxKey.FRONT, 0))) - 1

    def _end(self) -> int:
        """Return the position of the next job that is submitted."""
        return 1 + int(self._store.value("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'"))

    def _spread(self, position: float, around: int) -> None:
        """Space the jobs around a position evenly. On a side with `around` jobs, the outermost one stays."""
        lower, upper = self._store.rows(_LOWER, (position, around)), self._store.rows(_UPPER, (position, around))
        low = lower.pop()["position"] if len(lower) == around else self._beginning()
        high = upper.pop()["position"] if len(upper) == around else self._end()
        numbers = [row["id"] for row in (*reversed(lower), *upper)]
        step = (high - low) / (len(numbers) + 1)
        for place, number in enumerate(numbers, 1):
            self._place(number, low + place * step)

    def _swap(self, job: Job, *, after: bool) -> int | None:
        is_ready = self._store.value("SELECT ready FROM jobs WHERE id = ?", (job.id,))
        other = self._neighbour(job, job.position, after=after, prefer_ready=is_ready)
        if other is None:
            return None
        position, number = other
        self._place(job.id, position)
        self._place(number, job.position)
        return number

    def _neighbour(
        self, job: Job, position: float, *, after: bool, prefer_ready: bool = False
    ) -> tuple[float, int] | None:
        """Return position and number of the next comparable job on that side of a position; None if there is none.

        `prefer_ready`: leave out jobs that may not start yet, unless there are only such jobs.
        """
        beyond = "AND position > ? ORDER BY position" if after else "AND position < ? ORDER BY position DESC"
        nearest, values = min if after else max, (-job.spec.priority.rank, position)
        ready = [
            self._store.row(
                "SELECT position, id FROM jobs WHERE state = 'QUEUED' AND ready = 1 AND lane = ? AND rank = ?"
                f" {beyond} LIMIT 1",  # one index seek for each lane
                (lane, *values),
            )
            for lane in self._line.lanes()
            if _compares(request_in(lane), job)
        ]
        neighbours = [(row["position"], row["id"]) for row in ready if row]
        if not neighbours or not prefer_ready:
            not_ready = "SELECT position, id, lane FROM jobs WHERE state = 'QUEUED' AND ready = 0 AND rank = ?"
            rows = self._store.execute(f"{not_ready} {beyond}", values)
            comparable = ((row["position"], row["id"]) for row in rows if _compares(request_in(row["lane"]), job))
            neighbours += islice(comparable, 1)
        return nearest(neighbours, default=None)

    def _place(self, job_id: int, position: float) -> None:
        self._store.execute("UPDATE jobs SET position = ? WHERE id = ?", (position, job_id))


def _compares(request: Request, job: Job) -> bool:
    """Return whether positions are comparable: same owner, same priority, and both or neither preemptible."""
    return request.owner == job.spec.owner and request.priority == request_of(job.spec).priority
