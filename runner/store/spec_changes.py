"""Change the spec of a job, and everything that is computed from it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from runner import clock
from runner.commands.job_kinds import kinds_of
from runner.schedule.request import lane_of, request_of
from runner.store.connection import Table
from runner.store.dependencies import Dependencies
from runner.store.groups import Groups

if TYPE_CHECKING:
    from runner.model import Job, JobSpec


def computed_columns(spec: JobSpec) -> tuple[str, str | None, str | None]:
    """Return the columns lane, kind and shape of a job with this spec."""
    return (lane_of(request_of(spec)), *kinds_of(spec))


class Edits(Table):
    """Replaces the spec of a queued job. Works within the caller's transaction."""

    def put(self, job: Job, spec: JobSpec) -> bool:
        """Replace the spec of a queued job. Return False if it has left the queue. Used retries stay used."""
        before, dependencies = job.spec, Dependencies(self._store)
        changed = self._store.execute(
            "UPDATE jobs SET spec = ?, lane = ?, kind = ?, shape = ?, rank = ?,"
            " retries_left = max(0, retries_left + ?) WHERE id = ? AND state = 'QUEUED'",
            (
                json.dumps(spec.to_json()), *computed_columns(spec), -spec.priority.rank,
                spec.retries - before.retries, job.id,
            ),
        ).rowcount  # fmt: skip
        if not changed:
            return False
        if spec.begin_at != before.begin_at:
            self._store.execute("UPDATE jobs SET begin_at = ? WHERE id = ?", (spec.begin_at, job.id))
        if spec.group != before.group:
            groups = Groups(self._store)
            if spec.group is not None:
                groups.join(spec.group, spec.owner, clock.text(clock.now()))
            groups.moved(job.id, before.group, spec.group)
        if (spec.after, spec.after_ok) != (before.after, before.after_ok):
            dependencies.replace(job.id, spec)
        else:
            dependencies.count(job.id)
        return True

    def forget_batch(self, job: Job) -> None:
        """Forget the batch that was found before the edit. The latest probe record stays, marked as `edited`."""
        self._store.execute("UPDATE jobs SET batch_size = NULL WHERE id = ?", (job.id,))
        self._store.execute(
            "UPDATE attempts SET probe = json_set(probe, '$.edited', json('true'))"
            " WHERE job_id = ? AND number = ? AND probe IS NOT NULL",
            (job.id, job.attempt),
        )


class TimeLimits(Table):
    """Changed time limits, and which warnings about them were given. Works within the caller's transaction."""

    def change(self, job: Job, limit_s: float) -> None:
        """Set the time limit of a job, for this attempt and later ones."""
        spec = replace(job.spec, time_limit_s=limit_s)
        self._store.execute(
            "UPDATE jobs SET spec = ?, lane = ? WHERE id = ?",
            (json.dumps(spec.to_json()), lane_of(request_of(spec, untried=job.untried)), job.id),
        )

    def warned(self, job_id: int, mark: str) -> None:
        """Record that the warning for this limit of this attempt was given."""
        self._store.execute("UPDATE jobs SET time_warning = ? WHERE id = ?", (mark, job_id))
