"""The files of an attempt and how to read and write them: the contract between runner and supervisor.

A run directory holds

    spec.json       what to run; the runner writes it before it asks for a supervisor
    lock            locked with flock by the runner, inherited by the supervisor, which turns it into exit.json at the
                    end; free or gone once the supervisor is gone
    started.json    durable before the job's first instruction
    output.log      the job's output from its beginning, if it prints anything; beyond the limit its end in
                    output.tail.0 (older) and .1
    output.times    when each part of the output came
    probe.json      the state of the batch search, if the job is probed; its probes print to probe-1.log …
    progress.json   how far the job is, read from its output; progress.state what a reader needs to go on
    limit.json      a longer time limit, given after the start; read when the old limit is reached
    exit.json       durable before the supervisor releases the lock
    script          the job's script, if it was submitted as a file
    terminal        the socket of a job with a terminal, until its client has connected

This module imports little on purpose: supervisors are forked from a process that has loaded it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from runner.file_lock import is_locked
from runner.model import Exit, Record

if TYPE_CHECKING:
    from runner.model import Job

R = TypeVar("R", bound=Record)
OfRun = TypeVar("OfRun", "Exit", "StartRecord", "NewLimit")

VERSION = 1

SPEC = "spec.json"
LOCK = "lock"
STARTED = "started.json"
EXIT = "exit.json"
NEW_EXIT = "exit.new"
OUTPUT = "output.log"
TAILS = ("output.tail.0", "output.tail.1")
TIMES = "output.times"
SCRIPT = "script"
TERMINAL = "terminal"
PROBE = "probe.json"
LIMIT = "limit.json"
PROGRESS = "progress.json"
PROGRESS_STATE = "progress.state"
SCRATCH = "scratch"  # for files that probes and trials write

EXIT_ROOM = 4096  # bytes reserved in the lock file, so that the result can be written on a full disk


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpec(Record):
    """The content of spec.json: what the supervisor is to run."""

    job_id: int
    attempt: int
    run_id: str
    argv: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    env_file: str | None = None  # overrides env
    env_over: dict[str, str] = field(default_factory=dict)  # overrides both
    dir: str = "/"
    umask: int = 0o022
    terminal: bool = False  # it has a terminal, and waits for the client who sees it
    time_limit_s: float | None = None
    cpus: int = 0
    ram_mib: int = 0
    stop_grace_s: float = 10.0
    log_limit_bytes: int = 1 << 30
    log_tail_bytes: int = 1 << 24
    probe: dict[str, Any] | None = None  # a ProbeOrder as JSON; only a job that is probed reads it
    progress: str | None = None  # the person's own pattern for progress
    log: str | None = None  # a file that the job writes itself
    stop_on: str | None = None  # rules about its metrics, as runner.progress.stop_rules writes them
    trial: bool = False  # it only shows whether the job works, and its time limit is that of the trial


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord(Record):
    """The content of started.json: which supervisor runs the attempt."""

    job_id: int = 0
    attempt: int = 0
    run_id: str = ""
    pid: int
    start_time: int = 0
    boot_id: str
    pipe: int | None = None  # a process that holds this pipe open belongs to the attempt
    extendable: bool = False  # when its time limit is over, the supervisor looks for a longer one
    node: str | None = None  # the host; None: that of the runner
    gpus: tuple[str, ...] = ()  # the GPUs it got there, if the runner did not choose them
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLimit(Record):
    """The content of limit.json: a longer time limit, given after the start."""

    run_id: str
    time_limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressRecord(Record):
    """The content of progress.json: how far the attempt is. Times without a date are of the monotonic clock."""

    job_id: int
    attempt: int
    run_id: str
    boot_id: str
    at: str
    progress: dict[str, Any] | None = None  # a runner.progress.pace.Progress as JSON
    broken: dict[str, str] = field(default_factory=dict)  # rule about metrics -> the metric that broke it
    final: bool = False  # the job has ended, and all of its output was read


class RunRecords(NamedTuple):
    """What the files of an attempt say about it, read in this order."""

    held: bool
    exit: Exit | None
    started: StartRecord | None


def is_output(name: str) -> bool:
    """Return whether a file of a run directory holds output of the job."""
    return name in {OUTPUT, TIMES, *TAILS} or (name.startswith("probe-") and name.endswith(".log"))


def folder_of(home: str, job_id: int, attempt: int) -> str:
    """Return the run directory of an attempt."""
    return f"{home}/runs/{job_id}/{attempt}"


def create(folder: str, spec: AttemptSpec, script: str | None = None) -> int:
    """Make the run directory, lock it, and return the lock's file descriptor for the supervisor to inherit."""
    _make_way(folder)
    _make(folder)
    if script is not None:
        _write(os.path.join(folder, SCRIPT), os.fsencode(script), mode=0o700)
    _write(os.path.join(folder, SPEC), encoded(spec))
    lock = os.open(os.path.join(folder, LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def _make(folder: str) -> None:
    """Make the folder and those above it. Most often only the last two are missing: then this looks for no others."""
    try:
        os.mkdir(os.path.dirname(folder), 0o700)
        os.mkdir(folder, 0o700)
    except OSError:
        os.makedirs(folder, mode=0o700, exist_ok=True)


def _make_way(folder: str) -> None:
    """Rename a run directory that another queue left under the same numbers, so that its end is not taken for ours."""
    if os.path.exists(os.path.join(folder, STARTED)) and not lock_is_held(folder):
        number = 1
        while os.path.exists(f"{folder}.old{number}"):
            number += 1
        os.rename(folder, f"{folder}.old{number}")


def records(folder: str, run_id: str) -> RunRecords:
    """Read what is known of an attempt. The lock comes first: if it is free, all records are already written."""
    held = lock_is_held(folder)
    return RunRecords(held, _of_run(read_exit(folder), run_id), _of_run(read_started(folder), run_id))


def _of_run(record: OfRun | None, run_id: str) -> OfRun | None:
    """Return the record if it belongs to this run, None if another queue left it under the same numbers."""
    return record if record is not None and record.run_id == run_id else None


def lock_is_held(folder: str) -> bool:
    """Return whether the supervisor of this run directory is alive."""
    return is_locked(f"{folder}/{LOCK}")


def read(folder: str, name: str) -> dict[str, Any] | None:
    """Read one record. Return None if it is missing or incomplete, in which case nothing was done because of it."""
    try:
        with open(f"{folder}/{name}", "rb", buffering=0) as file:
            record = json.loads(file.readall())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def read_spec(folder: str) -> AttemptSpec | None:
    """Read what the attempt runs."""
    return _record(folder, SPEC, AttemptSpec)


def read_started(folder: str) -> StartRecord | None:
    """Read which supervisor has started the attempt."""
    return _record(folder, STARTED, StartRecord)


def read_exit(folder: str) -> Exit | None:
    """Read how the attempt ended."""
    return _record(folder, EXIT, Exit)


def read_progress(folder: str) -> ProgressRecord | None:
    """Read how far the attempt is."""
    return _record(folder, PROGRESS, ProgressRecord)


def write_progress(folder: str, record: ProgressRecord) -> None:
    """Replace what is known of how far the attempt is. Raise OSError if the disk is full."""
    write_atomically(os.path.join(folder, PROGRESS), encoded(record))


def _record(folder: str, name: str, kind: type[R]) -> R | None:
    data = read(folder, name)
    try:
        return None if data is None else kind.from_json(data)
    except TypeError:
        return None  # a field is missing that every version writes


def encoded(record: Record) -> bytes:
    """Return a record as it is written to a file."""
    return json.dumps({"version": VERSION, **record.to_json()}).encode()


def limit_s(folder: str, run_id: str) -> float | None:
    """Return the time limit in seconds that a live attempt got after its start, or None if it got none."""
    limit = _of_run(_record(folder, LIMIT, NewLimit), run_id)
    return float(limit.time_limit_s) if limit and isinstance(limit.time_limit_s, (int, float)) else None


def write_limit(folder: str, run_id: str, seconds: float) -> None:
    """Give an attempt a new time limit. Its supervisor reads it when the old one is reached, so nobody is woken."""
    write_atomically(os.path.join(folder, LIMIT), encoded(NewLimit(run_id=run_id, time_limit_s=seconds)))


def extend_limit(home: str, job: Job) -> None:
    """Copy a live job's longer limit from the database to its run directory, for its supervisor. Safe to repeat.

    Raise OSError if the disk is full.
    """
    if job.spec.time_limit_s is not None and job.state.live:
        raise_limit(folder_of(home, job.id, job.attempt), job.run_id, job.spec.time_limit_s)


def raise_limit(folder: str, run_id: str, new_s: float) -> None:
    """Give an attempt this time limit if it has a shorter one. Raise OSError if the disk is full."""
    current_s = limit_s(folder, run_id)
    if current_s is None and (spec := read_spec(folder)) is not None:
        current_s = None if spec.trial else spec.time_limit_s
    if current_s is not None and current_s < new_s:
        write_limit(folder, run_id, new_s)


def is_extendable(home: str, job: Job) -> bool:
    """Return whether a live job's supervisor looks for a longer limit. A supervisor of an older version does not."""
    started = read_started(folder_of(home, job.id, job.attempt))
    return started is None or started.extendable


def write_started(folder: str, started: StartRecord) -> None:
    """Make the start durable. No rename needed: nothing runs before this returns, so a torn file means not started."""
    _write(os.path.join(folder, STARTED), encoded(started), flags=os.O_EXCL, durable=True)
    sync_folder(folder)


def warm_up(started: StartRecord) -> None:
    """Load the pages that reading and writing records needs: in a fresh fork the first use of a page is slow."""
    StartRecord.from_json(json.loads(encoded(started)))
    read_spec("/")


def reserve_exit(lock: int) -> None:
    """Allocate disk space for the exit record in the lock file. If that fails, a full disk delays the record."""
    with contextlib.suppress(OSError):
        os.posix_fallocate(lock, 0, EXIT_ROOM)


def write_exit(folder: str, lock: int, end: Exit) -> None:
    """Make the end durable: the lock file becomes exit.json. If somebody has removed it, a new file does."""
    target = os.path.join(folder, EXIT)
    if _of_run(read_exit(folder), end.run_id) is None:
        _clear(target)
        body = encoded(end)
        path = os.path.join(folder, LOCK)
        if _is_named(path, lock):
            os.pwrite(lock, body, 0)
            os.ftruncate(lock, len(body))
            os.fsync(lock)
        else:
            path = os.path.join(folder, NEW_EXIT)
            _clear(path)
            _write(path, body, durable=True)
        os.rename(path, target)
    sync_folder(folder)


def _clear(path: str) -> None:
    """Remove a folder or a link that is in the place of a file. Leave a file alone."""
    if os.path.islink(path):
        os.unlink(path)
    elif os.path.isdir(path):
        from shutil import rmtree  # hardly ever needed

        rmtree(path, ignore_errors=True)


def _is_named(path: str, handle: int) -> bool:
    """Return whether a path still names this open file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except OSError:
        return False


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable (fsync)."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: str, body: bytes, mode: int = 0o600) -> None:
    """Replace a whole file at once, so that readers see either the old or the new content."""
    temporary = f"{path}.{os.getpid()}"
    try:
        _write(temporary, body, mode)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _write(path: str, body: bytes, mode: int = 0o600, flags: int = os.O_TRUNC, *, durable: bool = False) -> None:
    handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | flags, mode)
    try:
        while body:
            body = body[os.write(handle, body) :]
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)
