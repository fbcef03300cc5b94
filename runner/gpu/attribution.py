"""Works out which processes hold a GPU's memory and make its load."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.model import Gpu, GpuProcess

NAMED_AT_MOST = 4
UNEXPLAINED_PERCENT = 10


def foreign_memory_mib(gpu: Gpu, *, leased: bool) -> int | None:
    """Return the MiB that other processes hold on a GPU: used memory minus our own. None if it is unknown.

    `leased`: jobs of ours are on it. In a container the driver may list PIDs of the host, or none at all. Then no
    process is known to be ours and the result is None. It is also None if ours add up to more than is used: a PID
    matched by chance.
    """
    used_mib = gpu.memory_used_mib
    if used_mib is None or not leased:
        return used_mib
    own = [process.memory_mib for process in gpu.processes or () if process.of is not None]
    sizes = [size for size in own if size is not None]
    if not own or len(sizes) < len(own) or sum(sizes) > used_mib:
        return None
    return used_mib - sum(sizes)


def own_load(gpu: Gpu, mark: str) -> int | None:
    """Return how much of a GPU's load one attempt makes, in percent; None if it is unknown.

    It is known if the driver reports the load of every process on the GPU, at least one of them is the job's, and
    together they explain the GPU's load. Otherwise the unexplained load might be the job's.
    """
    processes = gpu.processes or ()
    loads = [process.utilization for process in processes if process.utilization is not None]
    own = [process.utilization or 0 for process in processes if process.of == mark]
    if gpu.utilization is None or len(loads) < len(processes) or not own:
        return None
    if sum(loads) < gpu.utilization - UNEXPLAINED_PERCENT:
        return None
    return min(100, sum(own))


def holders(gpu: Gpu, *, foreign: bool = False) -> str:
    """Describe the processes on a GPU, or only the foreign ones: the four with the most memory, and how many more."""
    others = [process for process in gpu.processes or () if not foreign or process.of is None]
    if not others:
        return "processes the driver does not name"
    others.sort(key=lambda process: -(process.memory_mib or 0))
    more = len(others) - NAMED_AT_MOST
    return ", ".join(map(_described, others[:NAMED_AT_MOST])) + (f" and {more} more" if more > 0 else "")


def _described(process: GpuProcess) -> str:
    held = "" if process.memory_mib is None else f" {process.memory_mib / 1024:.1f} GiB"
    return f"pid {process.pid} ({_who(process.pid)}){held}"


def _who(pid: int) -> str:
    """Return a process' name and user. It cannot be found if it has ended or is in another PID namespace."""
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = file.read().strip()
    except OSError:
        return "not visible from here"
    try:
        return f"{name}, {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"{name}, user {uid}"
