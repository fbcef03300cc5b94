"""Finding and ending what a killed supervisor left behind, by the mark every process of a job inherits."""

from __future__ import annotations

import os
import signal

from runner.supervisor import kernel


def mark_of(job_id: int, attempt: int, run_id: str) -> str:
    """The value of NIGHTSHIFT_ATTEMPT in the environment of an attempt's processes."""
    return f"{job_id}.{attempt}.{run_id}"


def end_strays(mark: str) -> list[int]:
    """SIGKILL everything that carries the mark, and what descends from it; those that were still there."""
    wanted = b"NIGHTSHIFT_ATTEMPT=" + mark.encode()
    found = []
    for pid in kernel.parents():
        if pid != os.getpid() and _carries(pid, wanted):
            found.append(pid)
            found.extend(kernel.descendants(pid))
    kernel.send(found, signal.SIGSTOP)
    kernel.send(found, signal.SIGKILL)
    return found


def _carries(pid: int, wanted: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return wanted in file.read().split(b"\0")
    except OSError:
        return False  # gone, or another account's
