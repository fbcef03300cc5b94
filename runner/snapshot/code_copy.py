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
from runner.snapshot.file_reader import MIB, ChangingError, File, Limits, content, read
from runner.snapshot.project_files import CACHE, is_in, tree_of
from runner.units import format_mib

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from runner.model import JobSpec
    from runner.snapshot.project_files import Tree

NEVER_TAKEN = "wanted, but never taken"
FOLDER, TREE, MANIFEST = "snapshots", "tree", "manifest.json"
UNFINISHED = ".new"  # prefix of incomplete copies
TRIES = 5
NAMED = 20  # at most this many links are named in a job's spec
_FULL_PATH = re.compile(r"""(?<![\w.~/-])~?/[^\s'"`;|&()<>:,]*""")


def wanted(specs: Iterable[JobSpec]) -> bool:
    """Return whether any of these jobs still needs its copy."""
    return any(spec.snapshot == {} for spec in specs)


def freeze(specs: Sequence[JobSpec], home: str) -> list[JobSpec]:
    """Return the same jobs, with a copy of the code for each that asks for one. Raise UserError if that fails."""
    taken: dict[str, dict[str, Any]] = {}
    for spec in specs:
        if spec.snapshot == {} and spec.dir not in taken:
            taken[spec.dir] = take(spec.dir, home)
    return [replace(spec, snapshot=taken[spec.dir]) if spec.snapshot == {} else spec for spec in specs]


def take(folder: str, home: str) -> dict[str, Any]:
    """Copy the tree that a folder belongs to, or find an equal copy. Return what a job's spec says about it."""
    limits = Limits()
    for _ in range(TRIES):
        tree = tree_of(folder, without=home)
        limits.refuse_too_large(tree)
        try:
            found = read(tree, limits)
            name = _kept(tree, found, home, limits)
        except ChangingError as error:
            changing = str(error)
            continue
        return {
            "name": name,
            "of": tree.root,
            "dir": os.path.relpath(os.path.realpath(folder), tree.root),
            "files": len(tree.files),
            "bytes": sum(file.size for file in found.values() if isinstance(file, File)),
            "commit": tree.commit,
            "shared": list(tree.data[:NAMED]),
            "shared_count": len(tree.data),
            "left_out": list(tree.left_out[:NAMED]),
        }
    raise UserError(f"{changing} keeps changing while the code is copied. Submit it when that has ended.")


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
        raise UserError(f"A copy of its code was {NEVER_TAKEN}. Submit it again.")
    if spec.snapshot and not os.path.isdir(work_folder(home, spec)):
        raise UserError("The copy of the code that this job was submitted with has been removed. Submit it again.")


def is_taken(spec: JobSpec) -> bool:
    """Return whether a copy was made. An earlier version could store the wish for a copy without making one."""
    return isinstance(spec.snapshot, dict) and "name" in spec.snapshot


def words(spec: JobSpec) -> str:
    """Describe the copy for people. Return "" for a job without one."""
    taken = spec.snapshot
    if not taken:
        return ""
    if not is_taken(spec):
        return NEVER_TAKEN
    files = "1 file" if taken["files"] == 1 else f"{taken['files']:,} files"
    said = f"{files}, {format_mib(taken['bytes'] / MIB)}" if taken["bytes"] >= MIB else files
    if taken["commit"]:
        said += f", on top of commit {taken['commit'][:8]}"
    if taken["shared"]:
        said += f"; links to {_some(taken['shared'], taken['shared_count'])}"
    if taken["left_out"]:
        said += f"; skipped, being pipes, sockets or devices: {_some(taken['left_out'], len(taken['left_out']))}"
    return said


def told(spec: JobSpec, home: str) -> str:
    """Return what to tell a person at a terminal about the copy just made."""
    assert spec.snapshot
    said = f"the code is copied as it is now: {words(spec)}. What else it writes stays in {tree_folder(home, spec)}"
    if _names(spec.command, spec.snapshot["of"]):
        said += f"\nThe command names {spec.snapshot['of']} itself, which is not the copy: write paths without it."
    return said


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


