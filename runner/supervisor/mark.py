"""A mark that all processes of an attempt inherit: a limit on real-time computing that no program ever reaches.

Environments are emptied (`env -i`), pipes are closed, parents die. Resource limits go through fork, exec and setsid,
and without privileges a process can only lower them. This one counts microseconds: the mark is 146,000 years of them.
"""

from __future__ import annotations

import contextlib
import resource

_LIMIT = resource.RLIMIT_RTTIME
_NAME = b"Max realtime timeout"  # of the same limit in /proc/PID/limits


def mark_of(job_id: int, attempt: int, run_id: str) -> int:
    """The mark of an attempt: the run's 32 random bits, then as much of the numbers as there is room for."""
    return 1 << 62 | int(run_id, 16) << 30 | (job_id & 0xFFFF) << 14 | attempt & 0x3FFF


def put_on(mark: int) -> None:
    """Bear the mark from now on; where a lower limit is set already, there is none."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(_LIMIT, (mark, mark))


def is_on(pid: int, mark: int) -> bool:
    """Whether a process bears the mark."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:
            found = next((line for line in file if line.startswith(_NAME)), b"")
    except OSError:
        return False
    return found[len(_NAME) :].split()[1:2] == [b"%d" % mark]
