"""What happens before the schema is known: restore, create or upgrade. The caller holds the opening lock."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING, Any

from runner import home as state
from runner import presence, rundir
from runner.errors import OperatorError
from runner.store import disk, restoring, schema
from runner.store.connection import SCHEMA_VERSION, StoreError, identity_of, in_memory

if TYPE_CHECKING:
    from runner.store.restoring import Copy

log = logging.getLogger(__name__)

RUNS = "runs"


def make_ready(home: str, path: str, version: int, backup_dir: str | None, begin: bool) -> bool:
    """See to it that there is a queue of this program's schema; False if there is none and none is to begin.

    `version` is that of the file: 0 where there is none, or nothing in it.
    """
    disk.refuse_network_mount(home)
    if version > SCHEMA_VERSION:
        raise OperatorError(
            f"The queue in {home} was written by a newer nightshift (schema {version}; this one knows "
            f"{SCHEMA_VERSION}). Upgrade nightshift, or set NIGHTSHIFT_HOME to another folder."
        )
    if version == SCHEMA_VERSION:
        assert backup_dir is not None
        _replace_if_unused(path, backup_dir)
    elif version:
        schema.migrate(path)
    elif backup_dir is None or not _restore(restoring.newest_copy(backup_dir, path), path):
        if not begin:
            _refuse_if_anything_is_left(home, path)
            return False
        _begin(home, path)
    return True


def empty_queue() -> Any:
    """A queue without jobs, to look at where there is none."""
    connection = in_memory()
    schema.apply(connection)
    return connection


def _replace_if_unused(path: str, backup_dir: str) -> None:
    """A queue that had no job yet gives way to the copy of one that was here before: its file was lost."""
    try:
        copy = restoring.newest_copy(backup_dir, path)
    except OperatorError as error:  # nothing is lost by going on without
        log.warning("%s", error)
        return
    if copy is not None and copy.has_jobs and copy.lineage != restoring.lineage_of(path):
        _restore(copy, path)
    elif copy is not None:
        restoring.remove(copy.path)


def _restore(copy: Copy | None, path: str) -> bool:
    if copy is None:
        return False
    _put_in_place(copy.path, path)
    log.warning("the queue was restored from %s", copy.origin)
    return True


def _begin(home: str, path: str) -> None:
    """A new queue; its file appears when it is whole."""
    arriving = path + ".new"
    restoring.remove(arriving)
    os.close(os.open(arriving, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    schema.migrate(arriving)
    schema.name(arriving, home)
    if jobs := _jobs_left(home):
        log.warning("a new queue begins in %s, where %s jobs of an earlier one have left their folders", home, jobs)
        schema.note(arriving, "new queue", {"jobs": jobs, "folder": os.path.join(home, RUNS)})
    _put_in_place(arriving, path)


def _put_in_place(arriving: str, path: str) -> None:
    """Processes that have an earlier file open share nothing with this one: it comes without their WAL."""
    _put_aside(path)
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)
    os.replace(arriving, path)
    rundir.sync_folder(os.path.dirname(path))


def _put_aside(path: str) -> None:
    """Keep a file that gives way to another, unless there is nothing in it."""
    if identity_of(path) is None:
        return
    number = 1
    while os.path.exists(f"{path}.aside{number}"):
        number += 1
    os.rename(path, f"{path}.aside{number}")
    log.warning("%s held no jobs; it is kept as %s.aside%s", path, path, number)


def _refuse_if_anything_is_left(home: str, path: str) -> None:
    """An earlier queue must not be taken for none: what is submitted would go where nobody looks for it."""
    if os.path.exists(path):
        what = "is empty"
    elif jobs := _jobs_left(home):
        what = f"is gone, and {RUNS}/ has the folders of {jobs:,} job{'s' if jobs > 1 else ''}"
    elif presence.holder(home, state.RUNNER_LOCK) is not None:
        what = "is gone, and a runner is up"
    else:
        return
    raise StoreError(
        f"The queue's file {path} {what}. Put the file back if you have it. Otherwise `nightshift up` brings back the "
        "copy in NIGHTSHIFT_BACKUP_DIR, or begins a new queue where there is none."
    )


def _jobs_left(home: str) -> int:
    """How many jobs have a run directory."""
    try:
        return sum(name.isdigit() for name in os.listdir(os.path.join(home, RUNS)))
    except FileNotFoundError:
        return 0
