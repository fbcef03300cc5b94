"""Opening the database: which SQLite, on which disk, at which schema, and one way to write to it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, Any

from runner.errors import OperatorError

# Two copies of SQLite in one process would drop each other's locks, so there is one place that picks one.
try:
    import pysqlite3 as sqlite3
except ImportError:
    import sqlite3

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SCHEMA_VERSION = 6
DATABASE = "nightshift.db"
OPENING_LOCK = "opening.lock"
BUSY_S = 15.0
SOUND_SQLITE = (3, 51, 3)  # before it, a WAL written by two processes can be corrupted

DatabaseError = sqlite3.Error
connect = sqlite3.connect
Row = sqlite3.Row


class StoreError(OperatorError):
    """The database did not take it: nothing of the change is there."""


class Store:
    """A connection of this process to the queue. Never carried across a fork."""

    def __init__(self, home: str, connection: sqlite3.Connection) -> None:
        self.home = home
        self.connection = connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing, durable on return. Inside another transaction it is part of that one."""
        if self.connection.in_transaction:
            yield
            return
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.rollback()
            raise

    def execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> sqlite3.Cursor:
        """One statement."""
        try:
            return self.connection.execute(sql, values)
        except sqlite3.OperationalError as error:
            raise StoreError(_sentence(self.home, str(error))) from error

    def rows(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """All rows of a query; columns by name."""
        return list(self.execute(sql, values))

    def row(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """The first row of a query, or None."""
        return self.execute(sql, values).fetchone()

    def close(self) -> None:
        """End the connection."""
        self.connection.close()


def _sentence(home: str, said: str) -> str:
    if "full" in said or os.statvfs(home).f_bavail == 0:
        return f"The disk that holds {home} is full. Free some space and try again; nothing was lost."
    if "locked" in said:
        return f"The queue in {home} is held by another process for more than {BUSY_S:.0f} s. Try again."
    return f"The queue in {home} cannot be used ({said}). `nightshift doctor` tells more."


def open_store(home: str, *, backup_dir: str | None = None) -> Store:
    """Open the queue in this state folder, making or upgrading or restoring it where needed."""
    prepare_home(home)
    path = os.path.join(home, DATABASE)
    try:
        if not os.path.exists(path) or _version_of(path) != SCHEMA_VERSION:
            _make_ready(home, path, backup_dir)
        return Store(home, _connect(path))
    except sqlite3.Error as error:
        raise StoreError(_sentence(home, str(error))) from error


def prepare_home(home: str) -> None:
    """Make the state folder, or refuse one that others can look into."""
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        info = os.stat(home)
    except OSError as error:
        raise OperatorError(
            f"The state folder {home} cannot be made or read: {error.strerror}. "
            "Set NIGHTSHIFT_HOME to a folder on a local disk that you may write to."
        ) from error
    if info.st_uid != os.geteuid():
        raise OperatorError(
            f"The state folder {home} belongs to another account (uid {info.st_uid}). "
            "Run as that account, or set NIGHTSHIFT_HOME to a folder of your own."
        )
    if info.st_mode & 0o077:
        raise OperatorError(
            f"The state folder {home} can be read by others, and the queue holds your environment.\n  chmod 700 {home}"
        )


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _version_of(path: str) -> int:
    with contextlib.closing(_connect(path)) as connection:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        raise OperatorError(
            f"The queue in {os.path.dirname(path)} was written by a newer nightshift "
            f"(schema {version}; this one knows {SCHEMA_VERSION}). Upgrade nightshift, "
            "or set NIGHTSHIFT_HOME to another folder."
        )
    return version


def _make_ready(home: str, path: str, backup_dir: str | None) -> None:
    """Restore, create or migrate. Two first starts at once take turns here."""
    from runner.store import backup, disk, schema

    disk.refuse_network_mount(home)
    lock = os.open(os.path.join(home, OPENING_LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if backup_dir and not os.path.exists(path):
            backup.restore(backup_dir, path)
        if not os.path.exists(path) or _version_of(path) != SCHEMA_VERSION:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            schema.migrate(path)
            schema.name(path, home)
    finally:
        os.close(lock)
