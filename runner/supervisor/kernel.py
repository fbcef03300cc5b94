"""What the supervisor needs of Linux beyond Python's standard library, and the tree of processes in /proc."""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int | bytes) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
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
    """Changes when the machine starts anew, or the container: its first process is then another."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    try:
        return f"{boot}.{start_time(1)}"
    except OSError:  # /proc shows us our own processes only
        return boot


def start_time(pid: int | str = "self") -> int:
    """When a process began, in clock ticks since boot: with the pid, its identity."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def parents() -> dict[int, int]:
    """The parent of every process there is, zombies left out: they hold nothing any more."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue  # it ended meanwhile
        if state != b"Z":
            found[int(name)] = int(parent)
    return found


def descendants(root: int) -> list[int]:
    """Everything below a process, nearest first."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def send(pids: list[int], *signals: signal.Signals) -> None:
    """Send signals to all of them; those already gone, or no longer ours, are passed over."""
    for pid in pids:
        for number in signals:
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                break
