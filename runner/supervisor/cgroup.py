"""A control group for a job that asked for CPU cores or memory, where systemd has left that to us.

    <unit>              delegated (Delegate=yes); holds no process itself, as the kernel demands
    <unit>/nightshift   where we are (DelegateSubgroup=nightshift)
    <unit>/job-...      a job's own, with its limits; gone when the job is

Whatever is missing, the job runs without limits: they are a fence between jobs, not a condition. Only what systemd
marks as delegated is touched; root could write anywhere, and would only get into systemd's way.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOUNT = "/sys/fs/cgroup"
MEMORY, CPU = "memory", "cpu"
PERIOD_US = 100_000
MARKS = ("user.delegate", "trusted.delegate")  # attributes that systemd gives a group that it has delegated
REMOVE_TRIES, REMOVE_EVERY_S = 40, 0.005


class NotEnforcedError(Exception):
    """Why jobs cannot be given groups of their own, in a few words."""


def delegated(pid: int | str = "self") -> str:
    """The group that jobs of a process may have theirs in; NotEnforcedError if there is none."""
    if not os.path.exists(os.path.join(MOUNT, "cgroup.controllers")):
        raise NotEnforcedError("this host has no unified control groups (cgroup v2)")
    own = _group_of(pid)
    if own == "/":
        raise NotEnforcedError("nightshift runs in the topmost control group")
    parent = os.path.dirname(MOUNT + own)
    if not _is_marked(parent) or not os.access(os.path.join(parent, "cgroup.subtree_control"), os.W_OK):
        raise NotEnforcedError("its control group is not delegated")
    if not controllers(parent):
        raise NotEnforcedError("its control group has neither the cpu nor the memory controller")
    if _read(parent, "cgroup.procs").strip():
        raise NotEnforcedError("processes are in the delegated control group itself")
    return parent


def controllers(group: str) -> list[str]:
    """Those of ours that a group has to give."""
    return [name for name in (CPU, MEMORY) if name in _read(group, "cgroup.controllers").split()]


class Leaf:
    """The group of one attempt."""

    def __init__(self, path: str, own: str) -> None:
        self._path, self._own = path, own
        self.enforced: list[str] = []

    def limit(self, cpus: int, ram_mib: int) -> None:
        """Set what was asked for, as far as the group has the controllers."""
        given = controllers(self._path)
        if cpus and CPU in given:
            _write(self._path, "cpu.max", f"{cpus * PERIOD_US} {PERIOD_US}")
            self.enforced.append(CPU)
        if ram_mib and MEMORY in given:
            _write(self._path, "memory.max", str(ram_mib << 20))
            self.enforced.append(MEMORY)
            for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):  # all of a job, not a worker
                if os.path.exists(os.path.join(self._path, name)):
                    _write(self._path, name, value)

    def enter(self) -> None:
        """Go in, so that what is started now begins there."""
        _write(self._path, "cgroup.procs", "0")

    def leave(self) -> None:
        """Go back to where we came from."""
        _write(self._own, "cgroup.procs", "0")

    def kills(self) -> int:
        """How many of its processes the kernel has killed for want of memory."""
        for line in _read(self._path, "memory.events").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
        return 0

    def remove(self) -> None:
        """When nothing is left in it; the kernel may need a moment to see that."""
        for _ in range(REMOVE_TRIES):
            if _remove(self._path):
                return
            time.sleep(REMOVE_EVERY_S)


def leaf_for(spec: dict[str, Any]) -> Leaf | None:
    """A group with the limits that were asked for; None where there is nothing to limit, or no way to."""
    cpus, ram_mib = spec.get("cpus") or 0, spec.get("ram_mib") or 0
    if not cpus and not ram_mib:
        return None
    try:
        parent = delegated()
        _hand_down(parent)
        leaf = Leaf(os.path.join(parent, _name(spec)), MOUNT + _group_of("self"))
        return leaf if _made(leaf, os.path.join(parent, _name(spec)), cpus, ram_mib) else None
    except (OSError, NotEnforcedError):
        return None


def remove_left(spec: dict[str, Any]) -> None:
    """The group of an attempt whose supervisor was killed, once all of its processes are gone."""
    try:
        _remove(os.path.join(delegated(), _name(spec)))
    except (OSError, NotEnforcedError):
        return


def _made(leaf: Leaf, path: str, cpus: int, ram_mib: int) -> bool:
    os.makedirs(path, exist_ok=True)
    try:
        leaf.limit(cpus, ram_mib)
    except OSError:
        _remove(path)
        raise
    if not leaf.enforced:
        _remove(path)
    return bool(leaf.enforced)


def _hand_down(parent: str) -> None:
    """Let the groups below have the controllers."""
    missing = set(controllers(parent)) - set(_read(parent, "cgroup.subtree_control").split())
    if missing:
        _write(parent, "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(missing)))


def _name(spec: dict[str, Any]) -> str:
    return f"job-{spec['job_id']}.{spec['attempt']}.{spec['run_id']}"


def _group_of(pid: int | str) -> str:
    try:
        with open(f"/proc/{pid}/cgroup") as file:
            for line in file:
                if line.startswith("0::"):
                    return line[3:].rstrip("\n")
    except OSError:
        pass
    return "/"


def _is_marked(group: str) -> bool:
    for name in MARKS:
        try:
            if os.getxattr(group, name) == b"1":
                return True
        except OSError:
            continue
    return False


def _remove(path: str) -> bool:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _read(group: str, name: str) -> str:
    try:
        with open(os.path.join(group, name)) as file:
            return file.read()
    except OSError:
        return ""


def _write(group: str, name: str, value: str) -> None:
    handle = os.open(os.path.join(group, name), os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, value.encode())
    finally:
        os.close(handle)
