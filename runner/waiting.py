"""Waiting for jobs to end: woken by the database file itself, which changes with every commit."""

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
SAFETY_S = 5.0  # a filesystem that tells of no changes


class Changes:
    """Tells when anything in these folders is written to."""

    def __init__(self, *folders: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for folder in folders if self._descriptor >= 0 else ():
            libc.inotify_add_watch(self._descriptor, os.fsencode(folder), IN_MODIFY | IN_CREATE | IN_MOVED_TO)

    def wait(self, timeout_s: float = SAFETY_S) -> None:
        """Until something changed, or so long."""
        ready, _, _ = select.select([self._descriptor] if self._descriptor >= 0 else [], [], [], timeout_s)
        if ready:
            os.read(self._descriptor, 1 << 16)

    def close(self) -> None:
        """Stop listening."""
        if self._descriptor >= 0:
            os.close(self._descriptor)


def wait_until(folder: str, done: Callable[[], bool]) -> None:
    """Return when `done` says so; asked again whenever something in the folder changes."""
    changes = Changes(folder)
    try:
        while not done():
            changes.wait()
    finally:
        changes.close()


def wait_for(queue: Queue, job_ids: Sequence[int]) -> int:
    """Return when all these jobs have ended: 0 if all succeeded, else the code of the first that did not."""
    left = [queue.job(job_id).id for job_id in job_ids]

    def done() -> bool:
        # one look at a time, however many there are: all must end, so it does not matter which is looked at
        while left and queue.job(left[-1]).state in FINAL_STATES:
            left.pop()
        return not left

    wait_until(queue.home, done)
    for job_id in job_ids:
        job = queue.job(job_id)
        if job.state is not State.SUCCEEDED:
            return job.exit_code or (128 + job.signal if job.signal else 1)
    return 0
