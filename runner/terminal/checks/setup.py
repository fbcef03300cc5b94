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
from runner.store.first_start import filesystem_of, is_network
from runner.store.jobs import Jobs
from runner.terminal.checks import FAIL, INFO, OK, WARN, Finding, Problem, check
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


@check("settings")
def settings(loaded: Settings) -> str:
    """Report the settings that differ from their defaults."""
    fields = type(loaded).model_fields
    changed = ", ".join(
        f"{name.upper()}={without_secret(name, value)}"
        for name, value in sorted(loaded.model_dump().items())
        if name in loaded.model_fields_set and value != fields[name].get_default(call_default_factory=True)
    )
    return f"{changed}; the others have their defaults" if changed else "all at their defaults"


def without_secret(name: str, value: object) -> str:
    """Return a value as it may be shown: secrets are hidden."""
    return "(hidden)" if any(word in name.lower() for word in _SECRET) else str(value)


@check("variables")
def variables(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Warn about NIGHTSHIFT_ variables that are not settings."""
    from runner.config.settings import CHAT_SETTINGS, Settings

    names = [name.upper() for name in (*Settings.model_fields, *CHAT_SETTINGS)]
    for variable in sorted(environ):
        name = variable.removeprefix(PREFIX)
        if variable.startswith(PREFIX) and name not in names and name not in _IN_JOBS:
            hint = did_you_mean(variable, [PREFIX + other for other in names])
            yield Finding(WARN, "variables", f"{variable} is not a setting{hint}", f"correct it, or: unset {variable}")


@check("runner")
def runner(home: str) -> Iterator[Finding]:
    """Check that a runner is up and serves this queue, and that jobs may start."""
    pid = holder(home, RUNNER_LOCK)
    if pid is None:
        raise Problem("not up: jobs wait", "nightshift up --detach", WARN)
    up = f"up (pid {pid}{', restarted if it dies' if holder(home, KEEPER_LOCK) else ''})"
    if _has_open(pid, os.path.join(home, DATABASE)):
        yield Finding(OK, "runner", up)
    else:
        text = f"{up}, but the queue on the disk is another one: the file was replaced"
        yield Finding(FAIL, "runner", text, "nightshift down && nightshift up --detach")
    yield from _blocked(home)


def _has_open(pid: int, path: str) -> bool:
    """Return whether a process has this very file open. True if that is unknown or there is no such file."""
    folder = f"/proc/{pid}/fd"
    try:
        opened = {identity_of(f"{folder}/{name}") for name in os.listdir(folder)}
    except OSError:
        return True
    return identity_of(path) in opened - {None} if os.path.exists(path) else True


def _blocked(home: str) -> Iterator[Finding]:
    """Yield what keeps all jobs from starting, and since when no backup was made."""
    with Queue(home, actor="doctor") as queue:
        for key in (BoxKey.PAUSED, BoxKey.DRAINING):
            if block := queue.box.get(key):
                why = block.get("why") or f"by {block.get('by')}"
                yield Finding(WARN, "queue", f"{key.value}: {why}", "nightshift resume")
        if since := (queue.box.get(BoxKey.BACKUP) or {}).get("failing_since"):
            yield Finding(WARN, "copies", f"none since {since}", "the runner's log says why: the backup in … failed")


@check("env file")
def env_file_rights(path: str) -> Iterator[Finding]:
    """Check that nobody else can read the env file: it may contain the token."""
    if os.path.exists(path):
        if os.stat(path).st_mode & 0o077:
            raise Problem(f"others can read {path}", f"chmod 600 {path}")
        yield Finding(INFO, "env file", path)


@check("state folder")
def owner(home: str) -> str:
    """Check who owns the state folder."""
    uid = os.stat(home).st_uid
    if uid != os.geteuid():
        fix = "run as that account, or set NIGHTSHIFT_HOME to a folder of your own"
        raise Problem(f"{home} belongs to another account (uid {uid})", fix)
    return home


@check("its rights")
def rights(home: str) -> str:
    """Check that nobody else may read the state folder."""
    mode = stat.S_IMODE(os.stat(home).st_mode)
    if mode & 0o077:
        raise Problem(f"{mode:04o}: others can look into it, and the queue holds your environment", f"chmod 700 {home}")
    return f"{mode:04o}"


@check("its disk")
def disk(home: str) -> str:
    """Check that the state folder is on a local disk."""
    kind = filesystem_of(home)
    if is_network(kind):
        fix = f"NIGHTSHIFT_HOME on the local disk, and NIGHTSHIFT_BACKUP_DIR={home}"
        raise Problem(f"a network mount ({kind}), where the queue could be damaged", fix)
    return kind or "unknown"


def room(path: str) -> str:
    """Return the free space. Raise Problem if it is little, or if few more files fit."""
    free_mib = shutil.disk_usage(path).free / MIB
    files = os.statvfs(path)
    if files.f_files and files.f_favail < 1000:
        raise Problem(f"only {files.f_favail} more files fit", "remove files: nightshift prune")
    if free_mib < LOW_MIB:
        level = FAIL if free_mib < EMPTY_MIB else WARN
        raise Problem(f"only {format_mib(free_mib)}", "make room: nightshift prune --older-than 30d", level)
    return format_mib(free_mib)


free_space, backup_space = check("free space")(room), check("its space")(room)


@check("sqlite")
def sqlite() -> str:
    """Check the version of SQLite: older ones can damage a database in WAL mode."""
    if tuple(map(int, sqlite_version.split("."))) < SOUND_SQLITE:
        wanted = ".".join(map(str, SOUND_SQLITE))
        text = f"{sqlite_version}: before {wanted} two processes that write at once can damage the queue"
        raise Problem(text, "pip install pysqlite3 (a wheel with a newer one), or a newer Python", WARN)
    return sqlite_version


@check("database")
def database(home: str) -> Iterator[Finding]:
    """Check that the database is undamaged and in WAL mode."""
    try:
        with closing(open_store(home, begin=False)) as store:
            if not store.exists:
                raise Problem("none yet; the first job makes it", level=INFO)
            damage = store.row("PRAGMA quick_check")[0]
            mode = store.row("PRAGMA journal_mode")[0]
            count = Jobs(store).count(*State)
    except StoreError as error:
        raise Problem(str(error)) from None
    if damage == "ok":
        yield Finding(OK, "database", f"whole, {count:,} jobs")
    else:
        fix = f"stop nightshift, move {home}/{DATABASE} away, and restore a backup (NIGHTSHIFT_BACKUP_DIR)"
        yield Finding(FAIL, "database", f"damaged: {damage}", fix)
    if mode == "wal":
        yield Finding(OK, "journal", "WAL")
    else:
        text = f"{mode}, not WAL: readers block writers"
        yield Finding(FAIL, "journal", text, "the disk does not allow shared memory")


@check("audit")
def audit(home: str) -> str | None:
    """Check that nobody changed the record of who did what."""
    if identity_of(os.path.join(home, DATABASE)) is None:
        return None
    with closing(open_store(home, begin=False)) as store:
        broken = Audit(store).first_broken()
    if broken is not None:
        text = f"row {broken} does not follow from those before it: somebody changed the record"
        fix = "nightshift audit shows it; a job can do this too, it has your account's rights"
        raise Problem(text, fix, WARN)
    return "every action follows from those before it"


@check("sockets")
def sockets(home: str) -> str:
    """Check that a doorbell works in the state folder, even if its path is long."""
    try:
        with closing(Doorbell(home, BELL)):
            rings = ring(home, BELL)
        os.unlink(os.path.join(home, BELL))
    except OSError:
        rings = False
    if not rings:
        fix = "set NIGHTSHIFT_HOME to a folder on a local disk"
        raise Problem("no Unix socket can be made in the state folder", fix)
    return "a doorbell rings"


@check("backup")
def backup(folder: str | None) -> list[Finding]:
    """Check the backup folder in a thread: a mount that hangs must not hang the doctor."""
    if folder is None:
        raise Problem("none: NIGHTSHIFT_BACKUP_DIR is not set", level=INFO)
    findings: list[Finding] = []
    look = threading.Thread(target=lambda: findings.extend(_copies_in(folder)), daemon=True)
    look.start()
    look.join(ANSWERS_WITHIN_S)
    if look.is_alive():
        raise Problem(f"access to {folder} has hung for {ANSWERS_WITHIN_S:.0f} s", "repair the mount")
    return findings


@check("backup")
def _copies_in(folder: str) -> Iterator[Finding]:
    probe = os.path.join(folder, f".doctor.{os.getpid()}")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(probe, "w", encoding="ascii") as file:
            file.write("?")
        os.unlink(probe)
    except OSError as error:
        raise Problem(f"{folder} cannot be written to: {error.strerror}", "mount it, or name another") from None
    yield Finding(OK, "backup", folder)
    yield from backup_space(folder)
