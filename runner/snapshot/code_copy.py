"""Snapshots: a job runs from a copy of its working tree as submitted, because people edit code while jobs wait.

The copy holds what runner.snapshot.project_files calls code, with uncommitted changes. Data and results are links to
the real ones, so that jobs find datasets, and checkpoints land in the usual place. Copies are in the state folder:

    snapshots/<name>/tree/...        the copy; a job's folder is at the same place in it
    snapshots/<name>/manifest.json   what was copied

A copy is named by its content. Jobs submitted from the same state share it, unless a job has changed something in it:
then a new one is made. It is made under a temporary name and renamed when it is complete. It has no hard links: editing
a file in place would change the copy too.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
from dataclasses import replace
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from runner.errors import UserError
from runner.rundir import sync_folder, write_atomically
from runner.snapshot.file_reader import MIB, ChangingError, CopyLimits, File, content, read
from runner.snapshot.project_files import CACHE, is_in, parents, tree_of
from runner.units import format_mib

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from runner.model import JobSpec
    from runner.snapshot.project_files import Tree

NEVER_MADE = "asked for, but never made"
FOLDER, TREE, MANIFEST = "snapshots", "tree", "manifest.json"
UNFINISHED = ".new"  # prefix of incomplete copies
TRIES = 5
NAMED = 20  # at most this many links are named in a job's spec
_FULL_PATH = re.compile(r"""(?<![\w.~/-])~?/[^\s'"`;|&()<>:,]*""")


def with_copies(specs: Sequence[JobSpec], home: str) -> list[JobSpec]:
    """Return the same jobs, with a copy of the code for each that asks for one. Raise UserError if that fails."""
    folders = dict.fromkeys(spec.dir for spec in specs if spec.snapshot == {})
    copies = {folder: take(folder, home) for folder in folders}
    return [replace(spec, snapshot=copies[spec.dir]) if spec.snapshot == {} else spec for spec in specs]


def take(folder: str, home: str) -> dict[str, Any]:
    """Copy the tree that a folder belongs to, or find an equal copy. Return what a job's spec says about it."""
    limits = CopyLimits()
    for _ in range(TRIES):
        tree = tree_of(folder, without=home)
        limits.refuse_too_large(tree)
        try:
            files = read(tree, limits)
            name = _copy_with(tree, files, home, limits)
        except ChangingError as error:
            changing = str(error)
            continue
        return {
            "name": name,
            "of": tree.root,
            "dir": os.path.relpath(os.path.realpath(folder), tree.root),
            "files": len(tree.files),
            "bytes": sum(file.size for file in files.values() if isinstance(file, File)),
            "commit": tree.commit,
            "shared": list(tree.data[:NAMED]),
            "shared_count": len(tree.data),
            "left_out": list(tree.left_out[:NAMED]),
        }
    raise UserError(f"{changing} keeps changing while the code is copied. Submit again when that has ended.")


def work_folder(home: str, spec: JobSpec) -> str:
    """Return where a job runs: its folder, or the same place in the copy."""
    if not spec.snapshot:
        return spec.dir
    return os.path.normpath(os.path.join(tree_folder(home, spec), spec.snapshot["dir"]))


def tree_folder(home: str, spec: JobSpec) -> str:
    """Return the top folder of a job's copy."""
    assert spec.snapshot
    return os.path.join(home, FOLDER, spec.snapshot["name"], TREE)


def refuse_gone(home: str, spec: JobSpec) -> None:
    """Raise UserError if a job needs a copy that no longer exists or was never made."""
    if spec.snapshot and not is_taken(spec):
        raise UserError(f"A copy of its code was {NEVER_MADE}. Submit it again.")
    if spec.snapshot and not os.path.isdir(work_folder(home, spec)):
        raise UserError("The copy of the code that this job was submitted with has been removed. Submit it again.")


def is_taken(spec: JobSpec) -> bool:
    """Return whether a copy was made. An earlier version could store the wish for a copy without making one."""
    return isinstance(spec.snapshot, dict) and "name" in spec.snapshot


def words(spec: JobSpec) -> str:
    """Describe the copy for people. Return "" for a job without one."""
    copy = spec.snapshot
    if not copy:
        return ""
    if not is_taken(spec):
        return NEVER_MADE
    text = "1 file" if copy["files"] == 1 else f"{copy['files']:,} files"
    if copy["bytes"] >= MIB:
        text += f", {format_mib(copy['bytes'] / MIB)}"
    if copy["commit"]:
        text += f", on top of commit {copy['commit'][:8]}"
    if copy["shared"]:
        text += f"; links to {_some(copy['shared'], copy['shared_count'])}"
    if copy["left_out"]:
        text += f"; skipped (pipes, sockets or devices): {_some(copy['left_out'], len(copy['left_out']))}"
    return text


def announcement(spec: JobSpec, home: str) -> str:
    """Return what to tell a person at a terminal about the copy just made."""
    assert spec.snapshot
    text = f"the code is copied as it is now: {words(spec)}. What else it writes stays in {tree_folder(home, spec)}"
    if _names(spec.command, spec.snapshot["of"]):
        text += f"\nThe command names {spec.snapshot['of']} itself, which is not the copy: write paths without it."
    return text


def _names(command: str, project: str) -> bool:
    """Return whether the command names the project by a full path, directly or through links."""
    if project + "/" in command:  # its name may contain spaces
        return True
    paths = [os.path.normpath(os.path.expanduser(path)) for path in _FULL_PATH.findall(command)]
    return any(is_in(place, project) for path in paths for place in (path, os.path.realpath(path)))


def _some(names: Sequence[str], count: int, most: int = 5) -> str:
    more = f" and {count - most} more" if count > most else ""
    return ", ".join(names[:most]) + more


# -- making and finding copies ---------------------------------------------------------------------------------------


def _copy_with(tree: Tree, files: dict[str, File | str], home: str, limits: CopyLimits) -> str:
    """Return the name of a copy with exactly this content. Make one if there is none."""
    manifest: dict[str, Any] = {
        "of": tree.root,
        "data": list(tree.data),
        "links": {path: target for path, target in files.items() if isinstance(target, str)},
        "files": {path: list(file) for path, file in files.items() if isinstance(file, File)},
    }
    about = {**manifest, "files": {path: [file[0], file[3] & 0o111] for path, file in manifest["files"].items()}}
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    for number in range(1, 1000):
        name = key if number == 1 else f"{key}-{number}"
        place = os.path.join(home, FOLDER, name)
        is_new = not os.path.lexists(place) and _made(tree, files, manifest, place, limits)
        if is_new or _is_pristine(place):
            with contextlib.suppress(OSError):  # it was just removed: queueing the job will notice
                os.utime(place)
            return name
    raise UserError(
        f"There are too many copies of {tree.root} in {home}. Remove some: nightshift prune --older-than 30d"
    )


def _made(tree: Tree, files: dict[str, File | str], manifest: dict[str, Any], place: str, limits: CopyLimits) -> bool:
    """Make the copy, complete or not at all. Return False if another one of its name appeared meanwhile."""
    parent = os.path.dirname(place)
    try:
        os.makedirs(parent, mode=0o700, exist_ok=True)
        new = mkdtemp(prefix=UNFINISHED, dir=parent)
        try:
            _copy(tree, files, os.path.join(new, TREE), limits)
            write_atomically(os.path.join(new, MANIFEST), json.dumps(manifest).encode())
            _refuse_changed(tree, files)
            _sync(new)
            os.rename(new, place)
            sync_folder(parent)
            return True
        finally:
            shutil.rmtree(new, ignore_errors=True)  # already renamed if all went well
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST} and os.path.lexists(place):
            return False
        raise UserError(f"The code cannot be copied into {parent}: {error.strerror}.") from error


