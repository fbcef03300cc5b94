"""Restore the queue from its copy. The folder with the copies may hang, so reading it has a time-out."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.errors import OperatorError
from runner.model import Phase, State
from runner.store.box import BoxKey
from runner.store.connection import DATABASE, DatabaseError, connect
from runner.store.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from runner.store.connection import Store

log = logging.getLogger(__name__)

PREVIOUS = DATABASE + ".previous"
RESCUED = ".rescued"
ANSWERS_WITHIN_S = 30.0
AT_ONCE = 1 << 20


class Copy(NamedTuple):
    """A complete copy on the local disk, ready for use."""

    path: str
    origin: str
    lineage: str
    has_jobs: bool


def newest_copy(folder: str | None, path: str) -> Copy | None:
    """Fetch the newest complete copy of the queue that belongs at `path`; None if there is none.

    The runner treats jobs that were live when the copy was made as after any crash: it adopts them if they still run,
    and otherwise records them as LOST. It never takes them for jobs that have not run.
    """
    if copy := _fetched(path + RESCUED, path):
        return copy
    origins = [os.path.join(folder, name) for name in (DATABASE, PREVIOUS)] if folder else []
    for origin in origins:
        if copy := _fetched(origin, path):
            return copy
    if any(map(os.path.exists, origins)):
        raise OperatorError(
            f"The copies of the queue in {folder} cannot be read, and there is no queue in {os.path.dirname(path)}. To "
            "begin a new one, move them away or unset NIGHTSHIFT_BACKUP_DIR."
        )
    return None


def _fetched(origin: str, path: str) -> Copy | None:
    arriving = path + ".restoring"
    remove(arriving)
    if not _Fetching(origin, arriving).is_there():
        return None
    copy = _made_ready(origin, arriving, os.path.dirname(path))
    if copy is None:
        remove(arriving)
    return copy


def rescue(store: Store) -> None:
    """Save the content of a deleted queue file that this process still has open. The next start restores it."""
    path = os.path.join(store.home, DATABASE)
    if os.path.exists(path):  # it was not deleted, or another queue is there
        return
    arriving = f"{path}{RESCUED}.new"
    try:
        create(arriving)
        with contextlib.closing(connect(arriving)) as target:
            store.connection.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
        os.replace(arriving, path + RESCUED)
    except (DatabaseError, OSError) as error:
        log.error("what was in %s could not be saved: %s", path, error)
    else:
        log.error("%s was removed; what was in it is saved, and restored at the next start", path)


def forget_rescued(path: str) -> None:
    """Delete what `rescue` saved: the queue was restored, so it is out of date."""
    remove(path + RESCUED)


class _Fetching(threading.Thread):
    """Copies one file from the folder, in a thread that is abandoned if the folder hangs."""

    def __init__(self, origin: str, target: str) -> None:
        super().__init__(name="fetching", daemon=True)
        self._origin, self._target = origin, target
        self._moved_at = time.monotonic()
        self._error: OSError | None = None
        self.start()

    def is_there(self) -> bool:
        """Wait until the file is copied. Return False if there is none; raise OperatorError if reading fails."""
        while self.is_alive():
            self.join(max(0.0, self._moved_at + ANSWERS_WITHIN_S - time.monotonic()))
            if self.is_alive() and time.monotonic() > self._moved_at + ANSWERS_WITHIN_S:
                raise OperatorError(
                    f"Reading {self._origin} has hung for {ANSWERS_WITHIN_S:.0f} s, so the queue cannot be restored "
                    "from it. Repair the mount, or unset NIGHTSHIFT_BACKUP_DIR to begin a new queue."
                )
        if self._error is None:
            return True
        if isinstance(self._error, (FileNotFoundError, NotADirectoryError)):
            return False
        raise OperatorError(
            f"{self._origin} cannot be read: {self._error.strerror}. Repair the mount, or unset "
            "NIGHTSHIFT_BACKUP_DIR to begin a new queue."
        ) from self._error

    def run(self) -> None:
        """Copy the file in pieces."""
        try:
            with open(self._origin, "rb") as source:
                target = os.open(self._target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
                with open(target, "wb") as file:
                    while piece := source.read(AT_ONCE):
                        file.write(piece)
                        self._moved_at = time.monotonic()
        except OSError as error:
            self._error = error


def _made_ready(origin: str, arriving: str, home: str) -> Copy | None:
    """Check a copy and upgrade it to this version's schema. Return None if it is damaged or empty."""
    from runner.notices import QueueRestored  # slow to import, and rarely needed
    from runner.store import migrating

    try:
        with contextlib.closing(connect(arriving)) as connection:
            whole = connection.execute("PRAGMA quick_check").fetchone()[0] == "ok"
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if not whole or version == 0:
                return None
            _refuse_strangers_copy(origin, box_value(connection, BoxKey.HOME), home)
            has_jobs = connection.execute("SELECT 1 FROM jobs LIMIT 1").fetchone() is not None
            copy = Copy(arriving, origin, box_value(connection, BoxKey.LINEAGE) or "", has_jobs)
        if version <= SCHEMA_VERSION:
            migrating.migrate(arriving)
            _expect_claimed_jobs_to_run(arriving)
            migrating.note(arriving, QueueRestored(origin=origin))
    except DatabaseError:
        return None
    return copy


def _refuse_strangers_copy(origin: str, theirs: str | None, home: str) -> None:
    if theirs is not None and theirs != home:
        raise OperatorError(
            f"{origin} is the copy of the queue in {theirs}, not of {home}. Two queues from one copy would run jobs "
            "twice: give each state folder a NIGHTSHIFT_BACKUP_DIR of its own, or set NIGHTSHIFT_HOME back."
        )


def _expect_claimed_jobs_to_run(path: str) -> None:
    """Mark STARTING jobs as RUNNING: they may have run since the copy was made, and must not be started again."""
    from runner.store.jobs import change_state

    with contextlib.closing(connect(path)) as connection:
        for (job_id,) in connection.execute("SELECT id FROM jobs WHERE state = 'STARTING'").fetchall():
            change_state(connection.execute, job_id, State.STARTING, State.RUNNING, phase=Phase.RUNNING.value)
        connection.commit()


def lineage_of(path: str) -> str | None:
    """Return the lineage of the queue in a database, or None."""
    with contextlib.closing(connect(path)) as connection:
        return box_value(connection, BoxKey.LINEAGE)


def box_value(connection: Any, key: BoxKey) -> str | None:
    """Return a value from the box as text, or None."""
    row = connection.execute("SELECT value FROM box WHERE name = ?", (key.value,)).fetchone()
    return str(json.loads(row[0])) if row else None


def create(path: str) -> None:
    """Create an empty file for a database; delete what is there."""
    remove(path)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def remove(path: str) -> None:
    """Delete a database with its WAL, index and journal, if they exist."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)
