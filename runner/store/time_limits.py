"""Changed time limits of jobs, and which warnings about them were given."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.schedule.request import lane_of, request_of

if TYPE_CHECKING:
    from runner.model import Job
    from runner.store.connection import Store


class Times:
    """Works within the caller's transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def give(self, job: Job, limit_s: float) -> None:
        """Set the time limit of a job, for this attempt and later ones."""
        spec = replace(job.spec, time_limit_s=limit_s)
        self._store.execute(
            "UPDATE jobs SET spec = ?, lane = ? WHERE id = ?",
            (json.dumps(spec.to_json()), lane_of(request_of(spec)), job.id),
        )

    def warned(self, job_id: int, mark: str) -> None:
        """Record that the warning for this limit of this attempt was given."""
        self._store.execute("UPDATE jobs SET time_warning = ? WHERE id = ?", (mark, job_id))
