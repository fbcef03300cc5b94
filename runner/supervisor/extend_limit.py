"""Gives a live job more time: copies its new limit from the database to the run directory, for its supervisor."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from runner import rundir

if TYPE_CHECKING:
    from runner.model import Job


def pass_on(home: str, job: Job) -> None:
    """Write a live job's longer limit to its run directory. Raise OSError if the disk is full. Safe to repeat."""
    folder, limit_s = rundir.folder_of(home, job.id, job.attempt), job.spec.time_limit_s
    if limit_s is None or not job.state.live or not os.path.isdir(folder):
        return
    told_s = rundir.limit_s(folder, job.run_id)
    if told_s is None:
        told_s = (rundir.read(folder, rundir.SPEC) or {}).get("time_limit_s")
    if told_s is not None and told_s < limit_s:
        rundir.write_limit(folder, job.run_id, limit_s)


def is_possible(home: str, job: Job) -> bool:
    """Return whether a live job's supervisor looks for a longer limit. A supervisor of an older version does not."""
    started = rundir.read(rundir.folder_of(home, job.id, job.attempt), rundir.STARTED)
    return started is None or bool(started.get("extendable"))
