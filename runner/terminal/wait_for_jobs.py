"""Waits for jobs to end. It wakes when the database file changes, which happens at every commit."""

from __future__ import annotations

import ctypes
import os
import select
from typing import TYPE_CHECKING

from runner.model import FINAL_STATES, State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runner.api import Queue

IN_MODIFY, IN_CREATE, IN_MOVED_TO = 0x2, 0x100, 0x80
SAFETY_S = 5.0  # look at least this often: some filesystems report no changes


class Changes:
    """Waits for changes in these folders, by inotify."""

    def __init__(self, *folders: str) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for folder in folders:
            self.add(folder)

    def add(self, folder: str) -> int:
        """Watch one more folder. Return its number for `drop`, or -1 if it cannot be watched."""
        if self._descriptor < 0:
            return -1
        mask = IN_MODIFY | IN_CREATE | IN_MOVED_TO
        return int(self._libc.inotify_add_watch(self._descriptor, os.fsencode(folder), mask))

    def drop(self, watch: int) -> None:
        """Stop watching a folder."""
        if self._descriptor >= 0 and watch >= 0:
            self._libc.inotify_rm_watch(self._descriptor, watch)

    def wait(self, timeout_s: float = SAFETY_S, also: Sequence[int] = ()) -> list[int]:
        """Wait for a change, the time-out, or input on `also`. Return the descriptors in `also` that can be read."""
        own = [self._descriptor] if self._descriptor >= 0 else []
        ready, _, _ = select.select([*own, *also], [], [], timeout_s)
        if self._descriptor in ready:
            os.read(self._descriptor, 1 << 16)
        return [descriptor for descriptor in ready if descriptor != self._descriptor]

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor >= 0:
            os.close(self._descriptor)


def wait_until(folder: str, done: Callable[[], bool]) -> None:
    """Wait until `done` returns true. It is called whenever something in the folder changes, at least every 5 s."""
    changes = Changes(folder)
    try:
        while not done():
            changes.wait()
    finally:
        changes.close()


def wait_for(queue: Queue, job_ids: Sequence[int], say: Callable[[str], None] | None = None) -> int:
    """Wait until all these jobs have ended. Return 0 if all succeeded, else the code of the first that did not.

    If something that a person must lift holds the jobs back, call `say` with it, once each time it changes.
    """
    left = [queue.job(job_id).id for job_id in job_ids]
    unfinished, told = frozenset(left), list[str | None]([None])

    def done() -> bool:
        # look at one job at a time, however many there are: all must end, so the order does not matter
        while left and queue.job(left[-1]).state in FINAL_STATES:
            left.pop()
        if left and say and (held := queue.held_back(unfinished)) != told[-1]:
            told.append(held)
            if held:
                say(held)
        return not left

    wait_until(queue.home, done)
    for job_id in job_ids:
        job = queue.job(job_id)
        if job.state is not State.SUCCEEDED:
            return job.exit_code or (128 + job.signal if job.signal else 1)
    return 0
