"""Restore, create or upgrade the queue before it is opened. The caller holds the opening lock."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from runner import rundir
from runner.config import home as state
from runner.errors import OperatorError
from runner.notices import NewQueue
from runner.store import migrating, restoring
from runner.store.connection import StoreError, identity_of, in_memory
from runner.store.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from runner.store.restoring import Copy

log = logging.getLogger(__name__)

RUNS = "runs"
# SQLite's shared memory does not work on network mounts.
NETWORK_TYPES = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs", "gpfs", "beegfs", "orangefs"]
)
LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuseblk"})
MOUNTS = "/proc/self/mountinfo"


def make_ready(home: str, path: str, version: int, backup_dir: str | None, begin: bool) -> bool:
    """Make sure that there is a queue with this version's schema. Return False if there is none and `begin` is False.

    `version` is the schema version of the file: 0 if the file is missing or empty.
    """
    refuse_network_mount(home)
    if version > SCHEMA_VERSION:
        raise OperatorError(
            f"The queue in {home} was written by a newer nightshift (schema {version}; this one knows "
            f"{SCHEMA_VERSION}). Upgrade nightshift, or set NIGHTSHIFT_HOME to another folder."
        )
    if version == SCHEMA_VERSION:
        assert backup_dir is not None
        _replace_if_unused(path, backup_dir)
    elif version:
        migrating.migrate(path)
        migrating.name(path, home)
    elif not _restore(restoring.newest_copy(backup_dir, path), path):
        lost = _what_was_lost(home, path)
        if lost and not begin:
            raise StoreError(
                f"The queue's file {path} {lost}. Put the file back if you have it. Otherwise `nightshift up` brings "
                "back the copy in NIGHTSHIFT_BACKUP_DIR, or begins a new queue where there is none."
            )
        if begin:
            _begin(home, path, lost)
        return begin
    return True


def empty_queue() -> Any:
    """Return an empty queue in memory, to read from where there is no queue."""
    connection = in_memory()
    migrating.apply(connection)
    return connection


def _replace_if_unused(path: str, backup_dir: str) -> None:
    """Replace a queue without jobs by the copy of an earlier queue, whose file was lost."""
    try:
        copy = restoring.newest_copy(backup_dir, path)
    except OperatorError as error:  # the queue works without it
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
    restoring.forget_rescued(path)
    log.warning("the queue was restored from %s", copy.origin)
    return True


def _begin(home: str, path: str, lost: str | None) -> None:
    """Create a new queue. Its file appears only when it is complete."""
    arriving = path + ".new"
    restoring.create(arriving)
    migrating.migrate(arriving)
    migrating.name(arriving, home)
    if lost:
        log.error("a new queue begins, for %s %s", path, lost)
        migrating.note(arriving, NewQueue(jobs=_jobs_left(home), folder=os.path.join(home, RUNS)))
    _put_in_place(arriving, path)


def _put_in_place(arriving: str, path: str) -> None:
    """Move the new file into place, without the old WAL: it must share nothing with processes that use the old file."""
    _put_aside(path)
    restoring.remove(path)
    os.replace(arriving, path)
    rundir.sync_folder(os.path.dirname(path))


def _put_aside(path: str) -> None:
    """Rename the old file and its WAL instead of deleting them: somebody may want to put them back."""
    number = 1
    while os.path.exists(f"{path}.aside{number}") or os.path.exists(f"{path}.aside{number}-wal"):
        number += 1
    for suffix in ("", "-wal"):
        if identity_of(path + suffix) is not None:
            os.rename(path + suffix, f"{path}.aside{number}{suffix}")
            log.warning("%s%s is kept as %s.aside%s%s", path, suffix, path, number, suffix)


def _what_was_lost(home: str, path: str) -> str | None:
    """Return the sign that there was a queue here before; None if there is no such sign."""
    if os.path.exists(path):
        return "is empty"
    if jobs := _jobs_left(home):
        return f"is gone, and {RUNS}/ has the folders of {jobs:,} job{'s' if jobs > 1 else ''}"
    if os.path.exists(os.path.join(home, state.RUNNER_LOCK)):  # it is created only after the queue
        return "is gone, and a runner has been at work on it"
    return None


def _jobs_left(home: str) -> int:
    """Return how many jobs have a run directory."""
    try:
        return sum(name.isdigit() for name in os.listdir(os.path.join(home, RUNS)))
    except FileNotFoundError:
        return 0


def filesystem_of(path: str, mounts: str = MOUNTS) -> str | None:
    """Return the type of the filesystem that a path is on, such as ext4; None if unknown."""
    path = os.path.realpath(path)
    best, kind = "", None
    try:
        with open(mounts) as file:
            lines = file.readlines()
    except OSError:
        return None
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind


def is_network(kind: str | None) -> bool:
    """Return whether this is a network filesystem, on which SQLite must not be used."""
    if kind is None:
        return False
    return kind in NETWORK_TYPES or (kind.startswith("fuse") and kind not in LOCAL_FUSE)


def refuse_network_mount(home: str, mounts: str = MOUNTS) -> None:
    """Raise OperatorError, with what to do instead, if the state folder is on a network mount."""
    kind = filesystem_of(home, mounts)
    if is_network(kind):
        raise OperatorError(
            f"The state folder {home} is on a network mount ({kind}), where the queue could be damaged.\n"
            "Keep it on the local disk and its copy on the mount:\n"
            "  NIGHTSHIFT_HOME=/var/tmp/nightshift\n"
            f"  NIGHTSHIFT_BACKUP_DIR={home}"
        )
