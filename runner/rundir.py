"""Names and atomic reading and writing of an attempt's files: the contract between runner and supervisor.

A run directory holds

    spec.json       what to run, written by the runner before the supervisor is asked for
    lock            flocked by the runner before the supervisor exists, inherited by it, free when it is gone
    started.json    durable before the job's first instruction
    output.log      the job's output from its beginning; beyond the limit its end in output.tail.0 (older) and .1
    output.times    when each part of the output came
    probe.json      how its batch is being found, where it is probed; probe-1.log … is what its probes printed
    limit.json      a longer time limit than the spec's, given since; read when the old one is over
    exit.json       durable before the supervisor lets the lock go
    script          the job's own script, where it was submitted as a file

Light on purpose: the supervisor imports it, and every supervisor is a copy of what was imported.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import Any, NamedTuple

VERSION = 1

SPEC = "spec.json"
LOCK = "lock"
STARTED = "started.json"
EXIT = "exit.json"
RESERVED = "exit.reserved"
OUTPUT = "output.log"
TAILS = ("output.tail.0", "output.tail.1")
TIMES = "output.times"
SCRIPT = "script"
PROBE = "probe.json"
LIMIT = "limit.json"
SCRATCH = "scratch"  # for what probes write

EXIT_ROOM = 4096  # bytes kept for exit.json, so that a full disk cannot swallow the result


class Facts(NamedTuple):
    """All that is known of an attempt from outside, read in this order."""

    held: bool
    exit: dict[str, Any] | None
    started: dict[str, Any] | None


def is_output(name: str) -> bool:
    """Whether a file of a run directory holds what the job printed."""
    return name in {OUTPUT, TIMES, *TAILS} or (name.startswith("probe-") and name.endswith(".log"))


def folder_of(home: str, job_id: int, attempt: int) -> str:
    """Where an attempt's files are."""
    return os.path.join(home, "runs", str(job_id), str(attempt))


def create(folder: str, spec: dict[str, Any], script: str | None = None) -> int:
    """Make the run directory and return its lock, held, for the supervisor to inherit."""
    _make_way(folder)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if script is not None:
        _write(os.path.join(folder, SCRIPT), os.fsencode(script), mode=0o700)
    _write(os.path.join(folder, SPEC), json.dumps({"version": VERSION, **spec}).encode())
    lock = os.open(os.path.join(folder, LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def _make_way(folder: str) -> None:
    """Put aside what another queue left under the same numbers: its end must not become this job's."""
    if os.path.exists(os.path.join(folder, STARTED)) and not lock_is_held(folder):
        number = 1
        while os.path.exists(f"{folder}.old{number}"):
            number += 1
        os.rename(folder, f"{folder}.old{number}")


def facts(folder: str, run_id: str) -> Facts:
    """Look at an attempt. The lock is read first: what is written before it is let go is then seen."""
    held = lock_is_held(folder)
    return Facts(held, _of_run(read(folder, EXIT), run_id), _of_run(read(folder, STARTED), run_id))


def _of_run(record: dict[str, Any] | None, run_id: str) -> dict[str, Any] | None:
    """Records that another queue left under the same numbers are none of this run's."""
    return record if record is not None and record.get("run_id") == run_id else None


def lock_is_held(folder: str) -> bool:
    """Whether a supervisor is alive in there."""
    try:
        lock = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def read(folder: str, name: str) -> dict[str, Any] | None:
    """One of the records, or None if it is not there or not whole (and so was never acted upon)."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            record = json.loads(file.read())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def limit_s(folder: str, run_id: str) -> float | None:
    """The time limit that was given to a live attempt since it began; None if none was."""
    record = _of_run(read(folder, LIMIT), run_id) or {}
    found = record.get("time_limit_s")
    return float(found) if isinstance(found, (int, float)) else None


def write_limit(folder: str, run_id: str, seconds: float) -> None:
    """Give an attempt more time. Its supervisor looks when its time is up, so this need not wake anybody."""
    record = {"version": VERSION, "run_id": run_id, "time_limit_s": seconds}
    write_atomically(os.path.join(folder, LIMIT), json.dumps(record).encode())


def write_started(folder: str, record: dict[str, Any]) -> None:
    """Make the start durable. No rename: nothing is executed before this returns, so a torn file means not started."""
    path = os.path.join(folder, STARTED)
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, json.dumps({"version": VERSION, **record}).encode())
        os.fsync(handle)
    finally:
        os.close(handle)
    sync_folder(folder)


def rehearse(record: dict[str, Any]) -> None:
    """Touch what reading and writing records touches: in a fresh fork the first use of a page costs most."""
    json.loads(json.dumps({"version": VERSION, **record}).encode())
    read("/", SPEC)


def reserve_exit(folder: str) -> int | None:
    """Take room for the exit record while there is some; None on a disk that is already full."""
    try:
        handle = os.open(os.path.join(folder, RESERVED), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        os.posix_fallocate(handle, 0, EXIT_ROOM)
    except OSError:
        os.close(handle)
        return None
    return handle


def write_exit(folder: str, reserved: int | None, record: dict[str, Any]) -> None:
    """Make the end durable, in the room that was kept for it, or in new room if somebody has removed that."""
    path, target = os.path.join(folder, RESERVED), os.path.join(folder, EXIT)
    if _of_run(read(folder, EXIT), record["run_id"]) is None:
        for name in (path, target):
            _clear(name)
        if reserved is not None and _is_named(path, reserved):
            handle = reserved
        else:
            handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            body = json.dumps({"version": VERSION, **record}).encode()
            os.pwrite(handle, body, 0)
            os.ftruncate(handle, len(body))
            os.fsync(handle)
        finally:
            if handle != reserved:
                os.close(handle)
        os.rename(path, target)
    sync_folder(folder)


def _clear(path: str) -> None:
    """Remove a folder or a link that somebody made where a file is to be."""
    if os.path.islink(path):
        os.unlink(path)
    elif os.path.isdir(path):
        from shutil import rmtree  # hardly ever needed

        rmtree(path, ignore_errors=True)


def _is_named(path: str, handle: int) -> bool:
    """Whether an open file is still the one of this name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except OSError:
        return False


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: str, body: bytes, mode: int = 0o600) -> None:
    """Replace a file as a whole, so that readers see the old or the new one."""
    temporary = f"{path}.{os.getpid()}"
    try:
        _write(temporary, body, mode)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _write(path: str, body: bytes, mode: int = 0o600) -> None:
    handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        while body:
            body = body[os.write(handle, body) :]
    finally:
        os.close(handle)
