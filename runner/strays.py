"""Finding and ending what a killed supervisor left behind.

Every process of a job inherits a mark in its environment and the pipe its output goes to. One that casts off
both, and has no ancestor left, is the zygote's to find: it is the subreaper above all supervisors.
"""

from __future__ import annotations

import os
import signal

from runner.supervisor import kernel


def mark_of(job_id: int, attempt: int, run_id: str) -> str:
    """The value of NIGHTSHIFT_ATTEMPT in the environment of an attempt's processes."""
    return f"{job_id}.{attempt}.{run_id}"


def end_strays(mark: str, pipe: int | None = None) -> list[int]:
    """SIGKILL everything that carries the mark or holds the pipe, and its descendants; those still there."""
    wanted = b"NIGHTSHIFT_ATTEMPT=" + mark.encode()
    family = kernel.Family()
    marked = [pid for pid in family.pids if pid != os.getpid() and _is_of(pid, wanted, pipe)]
    found = [*marked, *(below for pid in marked for below in family.descendants(pid))]
    kernel.send(found, signal.SIGSTOP)
    kernel.send(found, signal.SIGKILL)
    return found


def _is_of(pid: int, mark: bytes, pipe: int | None) -> bool:
    return _carries(pid, mark) or (pipe is not None and _holds(pid, pipe))


def _carries(pid: int, wanted: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return wanted in file.read().split(b"\0")
    except OSError:
        return False  # gone, or another account's


def _holds(pid: int, pipe: int) -> bool:
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
