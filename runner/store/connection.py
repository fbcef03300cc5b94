"""The connection to the queue's file: which SQLite is used, how the file is opened, read and written.

The file, its WAL or the WAL's index may be deleted, truncated or replaced while a process has them open. SQLite would
not notice, and would write to files that no other process can open. So before every transaction and after every commit
the paths must still name the open files, and these must not have shrunk: nightshift never makes them smaller.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING, Any, NoReturn

from runner.errors import OperatorError
from runner.store.schema import SCHEMA_VERSION

# Two copies of SQLite in one process would drop each other's locks, so there is one place that picks one.
try:
    import pysqlite3 as sqlite3
except ImportError:
    import sqlite3

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence, Sized
    from contextlib import AbstractContextManager

    Identity = tuple[int, int]  # device and inode of a file
    Files = tuple["os.stat_result | None", ...]  # the database, its WAL, and the WAL's index

DATABASE = "nightshift.db"
OPENING_LOCK = "opening.lock"
BUSY_S = 15.0
LOCK_AGAIN_S = 0.005
NO_ROOM = 1 << 20  # bytes: with less free, SQLite may report an I/O error
SOUND_SQLITE = (3, 51, 3)  # before this version, two processes writing one WAL can corrupt it
_READS = ("SELECT", "WITH", "PRAGMA", "EXPLAIN")

DatabaseError = sqlite3.Error
Row = sqlite3.Row
sqlite_version: str = sqlite3.sqlite_version


_PART_OF_ANOTHER = contextlib.nullcontext()


class StoreError(OperatorError):
    """The database cannot be used. A change that failed has left nothing behind."""


class QueueLostError(StoreError):
    """The queue's file is gone, replaced or damaged. A process that has it open must exit."""


