"""A continuous copy of the queue in another folder, and the way back from it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

from runner.errors import OperatorError
from runner.rundir import write_atomically
from runner.store.connection import DATABASE, SCHEMA_VERSION, DatabaseError, connect

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

PREVIOUS = DATABASE + ".previous"
LINEAGE = "lineage"
AT_MOST_EVERY_S = 1.0
SHARE_OF_TIME = 0.1  # copying a large queue may take this share of the time, no more


class Backup:
    """Copies the database after changes, from a thread of its own, so that a slow mount delays no job."""

    def __init__(self, home: str, folder: str | None) -> None:
        self._home, self._folder = home, folder
        self._wake, self._leaving = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._covered = 0.0  # what was committed by then is copied, by the monotonic clock
        self._then: Callable[[], None] | None = None
        if folder:
            copy(home, folder)  # a folder that cannot be written to is an error now, not at the next crash
            self._thread = threading.Thread(target=self._run, name="backup", daemon=True)
            self._thread.start()

    def changed(self) -> None:
        """There may be something new to copy."""
        self._wake.set()

    def covers(self, moment: float, then: Callable[[], None]) -> bool:
        """Whether what was committed by this moment is copied; if not, the thread calls `then` when more is."""
        if self._thread is None or self._covered >= moment:
            return True
        self._then = then
        self._wake.set()
        return False

    def close(self) -> None:
        """Copy a last time."""
        if self._thread:
            self._leaving.set()
            self._wake.set()
            self._thread.join()

    def _run(self) -> None:
        seen = None
        while True:
            self._wake.wait()
            self._wake.clear()
            leaving, began = self._leaving.is_set(), time.monotonic()
            seen = self._copy_if_changed(seen)
            if seen is not None:
                self._covered = began
                then, self._then = self._then, None
                if then:
                    then()
            if leaving:
                return
            self._leaving.wait(max(AT_MOST_EVERY_S, (time.monotonic() - began) / SHARE_OF_TIME))

    def _copy_if_changed(self, seen: bytes | None) -> bytes | None:
        """The change counter of what is copied now; None if it has to be tried again."""
        assert self._folder is not None
        try:
            now = _state_of(self._home)
            if now != seen:
                copy(self._home, self._folder)
        except (OSError, OperatorError, DatabaseError) as error:
            log.error("the backup in %s failed: %s", self._folder, error)
            self._wake.set()
            return None
        return now


def _state_of(home: str) -> bytes:
    """Changes with every commit: sizes and times of the database's files."""
    found = []
    for name in (DATABASE, DATABASE + "-wal"):
        with contextlib.suppress(FileNotFoundError):
            info = os.stat(os.path.join(home, name))
            found.append(f"{info.st_ino} {info.st_size} {info.st_mtime_ns}")
    return "\n".join(found).encode()


def copy(home: str, folder: str) -> None:
    """Put a whole, consistent copy of the queue into the folder, keeping the one before."""
    local = os.path.join(home, "backup.tmp")
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(local)
        lineage = _copy_here(home, local)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _put_strangers_aside(folder, lineage)
        _put(local, os.path.join(folder, DATABASE), os.path.join(folder, PREVIOUS))
    except OSError as error:
        raise OperatorError(
            f"NIGHTSHIFT_BACKUP_DIR={folder} cannot be written to: {error.strerror}. Mend the mount or unset it."
        ) from error
    except DatabaseError as error:
        raise OperatorError(f"The queue in {home} cannot be copied: {error}.") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(local)


def _copy_here(home: str, local: str) -> str:
    """A copy on the same disk, and the lineage of the queue it is of."""
    with (
        contextlib.closing(connect(os.path.join(home, DATABASE))) as source,
        contextlib.closing(connect(local)) as target,
    ):
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")
        return _box_value(target, "lineage") or ""


def _put_strangers_aside(folder: str, lineage: str) -> None:
    """Never write over the copy of another queue: it may be all that is left of it."""
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
    """The database itself is never opened on the mount: only whole files go there, and by renaming."""
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


def restore(folder: str, path: str) -> bool:
    """Bring the queue back from the newest whole copy; False if there is none. The caller holds the opening lock.

    What was under way when the copy was made is taken up by the runner like after any crash: adopted where
    it still runs, LOST where nothing is left of it, never run twice.
    """
    found = [name for name in (DATABASE, PREVIOUS) if os.path.exists(os.path.join(folder, name))]
    for name in found:
        if _bring_back(os.path.join(folder, name), path):
            log.warning("the queue was restored from %s", os.path.join(folder, name))
            return True
    if found:
        raise OperatorError(
            f"The copies of the queue in {folder} cannot be read, and {os.path.dirname(path)} is empty. To begin a new "
            "queue, move them away or unset NIGHTSHIFT_BACKUP_DIR."
        )
    return False


def _bring_back(candidate: str, path: str) -> bool:
    from runner.store import schema

    arriving = path + ".restoring"
    for name in (arriving, path):
        for suffix in ("-wal", "-shm"):  # of a database that is gone; they must not be read into this one
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name + suffix)
    shutil.copyfile(candidate, arriving)
    os.chmod(arriving, 0o600)
    try:
        with contextlib.closing(connect(arriving)) as connection:
            whole = connection.execute("PRAGMA quick_check").fetchone()[0] == "ok"
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if not whole or version == 0:
                return False
            _refuse_strangers_copy(candidate, _box_value(connection, "home"), os.path.dirname(path))
        if version <= SCHEMA_VERSION:
            schema.migrate(arriving)
            _expect_nothing_of_what_was_claimed(arriving)
    except DatabaseError:
        return False
    os.replace(arriving, path)
    return True


def _refuse_strangers_copy(candidate: str, theirs: str | None, home: str) -> None:
    if theirs is not None and theirs != home:
        raise OperatorError(
            f"{candidate} is the copy of the queue in {theirs}, not of {home}. Two queues from one copy would run jobs "
            "twice: give each state folder a NIGHTSHIFT_BACKUP_DIR of its own, or set NIGHTSHIFT_HOME back."
        )


def _box_value(connection: Any, name: str) -> str | None:
    row = connection.execute("SELECT value FROM box WHERE name = ?", (name,)).fetchone()
    return str(json.loads(row[0])) if row else None


def _expect_nothing_of_what_was_claimed(path: str) -> None:
    """A job on its way to its start when the copy was made may have run since: it must not look as if it had not."""
    with contextlib.closing(connect(path)) as connection:
        connection.execute("UPDATE jobs SET state = 'RUNNING', phase = 'running' WHERE state = 'STARTING'")
        connection.commit()
