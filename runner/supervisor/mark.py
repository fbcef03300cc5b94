"""A mark that all processes of an attempt inherit: a limit on real-time CPU time that no program ever reaches.

Programs empty the environment (`env -i`), close pipes and lose their parents. Resource limits survive fork, exec and
setsid, and a process without privileges can only lower them. This limit is in microseconds: a mark is at least
146,000 years.
"""

from __future__ import annotations

import contextlib
import resource

_LIMIT = resource.RLIMIT_RTTIME
_NAME = b"Max realtime timeout"  # this limit's name in /proc/PID/limits


def mark_of(job_id: int, attempt: int, run_id: str) -> int:
    """Return the mark of an attempt: the run's 32 random bits, 16 bits of the job number, 14 of the attempt number."""
    return 1 << 62 | int(run_id, 16) << 30 | (job_id & 0xFFFF) << 14 | attempt & 0x3FFF


def put_on(mark: int) -> None:
    """Mark this process and its future children. Do nothing if a lower limit is already set."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(_LIMIT, (mark, mark))


def is_on(pid: int, mark: int) -> bool:
    """Return whether a process has the mark."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:
            found = next((line for line in file if line.startswith(_NAME)), b"")
    except OSError:
        return False
    return found[len(_NAME) :].split()[1:2] == [b"%d" % mark]
