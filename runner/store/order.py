"""Holding single jobs, and the order of those that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.request import request_in
from runner.store.box import Box
from runner.store.line import Line

if TYPE_CHECKING:
    from runner.model import Job
    from runner.store.connection import Store

FRONT = "front"  # the smallest position given so far


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
        if not self._before(job):
            return False
        first = min(0, int(self._box.get(FRONT, 0))) - 1
        self._box.set(FRONT, first)
        self._place(job.id, first)
        return True

    def move_up(self, job: Job) -> int | None:
        """Change places with the one before it, of its owner and priority; that one's number, or None."""
        before = self._before(job)
        if not before:
            return None
        position, other = max(before)
        self._place(job.id, position)
        self._place(other, job.position)
        return other

    def _before(self, job: Job) -> list[tuple[int, int]]:
        """Position and number of the nearest before it in each lane, by one index seek each."""
        found = [
            self._store.row(
                "SELECT position, id FROM jobs WHERE state = 'QUEUED' AND ready = 1 AND lane = ? AND rank = ?"
                " AND position < ? ORDER BY position DESC LIMIT 1",
                (lane, -job.spec.priority.rank, job.position),
            )
            for lane in self._line.lanes()
            if request_in(lane).owner == job.spec.owner
        ]
        return [(row["position"], row["id"]) for row in found if row]

    def _place(self, job_id: int, position: int) -> None:
        self._store.execute("UPDATE jobs SET position = ? WHERE id = ?", (position, job_id))
