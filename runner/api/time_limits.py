"""Extend the time limit of jobs."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING

from runner import clock
from runner.api.queue_order import Ordering
from runner.errors import UserError
from runner.store.box_limits import TIMES
from runner.store.time_limits import Times
from runner.supervisor import extend_limit
from runner.units import format_duration

if TYPE_CHECKING:
    from runner.model import Job

SHORTEST_S = 1.0


class Extending(Ordering):
    """Adds `extend` to the queue."""

    def extend(self, job_id: int, by_s: float, limit_s: float | None = None) -> str:
        """Extend a job's time limit by `by_s` seconds, counted from `limit_s` if given. Return a sentence about it.

        Inside a transaction of the caller, call `pass_on_limit` after the commit.
        """
        with self.store.transaction():
            job = self.job(job_id)
            before_s = job.spec.time_limit_s or 0.0
            limit_s = max(before_s, self._extended_s(job, by_s, limit_s))
            if limit_s > before_s:
                Times(self.store).give(job, limit_s)
                self._write_down(job_id, "extended", "extend", {"by_s": limit_s - before_s, "limit_s": limit_s})
        self.pass_on_limit(job_id)
        self.ring()
        ends = job.started_at + timedelta(seconds=limit_s) if job.started_at else None
        until = f", until {ends.astimezone():%H:%M on %d %b}" if ends else ""
        return f"Job {job_id} may run for {format_duration(limit_s)} in all{until}."

    def pass_on_limit(self, job_id: int) -> None:
        """Give the new limit to the supervisor of a live job, even if no runner is up. Not within a transaction."""
        if not self.store.connection.in_transaction:
            with contextlib.suppress(OSError):  # the runner tries again
                extend_limit.pass_on(self.home, self.job(job_id))

    def _extended_s(self, job: Job, by_s: float, base_s: float | None) -> float:
        """Return the new limit. Raise UserError if the job cannot be extended that far."""
        before_s, longest_s = job.spec.time_limit_s, self.box.get(TIMES, {}).get("longest_s")
        if job.state.final:
            raise UserError(f"Job {job.id} has already ended ({job.state.value.lower()}).")
        if before_s is None:
            raise UserError(f"Job {job.id} has no time limit: it may run for as long as it takes.")
        if by_s < SHORTEST_S:
            raise UserError("That is no time to extend a job by: write it like 30m, 2h or 1d.")
        left_s = before_s - (clock.now() - job.started_at).total_seconds() if job.started_at else before_s
        if job.stop is not None or left_s <= 0:
            raise UserError(f"Job {job.id} is already being stopped: it is too late to extend it.")
        if not extend_limit.is_possible(self.home, job):
            raise UserError(f"Job {job.id} was started by an older version of nightshift: its limit stays as it is.")
        wanted_s = (before_s if base_s is None else base_s) + by_s
        if longest_s is not None and wanted_s > longest_s:
            raise UserError(
                f"Jobs may run for {format_duration(longest_s)} here (NIGHTSHIFT_TIME_MAX): job {job.id} can have"
                f" {format_duration(max(0.0, longest_s - before_s))} more."
            )
        return wanted_s
