"""Hold and release queued jobs, and change the order in which they start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.api.view import View, asked, begins
from runner.config import home
from runner.errors import UserError
from runner.model import Job, Priority, State
from runner.processes import doorbell
from runner.schedule.request import request_in, request_of
from runner.store.dependencies import Dependencies
from runner.store.queue_order import Order

if TYPE_CHECKING:
    from collections.abc import Mapping

ALONE = ("first", "sooner", "later", "last")
BESIDE = ("before", "after")


class Ordering(View):
    """Adds hold, release and move to the queue."""

    def hold(self, job_id: int) -> str:
        """Keep a queued job from starting until it is released. Return a sentence about it."""
        with self.store.transaction():
            job = self._queued(job_id)
            if not Order(self.store).hold(job, self.actor):
                return f"Job {job_id} is held already, by {job.held_by}."
            self._write_down(job_id, "held", "hold")
        self.ring()
        return f"Job {job_id} is held: it does not start before {self._typed(f'release {job_id}')}."

    def release(self, job_id: int) -> str:
        """Release a held job; it keeps its position. Return a sentence about it."""
        with self.store.transaction():
            job = self._queued(job_id)
            if not Order(self.store).release(job):
                return f"Job {job_id} is not held."
            self._write_down(job_id, "released", "release")
        self.ring()
        return f"Job {job_id} is released."

    def move(self, job_id: int, where: str, other: int | None = None) -> str:
        """Move a queued job `first`, `sooner`, `later`, `last`, or `before` or `after` another. Return a sentence."""
        if where in BESIDE:
            if other is None:
                raise UserError(f"{where.capitalize()} which job? Try: {self._typed(f'move {job_id} {where} 14')}")
            return self.move_beside(job_id, other, after=where == "after")
        if where not in ALONE or other is not None:
            words = ", ".join(ALONE)
            raise UserError(f"Where to? {words}, or before or after another: {self._typed(f'move {job_id} after 14')}")
        verbs = {"first": self.to_front, "sooner": self.move_up, "later": self.move_down, "last": self.to_back}
        return verbs[where](job_id)

    def to_front(self, job_id: int) -> str:
        """Move a queued job before all others of its owner and priority. Return a sentence about it."""
        with self.store.transaction():
            job = self._queued(job_id)
            among = self._among(job)
            if not Order(self.store).to_front(job):
                return self._placed(job, f"first{among}", moved=False)
            self._write_down(job_id, "moved to front", "first")
        self.ring()
        return self._placed(job, f"first{among}")

    def to_back(self, job_id: int) -> str:
        """Move a queued job behind all others of its owner and priority. Return a sentence about it."""
        with self.store.transaction():
            job = self._queued(job_id)
            among = self._among(job)
            if not Order(self.store).to_back(job):
                return self._placed(job, f"last{among}", moved=False)
            self._write_down(job_id, "moved to back", "last")
        self.ring()
        return self._placed(job, f"last{among}")

    def move_up(self, job_id: int) -> str:
        """Move a queued job one position towards the front. Return a sentence about it."""
        with self.store.transaction():
            job = self._queued(job_id)
            other = Order(self.store).move_up(job)
            if other is None:
                return self._placed(job, f"first{self._among(job)}", moved=False)
            self._write_down(job_id, "moved up", "sooner", {"before": other})
        self.ring()
        return self._placed(job, f"before job {other}")

    def move_down(self, job_id: int) -> str:
        """Move a queued job one position towards the back. Return a sentence about it."""
        with self.store.transaction():
            job = self._queued(job_id)
            other = Order(self.store).move_down(job)
            if other is None:
                return self._placed(job, f"last{self._among(job)}", moved=False)
            self._write_down(job_id, "moved down", "later", {"after": other})
        self.ring()
        return self._placed(job, f"after job {other}")

    def move_beside(self, job_id: int, other_id: int, *, after: bool) -> str:
        """Move a queued job right before or after another one. Return a sentence about it."""
        where = "after" if after else "before"
        with self.store.transaction():
            job, other = self._queued(job_id), self._queued(other_id)
            self._refuse_incomparable(job, other)
            if not Order(self.store).put_beside(job, other, after=after):
                return self._placed(job, f"right {where} job {other_id}", moved=False)
            self._write_down(job_id, f"moved {where}", "move", {where: other_id})
        self.ring()
        return self._placed(job, f"{where} job {other_id}")

    def _refuse_incomparable(self, job: Job, other: Job) -> None:
        """Raise UserError unless both jobs have the same owner and priority, and both or neither are preemptible."""
        if job.id == other.id:
            raise UserError(f"Job {job.id} cannot be moved beside itself.")
        if job.spec.owner != other.spec.owner:
            raise UserError(
                f"Job {job.id} belongs to {job.spec.owner}, job {other.id} to {other.spec.owner}: whose turn it is is"
                " settled fairly between people, and places are among one person's jobs."
            )
        ours, theirs = job.spec.priority.value, other.spec.priority.value
        if ours != theirs:
            change = self._typed(f"edit {job.id} --priority {theirs}")
            raise UserError(f"Job {job.id} has {ours} priority and job {other.id} {theirs}: {change} comes first.")
        if job.spec.preemptible != other.spec.preemptible:
            raise UserError(f"One of {job.id} and {other.id} is preemptible: it starts behind the other in any case.")

    def _queued(self, job_id: int) -> Job:
        job = self.job(job_id)
        if job.state is not State.QUEUED:
            how = "has ended" if job.state.final else "runs already"
            raise UserError(f"Job {job_id} {how}: only a job that waits can be held, moved or edited.")
        return job

    def _among(self, job: Job) -> str:
        """Return among which jobs it is first or last, like " of yours"; empty if among all."""
        owner, request = job.spec.owner, request_of(job.spec)
        waiting = [request_in(lane) for lane in self.line.lanes()]
        told = ""
        if any(other.owner != owner for other in waiting):
            told = " of yours" if owner == self.actor else f" of {owner}'s"
        if job.spec.priority is not Priority.NORMAL:
            told += f" of {job.spec.priority.value} priority"
        if any(other.rank == request.rank and other.level != request.level for other in waiting):
            told += " that may be pushed aside" if request.preemptible else " that may not be pushed aside"
        return told

    def _placed(self, job: Job, where: str, *, moved: bool = True) -> str:
        """Return a sentence about a job's position. For a job that may not start yet, the position counts later."""
        if job.held_by:
            return f"Job {job.id} is held by {job.held_by}. Once it is released it is {where}."
        blockers = Dependencies(self.store).of([job.id]).get(job.id, [])
        if waits_for := ", ".join(f"#{one.job_id}" for one in blockers):
            return f"Job {job.id} starts only after {waits_for}. Then it is {where}."
        if later := begins(asked(job)):
            return f"Job {job.id} may not start yet ({later}). Then it is {where}."
        return f"Job {job.id} is now {where}." if moved else f"Job {job.id} is already {where}."

    def _write_down(self, job_id: int, kind: str, action: str, more: Mapping[str, Any] | None = None) -> None:
        self.jobs.note(job_id, None, kind, {"by": self.actor, **(more or {})})
        self.audit.add(self.actor, action, {"job": job_id, **(more or {})})

    def ring(self) -> None:
        """Wake the runner and the bot, if they are up."""
        doorbell.ring(self.home, home.RUNNER_BELL)
        doorbell.ring(self.home, home.BOT_BELL)