def _kept(tree: Tree, found: dict[str, File | str], home: str, limits: Limits) -> str:
    """Return the name of a copy with exactly this content. Make one if there is none."""
    manifest: dict[str, Any] = {
        "of": tree.root,
        "data": list(tree.data),
        "links": {path: leads_to for path, leads_to in found.items() if isinstance(leads_to, str)},
        "files": {path: list(file) for path, file in found.items() if isinstance(file, File)},
    }
    about = {**manifest, "files": {path: [file[0], file[3] & 0o111] for path, file in manifest["files"].items()}}
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    for number in range(1, 1000):
        name = key if number == 1 else f"{key}-{number}"
        place = os.path.join(home, FOLDER, name)
        is_new = not os.path.lexists(place) and _made(tree, found, manifest, place, limits)
        if is_new or _is_pristine(place):
            with contextlib.suppress(OSError):  # it was just removed: queueing the job will notice
                os.utime(place)
            return name
    raise UserError(f"There are too many copies of {tree.root} in {home}: nightshift prune --older-than 30d")


def _made(tree: Tree, found: dict[str, File | str], manifest: dict[str, Any], place: str, limits: Limits) -> bool:
    """Make the copy, complete or not at all. Return False if another one of its name appeared meanwhile."""
    parent = os.path.dirname(place)
    try:
        os.makedirs(parent, mode=0o700, exist_ok=True)
        new = mkdtemp(prefix=UNFINISHED, dir=parent)
        try:
            _copy(tree, found, os.path.join(new, TREE), limits)
            write_atomically(os.path.join(new, MANIFEST), json.dumps(manifest).encode())
            _refuse_changed(tree, found)
            _sync(new)
            return _renamed(new, place)
        finally:
            shutil.rmtree(new, ignore_errors=True)  # already renamed if all went well
    except OSError as error:
        raise UserError(f"The code cannot be copied into {parent}: {error.strerror}.") from error


def _renamed(new: str, place: str) -> bool:
    try:
        os.rename(new, place)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
        return False
    sync_folder(os.path.dirname(place))
    return True


def _copy(tree: Tree, found: dict[str, File | str], top: str, limits: Limits) -> None:
    os.mkdir(top)
    for path in (*found, *tree.data):
        os.makedirs(os.path.dirname(os.path.join(top, path)), exist_ok=True)
    for path, known in found.items():
        limits.refuse_too_long(tree.root)
        copy = os.path.join(top, path)
        if isinstance(known, str):
            os.symlink(known, copy)
            continue
        if content(os.path.join(tree.root, path), copy, known.size) != known:
            raise ChangingError(os.path.join(tree.root, path))
        os.chmod(copy, known.mode | stat.S_IRUSR)
        os.utime(copy, ns=(known.mtime_ns, known.mtime_ns))
    for path in tree.data:
        os.symlink(os.path.join(tree.root, path), os.path.join(top, path))


def _refuse_changed(tree: Tree, found: dict[str, File | str]) -> None:
    """Raise ChangingError if a file changed since it was read: the copy must show one moment."""
    for path, known in found.items():
        if isinstance(known, File) and _state(os.path.join(tree.root, path)) != [known.size, known.mtime_ns]:
            raise ChangingError(os.path.join(tree.root, path))


def _state(path: str) -> list[int] | None:
    try:
        seen = os.lstat(path)
    except OSError:
        return None
    return [seen.st_size, seen.st_mtime_ns] if stat.S_ISREG(seen.st_mode) else None


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
    top = os.path.join(place, TREE)
    links = {**manifest["links"], **{path: os.path.join(manifest["of"], path) for path in manifest["data"]}}
    folders = {parent for path in (*manifest["files"], *links) for parent in _parents(path)}
    seen = 0
    for path, kind in _entries(top):
        if kind == "folder":
            if path not in folders:
                return False
        elif kind == "link":
            seen += 1
            if links.get(path) != os.readlink(os.path.join(top, path)):
                return False
        else:
            seen += 1
            if path not in manifest["files"] or _state(os.path.join(top, path)) != manifest["files"][path][1:3]:
                return False
    return seen == len(links) + len(manifest["files"])


def _parents(path: str) -> Iterator[str]:
    while path := os.path.dirname(path):
        yield path


def _entries(top: str) -> Iterator[tuple[str, str]]:
    for parent, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name != CACHE]
        for name in (*folders, *names):
            path = os.path.join(parent, name)
            kind = "link" if os.path.islink(path) else "folder" if name in folders else "file"
            yield os.path.relpath(path, top), kind
