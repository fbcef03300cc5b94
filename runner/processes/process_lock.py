"""The locks of a state folder: which process is up, and how to make it leave."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING

from runner.config import home
from runner.errors import OperatorError
from runner.file_lock import is_locked
from runner.processes import doorbell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEEPER_LOCK = "keeper.lock"
LEAVES_WITHIN_S = 30.0
LOCK_TRIES, LOCK_AGAIN_S = 100, 0.005


def holder(folder: str, name: str) -> int | None:
    """Return the pid of the process that holds a lock of the state folder; None if it is free."""
    return written_pid(folder, name) if is_locked(os.path.join(folder, name)) else None


def runner_is_up(folder: str) -> bool:
    """Return whether a runner is up for this state folder."""
    return holder(folder, home.RUNNER_LOCK) is not None


def written_pid(folder: str, name: str) -> int | None:
    """Return the pid written in a lock file, whether or not the lock is held; None if there is none."""
    try:
        with open(os.path.join(folder, name), encoding="ascii") as file:
            return int(file.readline().strip() or 0) or None
    except (FileNotFoundError, ValueError):
        return None


def is_ready(folder: str, pid: int, lock: str = home.RUNNER_LOCK, bell: str = home.RUNNER_BELL) -> bool:
    """Return whether the process with this pid is fully up: it wrote its pid and listens on its doorbell.

    It does not test the lock. A test would take the lock for a moment. If the process starts at that moment, it would
    find the lock taken and believe that another process is already up.
    """
    return written_pid(folder, lock) == pid and doorbell.ring(folder, bell)


@contextlib.contextmanager
def held(folder: str, name: str) -> Iterator[int]:
    """Hold a lock of the state folder, with our pid in it. Yield its descriptor; raise OperatorError if it is taken."""
    lock = os.open(os.path.join(folder, name), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        if not _taken(lock):
            pid = written_pid(folder, name) or "?"
            raise OperatorError(
                f"nightshift is already up for {folder} (pid {pid}). Stop it with `nightshift down` "
                "(running jobs go on), or set NIGHTSHIFT_HOME to another folder."
            )
        named = f"{os.getpid()}\n".encode()
        os.pwrite(lock, named, 0)  # overwrite first, truncate later: the file is never empty
        os.ftruncate(lock, len(named))
        yield lock
    finally:
        os.close(lock)


def _taken(lock: int) -> bool:
    """Try for half a second to take the lock; `holder` in another process may hold it for an instant."""
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_AGAIN_S)
        else:
            return True
    return False


def ask_to_leave(folder: str, name: str) -> bool:
    """Ask the holder of a lock to leave, and wait until it has. Return False if nobody holds it."""
    pid = holder(folder, name)
    return pid is not None and make_leave(folder, pid, lambda: holder(folder, name) == pid)


def make_leave(folder: str, pid: int, is_it: Callable[[], bool], *, insist: bool = False) -> bool:
    """Send SIGTERM to a process and wait up to 30 s until it ends.

    Return False if it is already gone, or if `is_it` says that the pid now belongs to another process. If it does not
    end in time, kill it with `insist`; otherwise raise OperatorError.
    """
    import select
    import signal

    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_it():  # checked after pidfd_open: from here on the pid cannot be reused
            return False
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        if not select.select([handle], [], [], LEAVES_WITHIN_S)[0]:
            if not insist:
                raise OperatorError(
                    f"Process {pid} has not left within {LEAVES_WITHIN_S:.0f} s; see {folder}/nightshift.log."
                    f" `kill -9 {pid}` ends it; running jobs go on."
                )
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            select.select([handle], [], [])
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
