"""Hold and release queued jobs, and change the order in which they start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.api.waiting_reasons import begin_words, queued_job
from runner.errors import UserError
from runner.model import Priority
from runner.schedule.request import request_in, request_of
from runner.store.dependencies import Dependencies
from runner.store.queue_order import OrderTable

if TYPE_CHECKING:
    from runner.api.queue import Queue
    from runner.model import Job

ALONE = ("first", "sooner", "later", "last")
BESIDE = ("before", "after")


class QueueOrder:
    """The order of the queued jobs, for one actor."""

    def __init__(self, queue: Queue) -> None:
        self._queue, self._store = queue, queue.store
        self._order = OrderTable(queue.store)

    def hold(self, job_id: int) -> str:
        """Keep a queued job from starting until it is released. Return a sentence about it."""
        with self._store.transaction():
            job = self._queue.queued(job_id)
            if not self._order.hold(job, self._queue.actor):
                return f"Job {job_id} is already held, by {job.held_by}."
            self._queue.record(job_id, "held", "hold")
        self._queue.ring()
        return f"Job {job_id} is held: it does not start before {self._queue.typed(f'release {job_id}')}."

    def release(self, job_id: int) -> str:
        """Release a held job; it keeps its position. Return a sentence about it."""
        with self._store.transaction():
            if not self._order.release(self._queue.queued(job_id)):
                return f"Job {job_id} is not held."
            self._queue.record(job_id, "released", "release")
        self._queue.ring()
        return f"Job {job_id} is released."

    def move(self, job_id: int, where: str, other: int | None = None) -> str:
        """Move a queued job `first`, `sooner`, `later`, `last`, or `before` or `after` another. Return a sentence."""
        example = self._queue.typed(f"move {job_id} {where if where in BESIDE else 'after'} 14")
        if where in BESIDE and other is None:
            raise UserError(f"{where.capitalize()} which job? Try: {example}")
        if where not in BESIDE and (where not in ALONE or other is not None):
            raise UserError(f"Where to? {', '.join(ALONE)}, or before or after another job: {example}")
        with self._store.transaction():
            job = self._queue.queued(job_id)
            if other is not None:
                moved, position = self._move_beside(job, other, where)
            elif where in ("first", "last"):
                moved, position = self._move_to_end(job, where)
            else:
                moved, position = self._move_one(job, where)
        if moved:
            self._queue.ring()
        return self._position_words(job, position, moved=moved)

    def _move_to_end(self, job: Job, where: str) -> tuple[bool, str]:
        """Move a job first or last. Return whether it moved, and its position in words."""
        position = where + self._among(job)
        is_first = where == "first"
        moved = self._order.to_front(job) if is_first else self._order.to_back(job)
        if moved:
            self._queue.record(job.id, "moved to front" if is_first else "moved to back", where)
        return moved, position

    def _move_one(self, job: Job, where: str) -> tuple[bool, str]:
        """Move a job one position towards the front or the back. Return the same as `_move_to_end`."""
        up = where == "sooner"
        other = self._order.move_up(job) if up else self._order.move_down(job)
        if other is None:
            return False, ("first" if up else "last") + self._among(job)
        side = "before" if up else "after"
        self._queue.record(job.id, "moved up" if up else "moved down", where, {side: other})
        return True, f"{side} job {other}"

    def _move_beside(self, job: Job, other_id: int, where: str) -> tuple[bool, str]:
        """Move a job right before or after another one. Return the same as `_move_to_end`."""
        other = self._queue.queued(other_id)
        self._refuse_incomparable(job, other)
        if not self._order.put_beside(job, other, after=where == "after"):
            return False, f"right {where} job {other_id}"
        self._queue.record(job.id, f"moved {where}", "move", {where: other_id})
        return True, f"{where} job {other_id}"

    def _refuse_incomparable(self, job: Job, other: Job) -> None:
        """Raise UserError unless both jobs have the same owner and priority, and both or neither are preemptible."""
        if job.id == other.id:
            raise UserError(f"Job {job.id} cannot be moved beside itself.")
        if job.spec.owner != other.spec.owner:
            raise UserError(
                f"Job {job.id} belongs to {job.spec.owner}, job {other.id} to {other.spec.owner}: a job can only be"
                " moved among the jobs of its owner. Between people, the one with less recent GPU time is first."
            )
        ours, theirs = job.spec.priority.value, other.spec.priority.value
        if ours != theirs:
            change = self._queue.typed(f"edit {job.id} --priority {theirs}")
            raise UserError(
                f"Job {job.id} has {ours} priority, job {other.id} has {theirs}. Change that first: {change}"
            )
        if job.spec.preemptible != other.spec.preemptible:
            raise UserError(
                f"Only one of jobs {job.id} and {other.id} is preemptible. It starts later, wherever you move it."
            )

    def _among(self, job: Job) -> str:
        """Return among which jobs it is first or last, like " of yours"; empty if among all."""
        owner, request = job.spec.owner, request_of(job.spec)
        waiting = [request_in(lane) for lane in self._queue.line.lanes()]
        words = ""
        if any(other.owner != owner for other in waiting):
            words = " of yours" if owner == self._queue.actor else f" of {owner}'s"
        if job.spec.priority is not Priority.NORMAL:
            words += f" of {job.spec.priority.value} priority"
        if any(other.rank == request.rank and other.priority != request.priority for other in waiting):
            words += " that may be preempted" if request.preemptible else " that may not be preempted"
        return words

    def _position_words(self, job: Job, position: str, *, moved: bool) -> str:
        """Return a sentence about a job's position. For a job that may not start yet, the position counts later."""
        if job.held_by:
            return f"Job {job.id} is held by {job.held_by}. Once it is released it is {position}."
        blockers = Dependencies(self._store).of([job.id]).get(job.id, [])
        if waits_for := ", ".join(f"#{blocker.job_id}" for blocker in blockers):
            return f"Job {job.id} starts only after {waits_for}. Then it is {position}."
        if later := begin_words(queued_job(job)):
            return f"Job {job.id} may not start yet ({later}). Then it is {position}."
        return f"Job {job.id} is now {position}." if moved else f"Job {job.id} is already {position}."
