"""Who holds the memory of a GPU."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from runner.model import Gpu, GpuProcess

NAMED_AT_MOST = 4


def foreign_memory_mib(gpu: Gpu, own_pids: Collection[int]) -> int | None:
    """What others hold of a GPU: all that is used but for our own part. None if that cannot be told.

    Our part is told by PID. In a container the driver may list PIDs of the host, or nobody: then none of ours
    is found and nothing is known. A PID that is ours by chance is given away by holding more than is used.
    """
    used_mib = gpu.memory_used_mib
    if used_mib is None or not own_pids:
        return used_mib
    own = [process.memory_mib for process in gpu.processes or () if process.pid in own_pids]
    known = [held for held in own if held is not None]
    if not own or len(known) < len(own) or sum(known) > used_mib:
        return None
    return used_mib - sum(known)


def holders(gpu: Gpu, but: Collection[int] = ()) -> str:
    """The processes on a GPU other than these, the largest first, as far as they can be named."""
    others = [process for process in gpu.processes or () if process.pid not in but]
    if not others:
        return "processes the driver does not name"
    others.sort(key=lambda process: -(process.memory_mib or 0))
    return _joined(map(_described, others[:NAMED_AT_MOST]), len(others) - NAMED_AT_MOST)


def _joined(named: Iterable[str], more: int) -> str:
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _described(process: GpuProcess) -> str:
    held = "" if process.memory_mib is None else f" {process.memory_mib / 1024:.1f} GiB"
    return f"pid {process.pid} ({_who(process.pid)}){held}"


def _who(pid: int) -> str:
    """Name and user of a process; one of another PID namespace, or that just ended, cannot be looked up."""
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = file.read().strip()
    except OSError:
        return "not visible from here"
    return f"{name}, {_user(uid)}"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
