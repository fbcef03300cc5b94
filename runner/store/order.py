"""Holding single jobs, and the order of those that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.request import request_in, request_of
from runner.store.box import Box
from runner.store.line import Line

if TYPE_CHECKING:
    from runner.model import Job
    from runner.request import Request
    from runner.store.connection import Store

FRONT = "front"  # the smallest position given so far
_BEYOND = (1 << 63) - 1


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
        first = min(0, int(self._box.get(FRONT, 0))) - 1
        self._box.set(FRONT, first)
        self._place(job.id, first)
        return True

    def to_back(self, job: Job) -> bool:
        """Behind all others of its owner and priority, held ones too; False if it is there already."""
        last = max(self._between(job, job.position, _BEYOND))
        return self._put(job, last[1], (job.position, last[0]), after=True)

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
        ends = min(job.position, other.position), max(job.position, other.position)
        return self._put(job, other.id, ends, after=after)

    def _put(self, job: Job, other: int, ends: tuple[int, int], *, after: bool) -> bool:
        """Those between the two move up by one place each, so that no place is ever held twice."""
        between = sorted(self._between(job, *ends))
        order = [number for _, number in between]
        others = [number for number in order if number != job.id]
        at = others.index(other) + after if others else 0
        wanted = [*others[:at], job.id, *others[at:]]
        for (position, number), new in zip(between, wanted, strict=True):
            if number != new:
                self._place(new, position)
        return wanted != order

    def _swap(self, job: Job, other: tuple[int, int] | None) -> int | None:
        if other is None:
            return None
        position, number = other
        self._place(job.id, position)
        self._place(number, job.position)
        return number

    def _nearest(self, job: Job, side: str, direction: str) -> list[tuple[int, int]]:
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

    def _nearest_kept_back(self, job: Job, side: str, direction: str) -> list[tuple[int, int]]:
        """The nearest on that side that is held, waits for others or for its time; none or one."""
        rows = self._store.rows(
            "SELECT position, id, lane FROM jobs WHERE state = 'QUEUED' AND ready = 0 AND rank = ?"  # noqa: S608
            f" AND position {side} ? ORDER BY position {direction}",
            (-job.spec.priority.rank, job.position),
        )
        return [(row["position"], row["id"]) for row in rows if _compares(request_in(row["lane"]), job)][:1]

    def _between(self, job: Job, first: int, last: int) -> list[tuple[int, int]]:
        """Position and number of all that compare with it from one place to another, held ones too."""
        rank, rows = -job.spec.priority.rank, []
        for lane in self._line.lanes():
            if _compares(request_in(lane), job):
                rows += self._store.rows(
                    "SELECT position, id FROM jobs WHERE state = 'QUEUED' AND ready = 1 AND lane = ? AND rank = ?"
                    " AND position BETWEEN ? AND ?",
                    (lane, rank, first, last),
                )
        kept_back = self._store.rows(
            "SELECT position, id, lane FROM jobs WHERE state = 'QUEUED' AND ready = 0 AND rank = ?"
            " AND position BETWEEN ? AND ?",
            (rank, first, last),
        )
        rows += [row for row in kept_back if _compares(request_in(row["lane"]), job)]
        return [(row["position"], row["id"]) for row in rows]

    def _place(self, job_id: int, position: int) -> None:
        self._store.execute("UPDATE jobs SET position = ? WHERE id = ?", (position, job_id))


def _compares(request: Request, job: Job) -> bool:
    """Places count among one person's jobs of one level."""
    return request.owner == job.spec.owner and request.level == request_of(job.spec).level
