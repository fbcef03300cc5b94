"""Checks of the state folder: its rights, its disk, the database and the sockets in it, and its backup."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from contextlib import closing
from typing import TYPE_CHECKING

from runner.terminal.checks.finding import FAIL, INFO, OK, WARN, Finding, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

LOW_MIB, EMPTY_MIB = 1024, 64
MIB = 1 << 20
BELL = "doctor.sock"
ANSWERS_WITHIN_S = 10.0


def folder(home: str) -> Iterator[Finding]:
    """Check who owns the folder and who may read it."""
    info = os.stat(home)
    mode = stat.S_IMODE(info.st_mode)
    yield verdict(
        info.st_uid == os.geteuid(),
        "state folder",
        home,
        f"{home} belongs to another account (uid {info.st_uid})",
        "run as that account, or set NIGHTSHIFT_HOME to a folder of your own",
    )
    yield verdict(
        not mode & 0o077,
        "its rights",
        f"{mode:04o}",
        f"{mode:04o}: others can look into it, and the queue holds your environment",
        f"chmod 700 {home}",
    )


def disk(home: str) -> Iterator[Finding]:
    """Check that the folder is on a local disk, and that there is space left."""
    from runner.store.filesystem import filesystem_of, is_network

    kind = filesystem_of(home)
    yield verdict(
        not is_network(kind),
        "its disk",
        kind or "unknown",
        f"a network mount ({kind}), where the queue could be damaged",
        f"NIGHTSHIFT_HOME on the local disk, and NIGHTSHIFT_BACKUP_DIR={home}",
    )
    yield room(home, "free space")


def room(path: str, name: str) -> Finding:
    """Return a finding about the free space, and about how many more files fit."""
    from runner.units import format_mib

    free_mib = shutil.disk_usage(path).free / MIB
    files = os.statvfs(path)
    if files.f_files and files.f_favail < 1000:
        return Finding(FAIL, name, f"only {files.f_favail} more files fit", "remove files: nightshift prune")
    if free_mib < LOW_MIB:
        level = FAIL if free_mib < EMPTY_MIB else WARN
        return Finding(level, name, f"only {format_mib(free_mib)}", "make room: nightshift prune --older-than 30d")
    return Finding(OK, name, format_mib(free_mib))


def sqlite() -> Iterator[Finding]:
    """Check the version of SQLite: older ones can damage a database in WAL mode."""
    from runner.store.connection import SOUND_SQLITE
    from runner.store.connection import sqlite_version as version

    wanted = ".".join(map(str, SOUND_SQLITE))
    yield verdict(
        tuple(map(int, version.split("."))) >= SOUND_SQLITE,
        "sqlite",
        version,
        f"{version}: before {wanted} two processes that write at once can damage the queue",
        "pip install pysqlite3 (a wheel with a newer one), or a newer Python",
        level=WARN,
    )


def database(home: str) -> Iterator[Finding]:
    """Check that the database is undamaged and in WAL mode."""
    from runner.store.connection import DATABASE, StoreError, open_store

    path = os.path.join(home, DATABASE)
    try:
        with closing(open_store(home, begin=False)) as store:
            if not store.exists:
                yield Finding(INFO, "database", "none yet; the first job makes it")
                return
            said = store.row("PRAGMA quick_check")[0]
            mode = store.row("PRAGMA journal_mode")[0]
            count = store.row("SELECT count(*) FROM jobs")[0]
    except StoreError as error:
        yield Finding(FAIL, "database", str(error))
        return
    yield verdict(
        said == "ok",
        "database",
        f"whole, {count:,} jobs",
        f"damaged: {said}",
        f"stop nightshift, move {path} away, and restore a backup (NIGHTSHIFT_BACKUP_DIR)",
    )
    yield verdict(
        mode == "wal",
        "journal",
        "WAL",
        f"{mode}, not WAL: readers block writers",
        "the disk does not allow shared memory",
    )


def audit(home: str) -> Iterator[Finding]:
    """Check that nobody changed the record of who did what."""
    from runner.store.audit import Audit
    from runner.store.connection import DATABASE, identity_of, open_store

    if identity_of(os.path.join(home, DATABASE)) is None:
        return
    with closing(open_store(home, begin=False)) as store:
        broken = Audit(store).first_broken()
    yield verdict(
        broken is None,
        "audit",
        "every action follows from those before it",
        f"row {broken} does not follow from those before it: somebody changed the record",
        "nightshift audit shows it; a job can do this too, it has your account's rights",
        level=WARN,
    )


def sockets(home: str) -> Iterator[Finding]:
    """Check that a doorbell works in the state folder, even if its path is long."""
    from runner.processes.doorbell import Doorbell, ring

    try:
        with closing(Doorbell(home, BELL)):
            heard = ring(home, BELL)
        os.unlink(os.path.join(home, BELL))
    except OSError:
        heard = False
    yield verdict(
        heard,
        "sockets",
        "a doorbell rings",
        "no Unix socket can be made in the state folder",
        "set NIGHTSHIFT_HOME to a folder on a local disk",
    )


def backup(folder: str | None) -> Iterator[Finding]:
    """Check the backup folder in a thread: a mount that hangs must not hang the doctor."""
    if folder is None:
        yield Finding(INFO, "backup", "none: NIGHTSHIFT_BACKUP_DIR is not set")
        return
    found: list[Finding] = []
    look = threading.Thread(target=lambda: found.extend(_copies_in(folder)), daemon=True)
    look.start()
    look.join(ANSWERS_WITHIN_S)
    hangs = Finding(FAIL, "backup", f"{folder} has not answered for {ANSWERS_WITHIN_S:.0f} s", "repair the mount")
    yield from [hangs] if look.is_alive() else found


def _copies_in(folder: str) -> Iterator[Finding]:
    probe = os.path.join(folder, f".doctor.{os.getpid()}")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(probe, "w", encoding="ascii") as file:
            file.write("?")
        os.unlink(probe)
    except OSError as error:
        yield Finding(FAIL, "backup", f"{folder} cannot be written to: {error.strerror}", "mount it, or name another")
        return
    yield Finding(OK, "backup", folder)
    yield room(folder, "its space")
