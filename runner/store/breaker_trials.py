"""Finds queued jobs that are like those that failed, or unlike them, to try a queue that the breaker paused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runner import clock
from runner.model import Phase, State
from runner.schedule.choice import Waiting
from runner.schedule.request import request_in
from runner.store.connection import Table, marks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from runner.model import Job
    from runner.store.pause import Pause


class Trials(Table):
    """Jobs are alike if they run the same program with the same options, in the same folder, on as many GPUs."""

    def shapes(self, job_ids: Iterable[int]) -> list[str]:
        """Return the shape of each of these jobs, with repeats; jobs without one are left out."""
        wanted = list(job_ids)
        sql = f"SELECT id, shape FROM jobs WHERE id IN ({marks(wanted)}) AND shape IS NOT NULL"
        rows = self._store.rows(sql, wanted)
        found = {row["id"]: str(row["shape"]) for row in rows}
        return [found[job_id] for job_id in wanted if job_id in found]

    def need_gpus(self, job_ids: Iterable[int]) -> bool:
        """Return whether any of these jobs asked for GPUs."""
        wanted = list(job_ids)
        rows = self._store.rows(f"SELECT DISTINCT lane FROM jobs WHERE id IN ({marks(wanted)})", wanted)
        return any(request_in(row["lane"]).gpus for row in rows)

    def now(self, pause: Pause) -> list[Waiting]:
        """Return jobs of which one may be started now, to try a queue that the breaker paused.

        A job unlike those that failed may be tried at once, until a trial has failed. Others wait for `try_at`.
        """
        if not pause.again or pause.trial is not None:
            return []
        due, failed = clock.moment(pause.try_at), pause.jobs or ()
        is_due = due is None or due <= clock.now()
        unlike = self.unlike(failed) if is_due or not pause.tries else []
        return unlike or (self._alike(failed) if is_due else [])

    def unlike(self, failed: Collection[int]) -> list[Waiting]:
        """Return ready jobs that can show whether the box works: of another shape, with GPUs if the failed had any."""
        gpus_too = self.need_gpus(failed)
        return [one for one in self.candidates(self.shapes(failed)) if one.request.gpus or not gpus_too]

    def _alike(self, failed: Collection[int]) -> list[Waiting]:
        found = self.candidates()
        with_gpus = [one for one in found if one.request.gpus]
        return with_gpus if with_gpus and self.need_gpus(failed) else found

    def state(self, job: Job) -> State:
        """Return the state of a job; if it waits for a retry, the state in which its latest attempt ended."""
        row = self._store.row("SELECT state FROM attempts WHERE job_id = ? AND number = ?", (job.id, job.attempt))
        return State(row["state"]) if row and row["state"] and not job.state.final else job.state

    def ran_s(self, job: Job) -> float:
        """Return how many seconds its latest attempt ran, or has run so far, without the probes before it."""
        row = self._store.row("SELECT exit FROM attempts WHERE job_id = ? AND number = ?", (job.id, job.attempt))
        end = json.loads(row["exit"]) if row and row["exit"] else None
        if end is not None:  # measured by the monotonic clock
            return float(end["duration_s"] if end.get("run_s") is None else end["run_s"])
        began = job.started_at
        if job.spec.probe is not None:
            sql = "SELECT at FROM events WHERE job_id = ? AND attempt = ? AND kind = 'batch chosen'"
            chosen = self._store.row(sql, (job.id, job.attempt))
            began = clock.moment(chosen["at"]) if chosen else None
        if began is None or job.phase is Phase.PROBING:
            return 0.0
        return ((job.finished_at or clock.now()) - began).total_seconds()

    def candidates(self, unlike: Collection[str] = ()) -> list[Waiting]:
        """Return the first ready job of every lane, without jobs of these shapes."""
        rows = self._store.rows(
            "SELECT id, lane, min(position) AS position FROM jobs"
            f" WHERE state = 'QUEUED' AND ready = 1 AND coalesce(shape, '') NOT IN ({marks(unlike)}) GROUP BY lane",
            list(unlike),
        )
        return [Waiting(row["id"], request_in(row["lane"]), row["position"]) for row in rows]

    def hold(self, shapes: Collection[str], by: str) -> list[int]:
        """Hold all queued jobs of these shapes. Return their numbers."""
        alike = f"state = 'QUEUED' AND held_by IS NULL AND shape IN ({marks(shapes)})"
        rows = self._store.rows(f"SELECT id FROM jobs WHERE {alike} ORDER BY id", list(shapes))
        self._store.execute(f"UPDATE jobs SET held_by = ?, ready = 0 WHERE {alike}", [by, *shapes])
        return [row["id"] for row in rows]