class Store:
    """A connection of this process to the queue. Do not use it after a fork.

    Without `files` it is an empty queue in memory, for reading. The first change creates the real one.
    """

    def __init__(
        self, home: str, connection: sqlite3.Connection, files: Files | None, backup_dir: str | None = None
    ) -> None:
        self.home = home
        self.connection = connection
        self._path = os.path.join(home, DATABASE)
        self._files, self._backup_dir = files, backup_dir

    @property
    def exists(self) -> bool:
        """Return whether the queue has a file; without one it is empty."""
        return self._files is not None

    def transaction(self) -> AbstractContextManager[None]:
        """Commit all of the block or nothing; durable on return. Inside another transaction it is part of that one."""
        return _PART_OF_ANOTHER if self.connection.in_transaction else self._transaction()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self.connection.rollback()
            raise
        self.refuse_lost()

    def execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> sqlite3.Cursor:
        """Execute one statement."""
        if not self.connection.in_transaction:
            self._look_at_files(sql)
        try:  # not `reading`: a job takes some fifty statements
            return self.connection.execute(sql, values)
        except sqlite3.DatabaseError as error:
            fail(self.home, error)

    def rows(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """Return all rows of a query, with columns by name."""
        try:
            return list(self.execute(sql, values))
        except sqlite3.DatabaseError as error:
            fail(self.home, error)

    def row(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """Return the first row of a query, or None."""
        try:
            return self.execute(sql, values).fetchone()
        except sqlite3.DatabaseError as error:
            fail(self.home, error)

    def value(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """Return the first column of the first row of a query; None if there is no row."""
        row = self.row(sql, values)
        return row[0] if row else None

    def tuples(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query as plain tuples, in a third of the time that `rows` takes."""
        cursor = self.execute(sql, values)
        cursor.row_factory = None
        with self.reading():
            return list(cursor)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Turn the errors of SQLite in this block into StoreError."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            fail(self.home, error)

    def refuse_lost(self) -> None:
        """Raise QueueLostError unless the paths still name the open files. Threads may call this."""
        held = self._files  # read before the disk is: another thread may store larger sizes meanwhile
        if held is None:
            return
        now = _files_at(self._path)
        if not all(map(_goes_on, held, now)):
            raise QueueLostError(
                f"The queue's file {self._path} was removed, cut or replaced while it was in use, and what was written "
                "last may be lost. Put the file back if you have it. Otherwise `nightshift up` brings back the copy in "
                "NIGHTSHIFT_BACKUP_DIR, or begins a new queue where there is none."
            )
        self._files = now

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _look_at_files(self, sql: str) -> None:
        if self._files is not None:
            self.refuse_lost()
        elif not sql.lstrip().startswith(_READS) or os.path.exists(self._path):
            made = open_store(self.home, backup_dir=self._backup_dir)
            self.connection.close()
            self.connection, self._files = made.connection, made._files


class Table:
    """Queries about one subject, over one connection."""

    def __init__(self, store: Store) -> None:
        self._store = store


def _files_at(path: str) -> Files:
    return _stat(path), _stat(path + "-wal"), _stat(path + "-shm")


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _goes_on(before: os.stat_result | None, now: os.stat_result | None) -> bool:
    """Return whether this is the same file and it has not shrunk, or there is none, as before."""
    if before is None or now is None:
        return before is now
    return (before.st_ino, before.st_dev) == (now.st_ino, now.st_dev) and before.st_size <= now.st_size


def marks(values: Sized) -> str:
    """Return one question mark for each value, for `IN (…)`."""
    return ", ".join("?" * len(values))


def identity_of(path: str) -> Identity | None:
    """Return device and inode of a file; None if it is missing or empty."""
    info = _stat(path)
    return (info.st_dev, info.st_ino) if info and info.st_size else None


def fail(home: str, error: sqlite3.DatabaseError) -> NoReturn:
    """Raise an SQLite error as StoreError, or QueueLostError if the file is damaged. Constraint errors stay as is."""
    message, is_full = str(error), _is_full(home)
    if is_damaged(home, error):
        raise QueueLostError(
            f"The queue's file {os.path.join(home, DATABASE)} is damaged ({message}). Stop nightshift, move the file "
            "away and start nightshift again: it brings back the copy in NIGHTSHIFT_BACKUP_DIR, or begins a new queue "
            "where there is none."
        ) from error
    if not isinstance(error, sqlite3.OperationalError):
        raise error
    if is_full or "full" in message:
        full = f"The disk that holds {home} is full. Free some space and try again; nothing was lost."
        raise StoreError(full) from error
    if "locked" in message:
        raise _busy(home) from error
    raise StoreError(f"The queue in {home} cannot be used ({message}). `nightshift doctor` tells more.") from error


def is_damaged(home: str, error: sqlite3.Error) -> bool:
    """Return whether an SQLite error says that a file in this folder is damaged."""
    return type(error) is sqlite3.DatabaseError or ("disk I/O" in str(error) and not _is_full(home))


def _busy(home: str) -> StoreError:
    return StoreError(f"The queue in {home} is held by another process for more than {BUSY_S:.0f} s. Try again.")


def _is_full(home: str) -> bool:
    try:
        room = os.statvfs(home)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < NO_ROOM


def open_store(home: str, *, backup_dir: str | None = None, begin: bool = True) -> Store:
    """Open the queue in this state folder. Upgrade it, or restore it from its copy, if needed.

    If there is none, `begin` creates a new one. Without `begin`, nothing is created before the first change, and a
    folder with traces of a lost queue is refused.
    """
    prepare_home(home)
    path = os.path.join(home, DATABASE)
    try:
        with _opening(home):
            return _opened(home, path, backup_dir, begin)
    except sqlite3.DatabaseError as error:
        fail(home, error)


def _opened(home: str, path: str, backup_dir: str | None, begin: bool) -> Store:
    version = 0
    if identity_of(path) is not None:
        store = _held(home, path)
        version = int(store.row("PRAGMA user_version")[0])
        if version == SCHEMA_VERSION and not (begin and backup_dir and _is_unused(store)):
            return store
        store.close()
    from runner.store import first_start

    if first_start.make_ready(home, path, version, backup_dir, begin):
        return _held(home, path)
    return Store(home, first_start.empty_queue(), None, backup_dir)


def _held(home: str, path: str) -> Store:
    """Connect, and record which files are open. Raise StoreError if the file was replaced meanwhile."""
    before = identity_of(path)
    connection = _connect(path)
    connection.execute("PRAGMA schema_version").fetchone()  # opens the WAL
    store = Store(home, connection, _files_at(path))
    if identity_of(path) != before:
        raise _busy(home)
    return store


def _is_unused(store: Store) -> bool:
    """Return whether it has no jobs and was never copied: it may be in the place of a queue that was lost."""
    from runner.store.box import Box, BoxKey

    return store.value("SELECT 1 FROM jobs LIMIT 1") is None and not Box(store).any(BoxKey.BACKUP)


@contextlib.contextmanager
def _opening(home: str) -> Iterator[None]:
    """Let one process at a time check and create the schema: SQLite does not always wait for locks there."""
    lock = os.open(os.path.join(home, OPENING_LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        give_up_at = time.monotonic() + BUSY_S
        while not _taken(lock):
            if time.monotonic() > give_up_at:
                raise _busy(home)
            time.sleep(LOCK_AGAIN_S)
        yield
    finally:
        os.close(lock)


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def prepare_home(home: str) -> None:
    """Create the state folder. Raise OperatorError if it belongs to another account or others may read it."""
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


def connect(path: str, **how: Any) -> sqlite3.Connection:
    """Open an existing database. Never create one."""
    escaped = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return sqlite3.connect(f"file://{escaped}?mode=rw", uri=True, timeout=BUSY_S, **how)


def in_memory() -> sqlite3.Connection:
    """Return an empty database in memory."""
    return _set_up(sqlite3.connect(":memory:", **_AS_STORE))


def _connect(path: str) -> sqlite3.Connection:
    return _set_up(connect(path, **_AS_STORE))


_AS_STORE: dict[str, Any] = {"isolation_level": None, "check_same_thread": False}


def _set_up(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA synchronous = FULL")
    return connection
