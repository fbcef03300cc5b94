"""Change the spec of a job, and everything that is computed from it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from runner import clock
from runner.commands.job_kinds import kinds_of
from runner.schedule.request import lane_of, request_of
from runner.store.dependencies import Dependencies
from runner.store.groups import Groups

if TYPE_CHECKING:
    from runner.model import Job, JobSpec
    from runner.store.connection import Store


class Edits:
    """Replaces the spec of a queued job. Works within the caller's transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dependencies, self._groups = Dependencies(store), Groups(store)

    def put(self, job: Job, spec: JobSpec) -> bool:
        """Replace the spec of a queued job. Return False if it has left the queue. Used retries stay used."""
        before = job.spec
        changed = self._store.execute(
            "UPDATE jobs SET spec = ?, lane = ?, rank = ?, kind = ?, shape = ?,"
            " retries_left = max(0, retries_left + ?) WHERE id = ? AND state = 'QUEUED'",
            (
                json.dumps(spec.to_json()), lane_of(request_of(spec)), -spec.priority.rank, *kinds_of(spec),
                spec.retries - before.retries, job.id,
            ),
        ).rowcount  # fmt: skip
        if not changed:
            return False
        if spec.begin_at != before.begin_at:
            self._store.execute("UPDATE jobs SET begin_at = ? WHERE id = ?", (spec.begin_at, job.id))
        if spec.group != before.group:
            if spec.group is not None:
                self._groups.join(spec.group, spec.owner, clock.text(clock.now()))
            self._groups.moved(job.id, before.group, spec.group)
        if (spec.after, spec.after_ok) != (before.after, before.after_ok):
            self._dependencies.replace(job.id, spec)
        else:
            self._dependencies.count(job.id)
        return True

    def forget_batch(self, job: Job) -> None:
        """Forget the batch that was found before the edit. The latest probe record stays, marked as `edited`."""
        self._store.execute("UPDATE jobs SET batch_size = NULL WHERE id = ?", (job.id,))
        self._store.execute(
            "UPDATE attempts SET probe = json_set(probe, '$.edited', json('true'))"
            " WHERE job_id = ? AND number = ? AND probe IS NOT NULL",
            (job.id, job.attempt),
        )


class TimeLimits:
    """Changed time limits, and which warnings about them were given. Works within the caller's transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def change(self, job: Job, limit_s: float) -> None:
        """Set the time limit of a job, for this attempt and later ones."""
        spec = replace(job.spec, time_limit_s=limit_s)
        self._store.execute(
            "UPDATE jobs SET spec = ?, lane = ? WHERE id = ?",
            (json.dumps(spec.to_json()), lane_of(request_of(spec)), job.id),
        )

    def warned(self, job_id: int, mark: str) -> None:
        """Record that the warning for this limit of this attempt was given."""
        self._store.execute("UPDATE jobs SET time_warning = ? WHERE id = ?", (mark, job_id))
