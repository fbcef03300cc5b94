"""Checks of the settings, and whether a runner is up."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from runner.terminal.checks.finding import FAIL, INFO, OK, WARN, Finding, verdict
from runner.terminal.command_group import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from runner.config.settings import Settings

# Variables that nightshift sets for jobs. A doctor that runs inside a job must not report them as mistakes.
_IN_JOBS = (
    *("JOB_ID", "JOB_CPUS", "JOB_RAM_MIB", "RUN_ID", "ATTEMPT", "SUBMIT_DIR"),
    *("BATCH_SIZE", "GRAD_ACCUM", "PROBE", "SCRATCH"),
)
_SECRET = ("token", "password", "secret", "key")


def settings(found: Settings) -> Iterator[Finding]:
    """Report the settings that differ from their defaults."""
    values = found.model_dump()
    fields = type(found).model_fields
    chosen = {
        name: value
        for name, value in values.items()
        if name in found.model_fields_set and value != fields[name].get_default(call_default_factory=True)
    }
    told = ", ".join(f"{name.upper()}={shown(name, value)}" for name, value in sorted(chosen.items()))
    yield Finding(OK, "settings", f"{told}; the rest as it comes" if told else "all as they come")


def shown(name: str, value: object) -> str:
    """Return a value as it may be shown: secrets are hidden."""
    return "(hidden)" if any(word in name.lower() for word in _SECRET) else str(value)


def variables(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Warn about NIGHTSHIFT_ variables that are not settings."""
    from runner.config.home import PREFIX
    from runner.config.settings import CHAT_SETTINGS, Settings

    known = [name.upper() for name in (*Settings.model_fields, *CHAT_SETTINGS)]
    for variable in sorted(environ):
        name = variable.removeprefix(PREFIX)
        if variable.startswith(PREFIX) and name not in known and name not in _IN_JOBS:
            hint = nearest(variable, [PREFIX + other for other in known])
            yield Finding(WARN, "variables", f"{variable} is no setting{hint}", f"correct it or: unset {variable}")


def runner(home: str) -> Iterator[Finding]:
    """Check that a runner is up and serves this queue, and that jobs may start."""
    from runner.config.home import RUNNER_LOCK
    from runner.processes.process_lock import KEEPER_LOCK, holder
    from runner.store.connection import DATABASE

    pid = holder(home, RUNNER_LOCK)
    if pid is None:
        yield Finding(WARN, "runner", "not up: jobs wait", "nightshift up --detach")
        return
    kept = ", kept up" if holder(home, KEEPER_LOCK) else ""
    yield verdict(
        _has_open(pid, os.path.join(home, DATABASE)),
        "runner",
        f"up (pid {pid}{kept})",
        f"up (pid {pid}{kept}), but it does not serve the queue that is on the disk: the file was replaced",
        "nightshift down && nightshift up --detach",
    )
    yield from _held(home)


def _has_open(pid: int, path: str) -> bool:
    """Return whether a process has this very file open. True if that is unknown or there is no such file."""
    from runner.store.connection import identity_of

    folder = f"/proc/{pid}/fd"
    try:
        held = {identity_of(f"{folder}/{name}") for name in os.listdir(folder)}
    except OSError:
        return True
    return identity_of(path) in held - {None} if os.path.exists(path) else True


def _held(home: str) -> Iterator[Finding]:
    from runner.api import Queue
    from runner.store.connection import BACKUP

    with Queue(home, actor="doctor") as queue:
        for name in ("paused", "draining"):
            if held := queue.box.get(name):
                why = held.get("why") or f"by {held.get('by')}"
                yield Finding(WARN, "queue", f"{name}: {why}", "nightshift resume")
        if since := (queue.box.get(BACKUP) or {}).get("failing_since"):
            yield Finding(WARN, "copies", f"none since {since}", "the runner's log says why: the backup in … failed")


def env_file_rights(path: str | None) -> Iterator[Finding]:
    """Check that nobody else can read the env file: it may contain the token."""
    if path is None or not os.path.exists(path):
        return
    if os.stat(path).st_mode & 0o077:
        yield Finding(FAIL, "env file", f"others can read {path}", f"chmod 600 {path}")
    else:
        yield Finding(INFO, "env file", path)
