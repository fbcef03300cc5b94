"""Linux calls that Python's standard library lacks, and the process tree in /proc."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Collection, Iterable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CGROUPS = "/sys/fs/cgroup"
CHUNK = 1 << 14


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
    """Set this process' name in ps and top, cut to 15 bytes. Only for a process with one thread."""
    with open("/proc/self/comm", "wb", buffering=0) as file:
        file.write(name.encode()[:15])


def readable_signals(heard: Iterable[signal.Signals], ignored: Iterable[signal.Signals]) -> int:
    """Return a descriptor from which the heard signals can be read, one byte each. Ignore the others."""
    import signal

    hear, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    for number in heard:
        signal.signal(number, lambda *_: None)
    return hear


def boot_id() -> str:
    """Return an ID of this boot of the machine or container. A restarted container has a new first process."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    try:
        return f"{boot}.{start_time(1)}"
    except OSError:  # /proc may show only our own processes
        return boot


def read(path: str) -> bytes:
    """Return the content of a small file; nothing if it cannot be read, like that of an ended process in /proc."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:  # not `open`: it makes four more system calls
        parts = [os.read(file, CHUNK)]
        while parts[-1]:
            parts.append(os.read(file, CHUNK))
    except OSError:
        return b""
    finally:
        os.close(file)
    return b"".join(parts)


def host_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory: in our control group, or else on the host."""
    in_group = oom_kills(f"{CGROUPS}{cgroup_of('self')}/memory.events")
    return (oom_kills("/proc/vmstat") or 0) if in_group is None else in_group


def oom_kills(path: str) -> int | None:
    """Return how many out-of-memory kills a file of counters has; None if it does not count them."""
    for line in read(path).splitlines():
        if line.startswith(b"oom_kill "):
            return int(line.split()[1])
    return None


def cgroup_of(pid: int | str) -> str:
    """Return the path of a process' control group (cgroup v2) below CGROUPS; "/" if it has none."""
    for line in read(f"/proc/{pid}/cgroup").splitlines():
        if line.startswith(b"0::"):
            return os.fsdecode(line[3:])
    return "/"


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

    Works only in a process with one thread. Returns none if the kernel was built without this file.
    """
    return [int(pid) for pid in read(f"/proc/self/task/{os.getpid()}/children").split()]


def is_below(pid: int, root: int) -> bool:
    """Return whether `pid` is `root` or descends from it. Walks up from `pid`, which takes only a few reads."""
    while pid > 1 and pid != root:
        pid = _parent_if_alive(str(pid)) or 0
    return pid == root


def nearest(pid: int, roots: Collection[int]) -> int | None:
    """Return the first of these processes on the way up from `pid`, itself included; None if there is none."""
    while pid > 1 and pid not in roots:
        pid = _parent_if_alive(str(pid)) or 0
    return pid if pid in roots else None


def moved_bytes(pids: list[int]) -> int:
    """Return how many bytes these processes have read and written so far, on files and pipes. Unknown counts as 0."""
    lines = (line for pid in pids for line in read(f"/proc/{pid}/io").splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith((b"rchar", b"wchar")))


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
