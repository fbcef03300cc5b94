"""Sends one notice when the disk of the state folder is nearly full, and one when it has room again."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.notices import DiskBack, DiskLow
from runner.step import Step
from runner.store.box import BoxKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.step import Context

log = logging.getLogger(__name__)

EVERY_S = 20.0
ENOUGH = 1.1  # times the limit: right at the limit, notices would go back and forth
FEW_FILES, ENOUGH_FILES = 1000, 1100


def room_on(folder: str) -> tuple[int, int | None]:
    """Return the free MiB on the folder's disk, and how many more files fit. None: the disk does not count files."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize >> 20, disk.f_favail if disk.f_files else None


class DiskWatch(Step):
    """Keeps what it has reported in the database, so that the next runner does not report it again."""

    def __init__(self, context: Context, room: Callable[[str], tuple[int, int | None]] = room_on) -> None:
        self._home, self._least_mib = context.settings.home, context.settings.disk_warning
        self._box, self._notices, self._waiter, self._room = context.box, context.notices, context.waiter, room
        self._looks_at = 0.0  # monotonic clock
        self._low_since: str | None = None  # kept here too, because a full disk may have no room to store it

    def tick(self) -> None:
        """Check the disk every 20 s."""
        now = time.monotonic()
        if not self._least_mib or now < self._looks_at:
            return
        self._looks_at = now + EVERY_S
        self._waiter.tick_in(EVERY_S)
        try:
            free_mib, files = self._room(self._home)
        except OSError as error:
            log.warning("the disk's free space cannot be read: %s", error)
            return
        self._judge(free_mib, files)

    def _judge(self, free_mib: int, files: int | None) -> None:
        reported = self._box.get(BoxKey.DISK_LOW)
        room: dict[str, Any] = {"free_mib": free_mib, "files": files, "folder": self._home}
        if free_mib < self._least_mib or (files is not None and files < FEW_FILES):
            self._low_since = self._low_since or clock.text(clock.now())
            if reported is None:
                log.warning("only %s MiB are free for %s", free_mib, self._home)
                self._box.set(BoxKey.DISK_LOW, {**room, "since": self._low_since})
                self._notices.add(DiskLow(**room))
            elif (reported["free_mib"], reported["files"]) != (free_mib, files):
                self._box.set(BoxKey.DISK_LOW, {**reported, **room})
        elif free_mib >= self._least_mib * ENOUGH and (files is None or files >= ENOUGH_FILES):
            since = reported["since"] if reported else self._low_since
            self._low_since = None
            if since is not None:
                self._box.set(BoxKey.DISK_LOW, None)
                self._notices.add(DiskBack(**room, since=since))
