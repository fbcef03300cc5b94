"""Holding single jobs, and the order of those that wait."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from runner.schedule.request import request_in, request_of
from runner.store.box import Box
from runner.store.scheduling_queries import Line

if TYPE_CHECKING:
    from runner.model import Job
    from runner.schedule.request import Request
    from runner.store.connection import Store

FRONT = "front"  # the smallest position given so far
AROUND = 64  # how many on each side are spread out where there is no room between two
TOO_NARROW = 1e-6
_FROM = "FROM jobs INDEXED BY jobs_in_order WHERE state IN ('QUEUED', 'STARTING', 'RUNNING') AND position"
_FOLLOWING, _PRECEDING = f"SELECT min(position) {_FROM} > ?", f"SELECT max(position) {_FROM} < ?"
_LOWER = f"SELECT id, position {_FROM} <= ? ORDER BY position DESC LIMIT ?"
_UPPER = f"SELECT id, position {_FROM} > ? ORDER BY position LIMIT ?"


class Order:
    """Moves queued jobs; callers give each change a transaction with what belongs to it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._box, self._line = Box(store), Line(store)

    def hold(self, job: Job, by: str) -> bool:
        """Keep a waiting job from starting; False if it is held already or waits no more."""
        changed = self._store.execute(
            "UPDATE jobs SET held_by = ?, ready = 0 WHERE id = ? AND state = 'QUEUED' AND held_by IS NULL", (by, job.id)
        ).rowcount
        return bool(changed)

    def release(self, job: Job) -> bool:
        """Let a held job start again, at the place it has; False if it is not held."""
        changed = self._store.execute(
            "UPDATE jobs SET held_by = NULL, ready = (blockers = 0 AND begin_at IS NULL)"
            " WHERE id = ? AND state = 'QUEUED' AND held_by IS NOT NULL",
            (job.id,),
        ).rowcount
        return bool(changed)

    def to_front(self, job: Job) -> bool:
        """Before all others of its owner and priority, held ones too; False if no other waits before it."""
        if not self._nearest(job, "<", "DESC"):  # which are those kept back, too, where there are no others
            return False
        first = self._beginning()
        self._box.set(FRONT, first)
        self._place(job.id, first)
        return True

    def to_back(self, job: Job) -> bool:
        """Behind all others of its owner and priority, held ones too; False if it is there already."""
        last = self._neighbour(job, self._end(), after=False)
        if last is None or last[1] == job.id:
            return False
        self._place(job.id, self._beside(last[1], after=True))
        return True

    def move_up(self, job: Job) -> int | None:
        """Change places with the one before it, of its owner and priority; that one's number, or None.

        One that may start passes those that may not, unless there is none other.
        """
        return self._swap(job, max(self._nearest(job, "<", "DESC"), default=None))

    def move_down(self, job: Job) -> int | None:
        """Change places with the one behind it, of its owner and priority; that one's number, or None."""
        return self._swap(job, min(self._nearest(job, ">", "ASC"), default=None))

    def put_beside(self, job: Job, other: Job, *, after: bool) -> bool:
        """Right before or after another of its owner and priority; False if it is there already."""
        beside = self._neighbour(job, other.position, after=after)
        if beside is not None and beside[1] == job.id:
            return False
        self._place(job.id, self._beside(other.id, after=after))
        return True

    # -- places --------------------------------------------------------------------------------------

    def _beside(self, job_id: int, *, after: bool) -> float:
        """A place that nobody has, right before or after this job's, in the middle of what is between it and the next.

        So a move writes one row. Where there is no more room between two, those around them are spread out first.
        """
        for around in (AROUND, 8 * AROUND, 64 * AROUND):
            at = float(self._store.row("SELECT position FROM jobs WHERE id = ?", (job_id,))["position"])
            low, high = (at, self._after(at)) if after else (self._before(at), at)
            if high - low > TOO_NARROW:
                return (low + high) / 2
            self._spread(at, around)
        raise AssertionError(f"no room beside job {job_id}")

    def _after(self, position: float) -> float:
        found = self._store.row(_FOLLOWING, (position,))[0]
        return float(self._end() if found is None else found)

    def _before(self, position: float) -> float:
        found = self._store.row(_PRECEDING, (position,))[0]
        return float(self._beginning() if found is None else found)

    def _beginning(self) -> int:
        """The place of the next job that is put first."""
        return min(0, int(self._box.get(FRONT, 0))) - 1

    def _end(self) -> int:
        """The place of the next job that is submitted."""
        return 1 + int(self._store.row("SELECT seq FROM sqlite_sequence WHERE name = 'jobs'")[0])

    def _spread(self, position: float, around: int) -> None:
        """Give those around a place the same distance from each other; the outermost stay where they are."""
        lower, upper = self._store.rows(_LOWER, (position, around)), self._store.rows(_UPPER, (position, around))
        low = lower.pop()["position"] if len(lower) == around else self._beginning()
        high = upper.pop()["position"] if len(upper) == around else self._end()
        numbers = [row["id"] for row in (*reversed(lower), *upper)]
        step = (high - low) / (len(numbers) + 1)
        for place, number in enumerate(numbers, 1):
            self._place(number, low + place * step)

    def _swap(self, job: Job, other: tuple[float, int] | None) -> int | None:
        if other is None:
            return None
        position, number = other
        self._place(job.id, position)
        self._place(number, job.position)
        return number

    def _nearest(self, job: Job, side: str, direction: str) -> list[tuple[float, int]]:
        """Position and number of the nearest on that side in each lane that may start, by one index seek each.

        Where none of those is there, or the job itself may not start, also of the nearest that may not.
        """
        may_start = self._store.row("SELECT ready FROM jobs WHERE id = ?", (job.id,))["ready"]
        found = [
            self._store.row(
                "SELECT position, id FROM jobs WHERE state = 'QUEUED' AND ready = 1 AND lane = ? AND rank = ?"  # noqa: S608
                f" AND position {side} ? ORDER BY position {direction} LIMIT 1",
                (lane, -job.spec.priority.rank, job.position),
            )
            for lane in self._line.lanes()
            if _compares(request_in(lane), job)
        ]
        nearest = [(row["position"], row["id"]) for row in found if row]
        return nearest if nearest and may_start else nearest + self._nearest_kept_back(job, side, direction)

    def _nearest_kept_back(self, job: Job, side: str, direction: str) -> list[tuple[float, int]]:
        """The nearest on that side that is held, waits for others or for its time; none or one."""
        rows = self._store.rows(
            "SELECT position, id, lane FROM jobs WHERE state = 'QUEUED' AND ready = 0 AND rank = ?"  # noqa: S608
            f" AND position {side} ? ORDER BY position {direction}",
            (-job.spec.priority.rank, job.position),
        )
        return [(row["position"], row["id"]) for row in rows if _compares(request_in(row["lane"]), job)][:1]

    def _neighbour(self, job: Job, position: float, *, after: bool) -> tuple[float, int] | None:
        """Position and number of the next that compares with it on that side of a place, held ones too."""
        side, direction = (">", "ASC") if after else ("<", "DESC")
        found = self._nearest(replace(job, position=position), side, direction)
        kept_back = self._store.execute(
            "SELECT position, id, lane FROM jobs WHERE state = 'QUEUED' AND ready = 0 AND rank = ?"  # noqa: S608
            f" AND position {side} ? ORDER BY position {direction}",
            (-job.spec.priority.rank, position),
        )
        found += [
            (row["position"], row["id"])
            for row in islice((row for row in kept_back if _compares(request_in(row["lane"]), job)), 1)
        ]
        return (min if after else max)(found, default=None)

    def _place(self, job_id: int, position: float) -> None:
        self._store.execute("UPDATE jobs SET position = ? WHERE id = ?", (position, job_id))


def _compares(request: Request, job: Job) -> bool:
    """Places count among one person's jobs of one level."""
    return request.owner == job.spec.owner and request.level == request_of(job.spec).level
