"""Checks of the settings, of the state folder with its database, sockets and backup, and of the runner."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from contextlib import closing
from typing import TYPE_CHECKING

from runner.api import Queue
from runner.config.home import PREFIX, RUNNER_LOCK
from runner.model import State
from runner.processes.doorbell import Doorbell, ring
from runner.processes.process_lock import KEEPER_LOCK, holder
from runner.store.audit import Audit
from runner.store.box import BoxKey
from runner.store.connection import DATABASE, SOUND_SQLITE, StoreError, identity_of, open_store, sqlite_version
from runner.store.filesystem import filesystem_of, is_network
from runner.store.jobs import Jobs
from runner.terminal.checks import FAIL, INFO, OK, WARN, Finding, verdict
from runner.text.words import did_you_mean
from runner.units import format_mib

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runner.config.settings import Settings

LOW_MIB, EMPTY_MIB = 1024, 64
MIB = 1 << 20
BELL = "doctor.sock"
ANSWERS_WITHIN_S = 10.0
# Variables that nightshift sets for jobs. A doctor that runs inside a job must not report them as mistakes.
_IN_JOBS = (
    *("JOB_ID", "JOB_CPUS", "JOB_RAM_MIB", "RUN_ID", "ATTEMPT", "SUBMIT_DIR"),
    *("BATCH_SIZE", "GRAD_ACCUM", "PROBE", "SCRATCH"),
)
_SECRET = ("token", "password", "secret", "key")


def settings(loaded: Settings) -> Iterator[Finding]:
    """Report the settings that differ from their defaults."""
    fields = type(loaded).model_fields
    changed = ", ".join(
        f"{name.upper()}={without_secret(name, value)}"
        for name, value in sorted(loaded.model_dump().items())
        if name in loaded.model_fields_set and value != fields[name].get_default(call_default_factory=True)
    )
    yield Finding(OK, "settings", f"{changed}; the others have their defaults" if changed else "all at their defaults")


def without_secret(name: str, value: object) -> str:
    """Return a value as it may be shown: secrets are hidden."""
    return "(hidden)" if any(word in name.lower() for word in _SECRET) else str(value)


def variables(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Warn about NIGHTSHIFT_ variables that are not settings."""
    from runner.config.settings import CHAT_SETTINGS, Settings

    names = [name.upper() for name in (*Settings.model_fields, *CHAT_SETTINGS)]
    for variable in sorted(environ):
        name = variable.removeprefix(PREFIX)
        if variable.startswith(PREFIX) and name not in names and name not in _IN_JOBS:
            hint = did_you_mean(variable, [PREFIX + other for other in names])
            yield Finding(WARN, "variables", f"{variable} is not a setting{hint}", f"correct it, or: unset {variable}")


def runner(home: str) -> Iterator[Finding]:
    """Check that a runner is up and serves this queue, and that jobs may start."""
    pid = holder(home, RUNNER_LOCK)
    if pid is None:
        yield Finding(WARN, "runner", "not up: jobs wait", "nightshift up --detach")
        return
    restarted = ", restarted if it dies" if holder(home, KEEPER_LOCK) else ""
    yield verdict(
        _has_open(pid, os.path.join(home, DATABASE)),
        "runner",
        f"up (pid {pid}{restarted})",
        f"up (pid {pid}{restarted}), but the queue on the disk is another one: the file was replaced",
        "nightshift down && nightshift up --detach",
    )
    yield from _held(home)


def _has_open(pid: int, path: str) -> bool:
    """Return whether a process has this very file open. True if that is unknown or there is no such file."""
    folder = f"/proc/{pid}/fd"
    try:
        held = {identity_of(f"{folder}/{name}") for name in os.listdir(folder)}
    except OSError:
        return True
    return identity_of(path) in held - {None} if os.path.exists(path) else True


def _held(home: str) -> Iterator[Finding]:
    with Queue(home, actor="doctor") as queue:
        for key in (BoxKey.PAUSED, BoxKey.DRAINING):
            if held := queue.box.get(key):
                why = held.get("why") or f"by {held.get('by')}"
                yield Finding(WARN, "queue", f"{key.value}: {why}", "nightshift resume")
        if since := (queue.box.get(BoxKey.BACKUP) or {}).get("failing_since"):
            yield Finding(WARN, "copies", f"none since {since}", "the runner's log says why: the backup in … failed")


def env_file_rights(path: str | None) -> Iterator[Finding]:
    """Check that nobody else can read the env file: it may contain the token."""
    if path is None or not os.path.exists(path):
        return
    if os.stat(path).st_mode & 0o077:
        yield Finding(FAIL, "env file", f"others can read {path}", f"chmod 600 {path}")
    else:
        yield Finding(INFO, "env file", path)


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
    wanted = ".".join(map(str, SOUND_SQLITE))
    yield verdict(
        tuple(map(int, sqlite_version.split("."))) >= SOUND_SQLITE,
        "sqlite",
        sqlite_version,
        f"{sqlite_version}: before {wanted} two processes that write at once can damage the queue",
        "pip install pysqlite3 (a wheel with a newer one), or a newer Python",
        level=WARN,
    )


def database(home: str) -> Iterator[Finding]:
    """Check that the database is undamaged and in WAL mode."""
    path = os.path.join(home, DATABASE)
    try:
        with closing(open_store(home, begin=False)) as store:
            if not store.exists:
                yield Finding(INFO, "database", "none yet; the first job makes it")
                return
            said = store.row("PRAGMA quick_check")[0]
            mode = store.row("PRAGMA journal_mode")[0]
            count = Jobs(store).count(*State)
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
    findings: list[Finding] = []
    look = threading.Thread(target=lambda: findings.extend(_copies_in(folder)), daemon=True)
    look.start()
    look.join(ANSWERS_WITHIN_S)
    hangs = Finding(FAIL, "backup", f"{folder} has not answered for {ANSWERS_WITHIN_S:.0f} s", "repair the mount")
    yield from [hangs] if look.is_alive() else findings


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
