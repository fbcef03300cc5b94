"""Linux calls that Python's standard library lacks, and the process tree in /proc."""

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
    import ctypes  # imported late: command-line clients use this file but not ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def become_subreaper() -> None:
    """Make this process the subreaper: orphans among its descendants become its children, not init's."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signal_number: int) -> None:
    """Ask the kernel to send this signal when the parent dies; 0 cancels that."""
    _prctl(PR_SET_PDEATHSIG, signal_number)


def set_name(name: str) -> None:
    """Set this process' name in ps and top, cut to 15 bytes."""
    _prctl(PR_SET_NAME, name.encode()[:15])


def boot_id() -> str:
    """Return an ID of this boot of the machine or container. A restarted container has a new first process."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    try:
        return f"{boot}.{start_time(1)}"
    except OSError:  # /proc may show only our own processes
        return boot


def host_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory: in our control group, or else on the host."""
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
    """Return how many seconds the machine has been suspended since boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def start_time(pid: int | str = "self") -> int:
    """Return when a process started, in clock ticks since boot. Together with the pid it identifies a process."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


class Family:
    """The tree of living processes at one moment."""

    def __init__(self) -> None:
        self._children: dict[int, list[int]] = {}
        self.pids: list[int] = []
        for name in os.listdir("/proc"):
            if name.isdigit() and (parent := _parent_if_alive(name)) is not None:
                self.pids.append(int(name))
                self._children.setdefault(parent, []).append(int(name))

    def children(self, pid: int) -> list[int]:
        """Return the direct children of a process."""
        return self._children.get(pid, [])

    def descendants(self, pid: int) -> list[int]:
        """Return all processes below this one, nearest first."""
        below = list(self.children(pid))
        for child in below:
            below.extend(self.children(child))
        return below


def _parent_if_alive(pid: str) -> int | None:
    """Return the parent's pid; None if the process is dead.

    A zombie counts as dead, unless only its main thread has ended and others still run.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
        if state == b"Z" and len(os.listdir(f"/proc/{pid}/task")) <= 1:
            return None
    except OSError:
        return None  # it has just ended
    return int(parent)


def descendants(root: int) -> list[int]:
    """Return all living processes below this one, nearest first."""
    return Family().descendants(root)


def own_children() -> list[int]:
    """Return the children of this process, zombies too. Needs one read, where a Family needs hundreds.

    Works only in a process with one thread.
    """
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []  # the kernel was built without this file


def is_below(pid: int, root: int) -> bool:
    """Return whether `pid` is `root` or descends from it. Walks up from `pid`, which takes only a few reads."""
    while pid > 1 and pid != root:
        pid = _parent_if_alive(str(pid)) or 0
    return pid == root


def moved_bytes(pids: list[int]) -> int:
    """Return how many bytes these processes have read and written so far, on files and pipes. Unknown counts as 0."""
    moved = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/io", "rb") as file:
                moved += sum(int(line.split()[1]) for line in file if line.startswith((b"rchar", b"wchar")))
        except OSError:
            continue  # it has just ended, or belongs to another user
    return moved


def kill_all(pids: list[int]) -> None:
    """Kill these processes. SIGSTOP goes to all of them first, so that they cannot fork faster than we kill."""
    import signal

    send(pids, signal.SIGSTOP)
    send(pids, signal.SIGKILL)


def send(pids: list[int], *signals: signal.Signals) -> None:
    """Send the signals to each process. Skip those that are gone or that we may not signal."""
    for pid in pids:
        for number in signals:
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                break
