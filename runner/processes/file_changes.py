"""Waits for changes of files, by inotify."""

from __future__ import annotations

import ctypes
import os
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

IN_MODIFY, IN_CREATE, IN_MOVED_TO, IN_ONESHOT = 0x2, 0x100, 0x80, 0x80000000
SAFETY_S = 5.0  # look at least this often: some filesystems report no changes


class Changes:
    """Waits for changes of these files, or of files in these folders."""

    def __init__(self, *paths: str) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.changed: set[int] = set()  # the numbers of those that changed during the last wait
        for path in paths:
            self.add(path)

    def add(self, path: str) -> int:
        """Watch one more file or folder. Return its number, or -1 if it cannot be watched."""
        if self._descriptor < 0:
            return -1
        mask = IN_MODIFY | IN_CREATE | IN_MOVED_TO
        return int(self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask))

    def add_once(self, folder: str) -> int:
        """Watch a folder until the next file is moved there. Return its number, or -1 if it cannot be watched."""
        if self._descriptor < 0:
            return -1
        return int(self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), IN_MOVED_TO | IN_ONESHOT))

    def fileno(self) -> int:
        """Return the descriptor for an event loop; negative if this host cannot watch files."""
        return int(self._descriptor)

    def read(self) -> set[int]:
        """Return the numbers of those that changed. To be called when the descriptor is readable."""
        return _watches_in(os.read(self._descriptor, 1 << 16))

    def drop(self, watch: int) -> None:
        """Stop watching one."""
        if self._descriptor >= 0 and watch >= 0:
            self._libc.inotify_rm_watch(self._descriptor, watch)

    def wait(self, timeout_s: float = SAFETY_S, also: Sequence[int] = ()) -> list[int]:
        """Wait for a change, the time-out, or input on `also`. Return the descriptors in `also` that can be read."""
        own = [self._descriptor] if self._descriptor >= 0 else []
        ready, _, _ = select.select([*own, *also], [], [], timeout_s)
        self.changed = self.read() if self._descriptor in ready else set()
        return [descriptor for descriptor in ready if descriptor != self._descriptor]

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _watches_in(events: bytes) -> set[int]:
    watches, at = set(), 0
    while at + 16 <= len(events):
        watches.add(int.from_bytes(events[at : at + 4], "little", signed=True))
        at += 16 + int.from_bytes(events[at + 12 : at + 16], "little")
    return watches
