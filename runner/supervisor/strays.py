"""Finds and kills processes that a killed supervisor left behind.

Every process of a job inherits a variable in its environment, a mark in its resource limits, and its output pipe.
The zygote ends processes that dropped all three: it is the subreaper above all supervisors.
"""

from __future__ import annotations

import os
import signal

from runner.processes import linux
from runner.supervisor import mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runner.model import Job


def end_strays(job: Job, pipe: int | None = None) -> list[int]:
    """Kill all processes that carry a mark of the job's latest attempt or hold its pipe, and their descendants.

    Returns their pids.
    """
    variable = f"NIGHTSHIFT_ATTEMPT={job.id}.{job.attempt}.{job.run_id}".encode()
    number = mark.mark_of(job.id, job.attempt, job.run_id)
    family = linux.Family()
    marked = [
        pid
        for pid in family.pids
        if pid != os.getpid() and (mark.is_on(pid, number) or _carries(pid, variable) or _holds(pid, pipe))
    ]
    found = [*marked, *(below for pid in marked for below in family.descendants(pid))]
    linux.send(found, signal.SIGSTOP)
    linux.send(found, signal.SIGKILL)
    return found


def _carries(pid: int, wanted: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return wanted in file.read().split(b"\0")
    except OSError:
        return False  # it is gone, or belongs to another user


def _holds(pid: int, pipe: int | None) -> bool:
    if pipe is None:
        return False
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    return any(_target(pid, descriptor) == f"pipe:[{pipe}]" for descriptor in descriptors)


def _target(pid: int, descriptor: str) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/fd/{descriptor}")
    except OSError:
        return None
