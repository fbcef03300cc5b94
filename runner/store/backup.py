"""A continuous copy of the queue in another folder, and the way back from it."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time

from runner.errors import OperatorError
from runner.model import Reason, State
from runner.store.connection import DATABASE, SCHEMA_VERSION, DatabaseError, Row, Store, connect

log = logging.getLogger(__name__)

PREVIOUS = DATABASE + ".previous"
AT_MOST_EVERY_S = 1.0
SHARE_OF_TIME = 0.1  # copying a large queue may take this share of the time, no more


class Backup:
    """Copies the database after changes, from a thread of its own, so that a slow mount delays no job."""

    def __init__(self, home: str, folder: str | None) -> None:
        self._home, self._folder = home, folder
        self._wake, self._leaving = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        if folder:
            copy(home, folder)  # a folder that cannot be written to is an error now, not at the next crash
            self._thread = threading.Thread(target=self._run, name="backup", daemon=True)
            self._thread.start()

    def changed(self) -> None:
        """There may be something new to copy."""
        self._wake.set()

    def close(self) -> None:
        """Copy a last time."""
        if self._thread:
            self._leaving.set()
            self._wake.set()
            self._thread.join()

    def _run(self) -> None:
        seen = None
        with contextlib.closing(connect(os.path.join(self._home, DATABASE))) as connection:
            while True:
                self._wake.wait()
                self._wake.clear()
                leaving, began = self._leaving.is_set(), time.monotonic()
                version = connection.execute("PRAGMA data_version").fetchone()[0]
                if version != seen:
                    seen = version if self._copy() else None
                if leaving:
                    return
                self._leaving.wait(max(AT_MOST_EVERY_S, (time.monotonic() - began) / SHARE_OF_TIME))

    def _copy(self) -> bool:
        assert self._folder is not None
        try:
            copy(self._home, self._folder)
        except (OSError, OperatorError, DatabaseError) as error:
            log.error("the backup in %s failed: %s", self._folder, error)
            self._wake.set()
            return False
        return True


def copy(home: str, folder: str) -> None:
    """Put a whole, consistent copy of the queue into the folder, keeping the one before."""
    local = os.path.join(home, "backup.tmp")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(local)
    with (
        contextlib.closing(connect(os.path.join(home, DATABASE))) as source,
        contextlib.closing(connect(local)) as target,
    ):
        source.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _put(local, os.path.join(folder, DATABASE), os.path.join(folder, PREVIOUS))
    except OSError as error:
        raise OperatorError(
            f"NIGHTSHIFT_BACKUP_DIR={folder} cannot be written to: {error.strerror}. Mend the mount or unset it."
        ) from error
    finally:
        os.unlink(local)


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

    Jobs that were under way when their disk was wiped are LOST: what became of them is not known any more.
    """
    for name in (DATABASE, PREVIOUS, DATABASE + ".arriving"):
        candidate = os.path.join(folder, name)
        if os.path.exists(candidate) and _bring_back(candidate, path):
            log.warning("the queue was restored from %s", candidate)
            return True
    return False


def _bring_back(candidate: str, path: str) -> bool:
    from runner.store import schema

    arriving = path + ".restoring"
    shutil.copyfile(candidate, arriving)
    os.chmod(arriving, 0o600)
    try:
        with contextlib.closing(connect(arriving)) as connection:
            whole = connection.execute("PRAGMA quick_check").fetchone()[0] == "ok"
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        if not whole or version == 0:
            return False
        if version <= SCHEMA_VERSION:
            schema.migrate(arriving)
            _lose_what_was_under_way(arriving)
    except DatabaseError:
        return False
    os.replace(arriving, path)
    return True


def _lose_what_was_under_way(path: str) -> None:
    from runner.store.jobs import Jobs

    connection = connect(path, isolation_level=None)
    connection.row_factory = Row
    store = Store(os.path.dirname(path), connection)
    with contextlib.closing(store), store.transaction():
        jobs = Jobs(store)
        for job in jobs.live():
            if job.stop is None and jobs.use_retry(job):
                jobs.back_to_queue(job, "a retry was asked for", (State.LOST, Reason.HOST))
            else:
                jobs.ended(job, State.LOST, Reason.HOST, None)
        store.execute("DELETE FROM leases")
