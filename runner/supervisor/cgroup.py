"""A control group for each job that asked for CPU cores or memory, if systemd has delegated our group to us.

    <unit>              delegated (Delegate=yes); contains no process itself, as the kernel demands
    <unit>/nightshift   our own processes (DelegateSubgroup=nightshift)
    <unit>/job-...      one job's group, with its limits; removed when the job ends

If something is missing, the job runs without limits: they protect jobs from each other and are no condition to run.
Only groups that systemd marks as delegated are changed. Root could write to others, but would disturb systemd.
"""

from __future__ import annotations

import contextlib
import os
import time

from runner.processes import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runner.model import Ref
    from runner.rundir import AttemptSpec

MEMORY, CPU = "memory", "cpu"
PERIOD_US = 100_000
MARKS = ("user.delegate", "trusted.delegate")  # attributes that systemd sets on a delegated group
REMOVE_TRIES, REMOVE_EVERY_S = 40, 0.005


class NotEnforcedError(Exception):
    """Jobs cannot get their own groups. The message says why in a few words."""


def delegated(pid: int | str = "self") -> str:
    """Return the group in which a process may create groups for jobs. Raise NotEnforcedError if there is none."""
    if not os.path.exists(os.path.join(linux.CGROUPS, "cgroup.controllers")):
        raise NotEnforcedError("this host has no unified control groups (cgroup v2)")
    own = linux.cgroup_of(pid)
    if own == "/":
        raise NotEnforcedError("nightshift runs in the topmost control group")
    parent = os.path.dirname(linux.CGROUPS + own)
    if not _is_marked(parent) or not os.access(os.path.join(parent, "cgroup.subtree_control"), os.W_OK):
        raise NotEnforcedError("its control group is not delegated")
    if not controllers(parent):
        raise NotEnforcedError("its control group has neither the cpu nor the memory controller")
    if _read(parent, "cgroup.procs").strip():
        raise NotEnforcedError("processes are in the delegated control group itself")
    return parent


def controllers(group: str) -> list[str]:
    """Return which of the cpu and memory controllers a group has."""
    return [name for name in (CPU, MEMORY) if name in _read(group, "cgroup.controllers").split()]


class Leaf:
    """The group of one attempt."""

    def __init__(self, path: str, own: str) -> None:
        self._path, self._own = path, own
        self.enforced: list[str] = []

    def limit(self, cpus: int, ram_mib: int) -> None:
        """Set the limits for which the group has the controllers, and note them in `enforced`."""
        available = controllers(self._path)
        if cpus and CPU in available:
            _write(self._path, "cpu.max", f"{cpus * PERIOD_US} {PERIOD_US}")
            self.enforced.append(CPU)
        if ram_mib and MEMORY in available:
            _write(self._path, "memory.max", str(ram_mib << 20))
            self.enforced.append(MEMORY)
            for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):  # kill the job, not one worker
                if os.path.exists(os.path.join(self._path, name)):
                    _write(self._path, name, value)

    def enter(self) -> None:
        """Move this process into the group, so that the job it starts begins there."""
        _write(self._path, "cgroup.procs", "0")

    def leave(self) -> None:
        """Move this process back to its own group."""
        with contextlib.suppress(OSError):
            _write(self._own, "cgroup.procs", "0")

    def kills(self) -> int:
        """Return how many processes in the group the kernel has killed for lack of memory."""
        return linux.oom_kills(os.path.join(self._path, "memory.events")) or 0

    def remove(self) -> None:
        """Remove the empty group. Try for 0.2 s: the kernel may need a moment after the last process has ended."""
        for _ in range(REMOVE_TRIES):
            if _remove(self._path):
                return
            time.sleep(REMOVE_EVERY_S)


def enter_leaf(spec: AttemptSpec) -> Leaf | None:
    """Create a group with the limits of this spec and enter it. Return None if no limit can be set."""
    try:
        parent = delegated()
        _enable_controllers(parent)
        path = os.path.join(parent, _name(spec.job_id, spec.attempt, spec.run_id))
        os.makedirs(path, exist_ok=True)
    except (OSError, NotEnforcedError):
        return None
    leaf = Leaf(path, linux.CGROUPS + linux.cgroup_of("self"))
    with contextlib.suppress(OSError):
        leaf.limit(spec.cpus, spec.ram_mib)
        if leaf.enforced:
            leaf.enter()
            return leaf
    leaf.remove()
    return None


def remove_leftover(ref: Ref) -> None:
    """Remove the group of an attempt whose supervisor was killed, if all of its processes are gone."""
    with contextlib.suppress(NotEnforcedError):
        _remove(os.path.join(delegated(), _name(*ref)))


def _enable_controllers(parent: str) -> None:
    """Enable the controllers for the groups below."""
    missing = set(controllers(parent)) - set(_read(parent, "cgroup.subtree_control").split())
    if missing:
        _write(parent, "cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(missing)))


def _name(job_id: int, attempt: int, run_id: str) -> str:
    return f"job-{job_id}.{attempt}.{run_id}"


def _is_marked(group: str) -> bool:
    for name in MARKS:
        with contextlib.suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return False


def _remove(path: str) -> bool:
    """Remove a group if it is empty. Return whether it is gone."""
    with contextlib.suppress(OSError):
        os.rmdir(path)
    return not os.path.exists(path)


def _read(group: str, name: str) -> str:
    return linux.read(os.path.join(group, name)).decode()


def _write(group: str, name: str, value: str) -> None:
    with open(os.path.join(group, name), "r+b", buffering=0) as file:  # raises an error if there is no such file
        file.write(value.encode())
