"""Marks the processes of an attempt, and finds and kills those that a killed supervisor left behind.

Every process of a job inherits a variable in its environment, a mark in its resource limits, and its output pipe.
The zygote ends processes that dropped all three: it is the subreaper above all supervisors.

Programs empty the environment (`env -i`), close pipes and lose their parents. Resource limits survive fork, exec and
setsid, and a process without privileges can only lower them. So the mark is a limit on real-time CPU time that no
program ever reaches. It is in microseconds: a mark is at least 146,000 years.
"""

from __future__ import annotations

import contextlib
import os
import resource

from runner.processes import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runner.model import Ref

_LIMIT = resource.RLIMIT_RTTIME
_NAME = b"Max realtime timeout"  # this limit's name in /proc/PID/limits


def mark_of(job_id: int, attempt: int, run_id: str) -> int:
    """Return the mark of an attempt: the run's 32 random bits, 16 bits of the job number, 14 of the attempt number."""
    return 1 << 62 | int(run_id, 16) << 30 | (job_id & 0xFFFF) << 14 | attempt & 0x3FFF


@contextlib.contextmanager
def marking(mark: int) -> Iterator[Callable[[int], None]]:
    """Let children begin with the mark. Yields a function that takes a child's right to raise it again.

    Sets no mark if a lower limit is already set. This process has the mark only meanwhile.
    """
    before = resource.getrlimit(_LIMIT)

    def fix_on(pid: int) -> None:
        with contextlib.suppress(ValueError, OSError):
            resource.prlimit(pid, _LIMIT, (mark, mark))

    try:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(_LIMIT, (mark, before[1]))
        yield fix_on
    finally:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(_LIMIT, before)


def has_mark(pid: int, mark: int) -> bool:
    """Return whether a process has the mark."""
    limits = linux.read(f"/proc/{pid}/limits").splitlines()
    limit = next((line for line in limits if line.startswith(_NAME)), b"")
    return b"%d" % mark in limit[len(_NAME) :].split()[:2]


def end_strays(ref: Ref, pipe: int | None = None) -> list[int]:
    """Kill all processes that carry a mark of the attempt or hold its pipe, and their descendants.

    Returns their pids.
    """
    variable, mark = f"NIGHTSHIFT_ATTEMPT={ref.mark}".encode(), mark_of(*ref)
    family = linux.Family()
    marked = [
        pid
        for pid in family.pids
        if pid != os.getpid() and (has_mark(pid, mark) or _carries(pid, variable) or _holds(pid, pipe))
    ]
    strays = [*marked, *(below for pid in marked for below in family.descendants(pid))]
    linux.kill_all(strays)
    return strays


def _carries(pid: int, variable: bytes) -> bool:
    return variable in linux.read(f"/proc/{pid}/environ").split(b"\0")


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
