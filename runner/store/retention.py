"""Delete what is no longer needed: output, run directories, snapshots, series and rows of ended jobs; old messages."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from runner import clock, rundir
from runner.errors import NightshiftError
from runner.model import FINAL_STATES
from runner.snapshot import code_copy
from runner.store import series
from runner.store.box import Box, BoxKey
from runner.store.connection import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.store.connection import Store

MIB = 1 << 20
UNTOLD_DAYS = 30
TIDY_EVERY = timedelta(days=1)
SUBMITTING_S = 600.0  # a younger snapshot may belong to a job that is just being submitted
# Rows that are deleted by age: table, key, condition (`:before` is the time that is `days` ago), days.
EXPIRIES = (
    ("notices", "id", "created_at < :before", 30),
    ("messages", "id", "created_at < :before AND (done_at IS NOT NULL OR undeliverable IS NOT NULL)", 30),
    ("buttons", "nonce", "created_at < :before", 30),
    ("inbox", "update_id", "handled_at < :before", 7),  # Telegram itself keeps updates for a day
)
AT_ONCE = 500  # rows per transaction, so that the runner never waits long


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How long to keep what, in seconds, and how many MiB in total. None: no limit."""

    keep_logs: float | None = None
    keep_runs: float | None = None
    keep_jobs: float | None = None
    disk_limit: int | None = None


@dataclass(slots=True)
class Removed:
    """What was removed."""

    logs: int = 0
    runs: int = 0
    jobs: int = 0
    snapshots: int = 0
    bytes: int = 0
    dry_run: bool = False  # count only, remove nothing
    folders: set[str] = field(default_factory=set)  # already counted


def prune(store: Store, rules: Rules, *, dry_run: bool = False) -> Removed:
    """Apply the rules now. Queued and live jobs are never touched."""
    removed = Removed(dry_run=dry_run)
    if rules.keep_jobs is not None:
        _forget_jobs(store, rules.keep_jobs, removed)
    finished = sorted(_finished_runs(store))
    for finished_at, job_id in finished:
        folder = os.path.join(store.home, "runs", str(job_id))
        if _older(finished_at, rules.keep_runs):
            _remove_run(folder, removed)
        elif _older(finished_at, rules.keep_logs):
            _remove_logs(folder, removed)
    if rules.disk_limit is not None:
        _fit(store, rules.disk_limit * MIB, removed)
    _remove_snapshots(store, removed)
    if not dry_run:
        jobs = store.tuples("SELECT id, run_id FROM jobs")
        series.prune(store.home, {series.job_subject(job_id, run_id) for job_id, run_id in jobs})
    return removed


def tidy(store: Store) -> bool:
    """Delete old notices, messages, buttons and updates. Return False if that was done within the last day."""
    box, now = Box(store), clock.now()
    if (last := clock.moment(box.get(BoxKey.TIDIED_AT))) and last <= now < last + TIDY_EVERY:
        return False
    box.set(BoxKey.TIDIED_AT, clock.text(now))
    for table, key, condition, days in EXPIRIES:
        old = f"SELECT {key} FROM {table} WHERE {condition} LIMIT {AT_ONCE}"
        before = {"before": clock.text(now - timedelta(days=days))}
        while store.execute(f"DELETE FROM {table} WHERE {key} IN ({old})", before).rowcount == AT_ONCE:
            pass
    return True


def _older(finished_at: str, than_s: float | None) -> bool:
    return than_s is not None and finished_at < clock.text(clock.now() - timedelta(seconds=than_s))


def _finished_runs(store: Store) -> Iterator[tuple[str, int]]:
    """Yield end time and number of each job with a run directory that has ended, or that is no longer stored ("")."""
    final = {state.value for state in FINAL_STATES}
    for name in _run_names(store.home):
        row = store.row("SELECT state, finished_at FROM jobs WHERE id = ?", (int(name),))
        if row is None:
            yield "", int(name)
        elif row["state"] in final:
            yield row["finished_at"], int(name)


def _run_names(home: str) -> list[str]:
    return [name for name in _names(os.path.join(home, "runs")) if name.isdigit()]


def _forget_jobs(store: Store, keep_s: float, removed: Removed) -> None:
    cutoff = clock.text(clock.now() - timedelta(seconds=keep_s))
    if removed.dry_run:
        for row in store.rows("SELECT id FROM jobs WHERE finished_at < ?", (cutoff,)):
            removed.jobs += 1
            _remove_run(os.path.join(store.home, "runs", str(row["id"])), removed)
        return
    stale = clock.text(clock.now() - timedelta(days=UNTOLD_DAYS))
    while True:
        rows = store.rows("SELECT id FROM jobs WHERE finished_at < ? LIMIT ?", (cutoff, AT_ONCE))
        if not rows:
            break
        ids = [(row["id"],) for row in rows]
        with store.transaction():
            for statement in (
                "DELETE FROM events WHERE job_id = ?",
                "DELETE FROM attempts WHERE job_id = ?",
                "DELETE FROM watches WHERE job_id = ?",
                # an open notice is still sent without its job, unless it is too old
                f"DELETE FROM notices WHERE job_id = ? AND coalesce(handled_at, created_at < '{stale}')",
                "DELETE FROM jobs WHERE id = ?",
            ):
                store.connection.executemany(statement, ids)
        for (job_id,) in ids:
            _remove_run(os.path.join(store.home, "runs", str(job_id)), removed)
        removed.jobs += len(ids)
    in_use = "SELECT group_name FROM jobs WHERE group_name IS NOT NULL"
    store.execute(f"DELETE FROM groups WHERE name NOT IN ({in_use})")
    of_specs = " UNION ".join(
        f"SELECT json_extract(spec, '$.environment') FROM {table}" for table in ("jobs", "presets")
    )
    store.execute(f"DELETE FROM environments WHERE key NOT IN ({of_specs})")


