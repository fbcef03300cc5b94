"""Tell whether a file is locked. Clients ask this at every start, so it imports almost nothing."""

from __future__ import annotations

import fcntl
import os


def is_locked(path: str) -> bool:
    """Return whether another process holds the lock on a file; False if there is no file."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
