"""A continuous copy of the queue in another folder. If that folder is full, gone or hangs, the queue still works."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from typing import TYPE_CHECKING

from runner.config import home as state
from runner.errors import OperatorError
from runner.processes import doorbell
from runner.rundir import write_atomically
from runner.store.box import Box, BoxKey
from runner.store.connection import DATABASE, DatabaseError, connect
from runner.store.restoring import PREVIOUS, box_value, create, remove

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.store.connection import Store

log = logging.getLogger(__name__)

LINEAGE = "lineage"
AT_MOST_EVERY_S = 1.0
SHARE_OF_TIME = 0.1  # copying a large queue may take this share of the time, no more
TRY_AGAIN_AT_MOST_S, LONGEST_PAUSE_S = 30.0, 300.0
FAILS_AFTER = 2  # failures in a row; a single one is not reported
HANGS_AFTER_S = 60.0
FIRST_WITHIN_S = 30.0
LAST_WITHIN_S = 10.0


class Backup:
    """Copies the database after changes, in a thread of its own; waits for that thread have a time-out."""

    def __init__(self, store: Store, folder: str | None) -> None:
        self._store, self.folder = store, folder
        self._wake, self._leaving, self._tried = threading.Event(), threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._covered = 0.0  # all commits up to this moment of the monotonic clock are copied
        self._began: float | None = None  # when the current copy began
        self._failures, self._error = 0, ""
        self._then: Callable[[], None] | None = None
        before = Box(store).get(BoxKey.BACKUP) or {}
        worked_before = folder is not None and folder == before.get("folder")
        self.is_apart = worked_before and bool(before.get("is_apart"))  # on another disk than the queue
        if folder:
            self._thread = threading.Thread(target=self._run, name="backup", daemon=True)
            self._wake.set()
            self._thread.start()
            if not worked_before:
                self._refuse_if_it_never_worked()

    def changed(self) -> None:
        """Wake the thread: there may be something new to copy."""
        self._wake.set()

    def covers(self, moment: float, then: Callable[[], None]) -> bool:
        """Return whether everything committed by this moment of the monotonic clock is copied, or there is no backup.

        If not, the thread calls `then` after its next copy.
        """
        if self._thread is None or self._covered >= moment:
            return True
        self._then = then
        self._wake.set()
        return False

    def works(self) -> bool:
        """Return whether a copy was made and none has failed since."""
        return self._covered > 0 and not self._failures

    def trouble(self) -> str | None:
        """Return why no copies are made; None if they are, or if it is too early to tell."""
        began = self._began
        if began is not None and time.monotonic() - began > HANGS_AFTER_S:
            return f"access to it has hung for {HANGS_AFTER_S:.0f} s"
        return self._error if self._failures >= FAILS_AFTER else None

    def close(self) -> None:
        """Make a last copy, unless that takes too long."""
        if self._thread:
            self._leaving.set()
            self._wake.set()
            self._thread.join(LAST_WITHIN_S)
            if self._thread.is_alive():
                log.error("access to NIGHTSHIFT_BACKUP_DIR=%s hangs: the last changes are not copied", self.folder)

    def _refuse_if_it_never_worked(self) -> None:
        """Raise OperatorError if the first copy to a new folder fails: better now than after a crash."""
        if self._tried.wait(FIRST_WITHIN_S) and self._covered:
            return
        self._leaving.set()
        why = self._error or f"Access to NIGHTSHIFT_BACKUP_DIR={self.folder} has hung for {FIRST_WITHIN_S:.0f} s."
        raise OperatorError(f"{why} Repair it, name another folder, or unset it.")

    def _run(self) -> None:
        seen = None
        while True:
            self._wake.wait()
            self._wake.clear()
            leaving, began = self._leaving.is_set(), time.monotonic()
            self._began = began
            seen = self._copy_if_changed(seen)
            self._began = None
            if seen is not None:
                self._made(began)
            self._tried.set()
            if leaving:
                return
            self._leaving.wait(self._pause_s(time.monotonic() - began))

    def _pause_s(self, took_s: float) -> float:
        doubled = max(0, min(self._failures - FAILS_AFTER, 10))
        again_s = min(AT_MOST_EVERY_S * (1 << doubled), TRY_AGAIN_AT_MOST_S)
        return max(again_s, min(took_s / SHARE_OF_TIME, LONGEST_PAUSE_S))  # capped: a copy may have hung

    def _made(self, began: float) -> None:
        self._covered = began
        if self._failures:
            self._failures = 0
            self._ring()
        then, self._then = self._then, None
        if then:
            then()

    def _copy_if_changed(self, seen: bytes | None) -> bytes | None:
        """Copy the queue if it differs from `seen`. Return the state that is copied now; None if the copy failed."""
        assert self.folder is not None
        try:
            now = _state_of(self._store.home)
            if now != seen:
                self._store.refuse_lost()  # never copy another queue
                self._refuse_if_unmounted(self.folder)
                copy(self._store.home, self.folder)
        except (OSError, OperatorError) as error:
            why = _unwritable(self.folder, error) if isinstance(error, OSError) else str(error)
            log.error("the backup in %s failed: %s", self.folder, why)
            self._failures, self._error = self._failures + 1, why
            self._wake.set()
            self._ring()
            return None
        return now

    def _refuse_if_unmounted(self, folder: str) -> None:
        """Raise OperatorError if the folder was on another disk and is on the queue's now: it may be unmounted."""
        os.makedirs(folder, mode=0o700, exist_ok=True)
        apart = os.stat(folder).st_dev != os.stat(self._store.home).st_dev
        if self.is_apart and not apart:
            raise OperatorError(f"NIGHTSHIFT_BACKUP_DIR={folder} is no longer on a disk of its own: is it mounted?")
        self.is_apart = apart

    def _ring(self) -> None:
        """Wake the runner: it may have to write a notice."""
        doorbell.ring(self._store.home, state.RUNNER_BELL)