def _copy(tree: Tree, files: dict[str, File | str], top: str, limits: CopyLimits) -> None:
    os.mkdir(top)
    for path in (*files, *tree.data):
        os.makedirs(os.path.dirname(os.path.join(top, path)), exist_ok=True)
    for path, file in files.items():
        limits.refuse_too_long(tree.root)
        source, copy = os.path.join(tree.root, path), os.path.join(top, path)
        if isinstance(file, str):
            os.symlink(file, copy)
            continue
        if content(source, copy, file.size) != file:
            raise ChangingError(source)
        os.chmod(copy, file.mode | stat.S_IRUSR)
        os.utime(copy, ns=(file.mtime_ns, file.mtime_ns))
    for path in tree.data:
        os.symlink(os.path.join(tree.root, path), os.path.join(top, path))


def _refuse_changed(tree: Tree, files: dict[str, File | str]) -> None:
    """Raise ChangingError if a file changed since it was read: the copy must show one moment."""
    for path, file in files.items():
        source = os.path.join(tree.root, path)
        if isinstance(file, File) and _state(source) != [file.size, file.mtime_ns]:
            raise ChangingError(source)


def _state(path: str) -> list[int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns] if stat.S_ISREG(status.st_mode) else None


def _sync(folder: str) -> None:
    """Flush all files and folders to disk, so that a submitted job's copy survives a power cut."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
        sync_folder(parent)


def _is_pristine(place: str) -> bool:
    """Return whether a copy is unchanged since it was made, except for Python's caches."""
    try:
        with open(os.path.join(place, MANIFEST), "rb") as file:
            manifest = json.loads(file.read())
    except (OSError, ValueError):
        return False
    links = {**manifest["links"], **{path: os.path.join(manifest["of"], path) for path in manifest["data"]}}
    files = {path: entry[1:3] for path, entry in manifest["files"].items()}
    folders = {parent: True for path in (*files, *links) for parent in parents(path)}
    return dict(_entries(os.path.join(place, TREE))) == {**folders, **files, **links}


def _entries(top: str) -> Iterator[tuple[str, object]]:
    """Yield each path below a folder, with a link's target, a file's size and time, or True for a folder."""
    for parent, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name != CACHE]
        for name in (*folders, *names):
            path = os.path.join(parent, name)
            state = os.readlink(path) if os.path.islink(path) else True if name in folders else _state(path)
            yield os.path.relpath(path, top), state
