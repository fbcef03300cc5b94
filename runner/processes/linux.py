"""What the supervisor needs of Linux beyond Python's standard library, and the tree of processes in /proc."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int | bytes) -> None:
    import ctypes  # what the clients use of this file does without

    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def become_subreaper() -> None:
    """Orphans among our descendants become our children instead of init's."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signal_number: int) -> None:
    """Get this signal when the parent dies; 0 takes it back."""
    _prctl(PR_SET_PDEATHSIG, signal_number)


def set_name(name: str) -> None:
    """How this process is called in ps and top; 15 bytes."""
    _prctl(PR_SET_NAME, name.encode()[:15])


def boot_id() -> str:
    """Identify this boot of the machine, or of the container: a new one has another first process."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    try:
        return f"{boot}.{start_time(1)}"
    except OSError:  # /proc shows us our own processes only
        return boot


def host_kills() -> int:
    """How many processes the kernel has killed for want of memory: of our control group, or else on the host."""
    for path in (_memory_events(), "/proc/vmstat"):
        try:
            with open(path, "rb") as file:
                for line in file:
                    if line.startswith(b"oom_kill "):
                        return int(line.split()[1])
        except OSError:
            continue
    return 0


def _memory_events() -> str:
    try:
        with open("/proc/self/cgroup") as file:
            return f"/sys/fs/cgroup{file.readline().rpartition('::')[2].strip()}/memory.events"
    except OSError:
        return "/sys/fs/cgroup/memory.events"


def asleep_s() -> float:
    """How long the machine has been suspended since it was booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def start_time(pid: int | str = "self") -> int:
    """When a process began, in clock ticks since boot: with the pid, its identity."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


class Family:
    """Who descends from whom, at one moment."""

    def __init__(self) -> None:
        self._children: dict[int, list[int]] = {}
        self.pids: list[int] = []
        for name in os.listdir("/proc"):
            if name.isdigit() and (parent := _parent_if_alive(name)) is not None:
                self.pids.append(int(name))
                self._children.setdefault(parent, []).append(int(name))

    def children(self, pid: int) -> list[int]:
        """Those right below a process."""
        return self._children.get(pid, [])

    def descendants(self, pid: int) -> list[int]:
        """Everything below a process, nearest first."""
        found = list(self.children(pid))
        for child in found:
            found.extend(self.children(child))
        return found


def _parent_if_alive(pid: str) -> int | None:
    """A zombie holds nothing any more, unless it is only the first of its threads that has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
        if state == b"Z" and len(os.listdir(f"/proc/{pid}/task")) <= 1:
            return None
    except OSError:
        return None  # it ended meanwhile
    return int(parent)


def descendants(root: int) -> list[int]:
    """Everything below a process, nearest first."""
    return Family().descendants(root)


def own_children() -> list[int]:
    """The children of this process, which has one thread, dead ones too: one read, where a Family takes hundreds."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []  # a kernel that was built without it


def is_below(pid: int, root: int) -> bool:
    """Whether a process is another or descends from it; asked from below, it costs a few reads."""
    while pid > 1 and pid != root:
        pid = _parent_if_alive(str(pid)) or 0
    return pid == root


def moved_bytes(pids: list[int]) -> int:
    """All that these processes have read and written so far, from files and pipes alike; 0 for what is not told."""
    moved = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/io", "rb") as file:
                moved += sum(int(line.split()[1]) for line in file if line.startswith((b"rchar", b"wchar")))
        except OSError:
            continue  # it ended meanwhile, or is another user's
    return moved


def send(pids: list[int], *signals: signal.Signals) -> None:
    """Send signals to all of them; those already gone, or no longer ours, are passed over."""
    for pid in pids:
        for number in signals:
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                break