def _state_of(home: str) -> bytes:
    """Return inodes, sizes and times of the database's files, which change with every commit."""
    found = []
    for name in (DATABASE, DATABASE + "-wal"):
        with contextlib.suppress(FileNotFoundError):
            info = os.stat(os.path.join(home, name))
            found.append(f"{info.st_ino} {info.st_size} {info.st_mtime_ns}")
    return "\n".join(found).encode()


def copy(home: str, folder: str) -> None:
    """Put a complete, consistent copy of the queue into the folder, and keep the previous copy."""
    local = os.path.join(home, "backup.tmp")
    try:
        lineage = _copy_here(home, local)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _put_strangers_aside(folder, lineage)
        _put(local, os.path.join(folder, DATABASE), os.path.join(folder, PREVIOUS))
    except OSError as error:
        raise OperatorError(_unwritable(folder, error)) from error
    except DatabaseError as error:
        raise OperatorError(f"The queue in {home} cannot be copied: {error}.") from error
    finally:
        remove(local)


def _unwritable(folder: str, error: OSError) -> str:
    return f"NIGHTSHIFT_BACKUP_DIR={folder} cannot be written to: {error.strerror}."


def _copy_here(home: str, local: str) -> str:
    """Copy the queue on the same disk. Return its lineage."""
    create(local)
    with (
        contextlib.closing(connect(os.path.join(home, DATABASE))) as source,
        contextlib.closing(connect(local)) as target,
    ):
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")
        return box_value(target, BoxKey.LINEAGE) or ""


def _put_strangers_aside(folder: str, lineage: str) -> None:
    """Rename the copy of another queue instead of overwriting it: it may be all that is left of that queue."""
    label = os.path.join(folder, LINEAGE)
    there = _text_of(label)
    if there is not None and there != lineage:
        for name in (DATABASE, PREVIOUS):
            path = os.path.join(folder, name)
            if os.path.exists(path):
                os.replace(path, f"{path}.{there[:8]}")
                log.warning("%s held the copy of another queue; it is kept as %s.%s", folder, name, there[:8])
    if there != lineage:
        write_atomically(label, lineage.encode())


def _text_of(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return None


def _put(local: str, target: str, previous: str) -> None:
    """Copy the file to the mount and rename it when it is complete. SQLite never opens a file there."""
    arriving = target + ".arriving"
    with (
        open(local, "rb") as source,
        open(os.open(arriving, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file,
    ):
        shutil.copyfileobj(source, file, 1 << 20)
        file.flush()
        os.fsync(file.fileno())
    if os.path.exists(target):
        os.replace(target, previous)
    os.replace(arriving, target)