def _remove_run(folder: str, removed: Removed) -> None:
    if os.path.isdir(folder) and folder not in removed.folders:
        removed.bytes += size_of(folder)
        removed.runs += 1
        removed.folders.add(folder)
        if not removed.dry_run:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_logs(folder: str, removed: Removed) -> None:
    found = False
    for parent, _, names in os.walk(folder) if folder not in removed.folders else ():
        for name in filter(rundir.is_output, names):
            path = os.path.join(parent, name)
            removed.bytes += os.path.getsize(path)
            found = True
            if not removed.dry_run:
                os.unlink(path)
    removed.logs += found


def _fit(store: Store, limit_bytes: int, removed: Removed) -> None:
    """Remove run directories, oldest first, until they and all needed snapshots fit into the limit."""
    needed, _ = _needed_snapshots(store, removed)
    sizes = {name: size_of(os.path.join(store.home, code_copy.FOLDER, name)) for name in needed}
    total = size_of(os.path.join(store.home, "runs")) + sum(sizes.values())
    for _, job_id in sorted(_finished_runs(store)):
        if total <= limit_bytes:
            return
        folder = os.path.join(store.home, "runs", str(job_id))
        total -= size_of(folder)
        _remove_run(folder, removed)
        for name, jobs in needed.items():
            if job_id in jobs:
                jobs.remove(job_id)
                total -= 0 if jobs else sizes[name]  # it is removed with the last job that needs it


def _remove_snapshots(store: Store, removed: Removed) -> None:
    """Remove snapshots that no queued or live job and no job with a run directory needs."""
    parent = os.path.join(store.home, code_copy.FOLDER)
    old = [name for name in _names(parent) if _is_old(os.path.join(parent, name))]
    if not old:
        return
    needed, last = _needed_snapshots(store, removed)
    for name in sorted(set(old) - needed.keys()):
        folder = os.path.join(parent, name)
        size = size_of(folder)
        if not removed.dry_run:
            with store.transaction():  # `submit` checks in a transaction that its snapshot exists
                newer = store.rows("SELECT spec FROM jobs WHERE id > ?", (last,))
                if any(_snapshot_in(row["spec"]) == name for row in newer):
                    continue
                folder = _put_aside(parent, name)
            shutil.rmtree(folder, ignore_errors=True)
        removed.snapshots += not name.startswith(code_copy.UNFINISHED)
        removed.bytes += size


def _needed_snapshots(store: Store, removed: Removed) -> tuple[dict[str, set[int]], int]:
    """Return each needed snapshot with the jobs that need it, and the number of the last job that was read."""
    last = int(store.value("SELECT coalesce(max(id), 0) FROM jobs"))
    runs = {name for name in _run_names(store.home) if os.path.join(store.home, "runs", name) not in removed.folders}
    final = {state.value for state in FINAL_STATES}
    rows = store.rows(
        "SELECT id, state, spec FROM jobs WHERE id <= ? AND json_extract(spec, '$.snapshot') IS NOT NULL", (last,)
    )
    needed: dict[str, set[int]] = {}
    for row in rows:
        name = _snapshot_in(row["spec"])
        if name and (row["state"] not in final or str(row["id"]) in runs):
            needed.setdefault(name, set()).add(row["id"])
    return needed, last


def _snapshot_in(spec: str) -> str | None:
    copy = json.loads(spec).get("snapshot")
    return copy.get("name") if isinstance(copy, dict) else None


def _put_aside(parent: str, name: str) -> str:
    """Rename a snapshot before it is deleted, so that no job finds half of it. Return the new path."""
    aside = os.path.join(parent, f"{code_copy.UNFINISHED}-removed-{name.removeprefix(code_copy.UNFINISHED)}")
    os.rename(os.path.join(parent, name), aside)
    return aside


def _is_old(path: str) -> bool:
    try:
        return time.time() - os.lstat(path).st_mtime > SUBMITTING_S
    except OSError:
        return False


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def size_of(folder: str) -> int:
    """Return the bytes on disk of all files in a folder."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def main(arguments: list[str]) -> None:
    """Prune and tidy, in a process of its own. Arguments: the state folder, and the rules as JSON."""
    home, rules = arguments
    try:
        store = open_store(home, begin=False)
        prune(store, Rules(**json.loads(rules)))
        tidy(store)
        store.close()
    except NightshiftError as error:
        sys.exit(f"nightshift: {error}")
