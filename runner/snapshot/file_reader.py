"""Reads a project's files for a copy: regular files only, within limits of size and time.

It must not block on a pipe that replaced a file, nor read a growing file for ever.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from typing import TYPE_CHECKING, NamedTuple

from runner.config import home as settings
from runner.errors import UserError
from runner.snapshot.project_files import GIT, is_in
from runner.units import format_mib, parse_size_mib

if TYPE_CHECKING:
    from runner.snapshot.project_files import Tree

LIMIT = "200M"  # the default of NIGHTSHIFT_SNAPSHOT_LIMIT
LIMIT_S = 120.0
MIB = 1 << 20
CHUNK = 1 << 20
LARGEST_NAMED = 4
FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
REPLACED = {errno.ENOENT, errno.ELOOP, errno.ENXIO}  # gone; now a symbolic link; now a socket


class File(NamedTuple):
    """A file as it was when it was read."""

    digest: str
    size: int
    mtime_ns: int
    mode: int


class ChangingError(Exception):
    """Somebody is writing to the tree right now."""


class CopyLimits:
    """How large a copy may be, and how long it may take."""

    def __init__(self) -> None:
        self.size = parse_size_mib(settings.setting("SNAPSHOT_LIMIT") or LIMIT) * MIB
        self._until = time.monotonic() + LIMIT_S

    def refuse_too_long(self, root: str) -> None:
        """Raise UserError if the time is up."""
        if time.monotonic() > self._until:
            raise UserError(
                f"Copying the code in {root} takes longer than {LIMIT_S:.0f} s, so it was given up."
                " Name what is data in .gitignore, or submit without --snapshot."
            )

    def refuse_too_large(self, tree: Tree) -> None:
        """Raise UserError if the tree is too large. It names the largest files and how to leave them out."""
        sizes: dict[str, int] = {}
        for path in tree.files:
            with contextlib.suppress(OSError):
                size = os.lstat(os.path.join(tree.root, path)).st_size
                for name in {path, path.partition("/")[0]}:
                    sizes[name] = sizes.get(name, 0) + size
        total = sum(size for name, size in sizes.items() if "/" not in name)
        if total <= self.size:
            return
        largest = sorted(sizes, key=lambda name: -sizes[name])[:LARGEST_NAMED]
        named = ", ".join(f"{name} ({format_mib(sizes[name] / MIB)})" for name in largest)
        first = "" if os.path.exists(os.path.join(tree.root, GIT)) else "`git init`, and "
        raise UserError(
            f"The code in {tree.root} has {format_mib(total / MIB)}, but a copy may have at most"
            f" {format_mib(self.size / MIB)} (NIGHTSHIFT_SNAPSHOT_LIMIT). Largest: {named}."
            f" To have data linked, not copied: {first}name it in .gitignore."
        )


def read(tree: Tree, limits: CopyLimits) -> dict[str, File | str]:
    """Return each file as it is now, and the target of each link."""
    files: dict[str, File | str] = {}
    room = limits.size
    for path in tree.files:
        limits.refuse_too_long(tree.root)
        source = os.path.join(tree.root, path)
        try:
            if stat.S_ISLNK(os.lstat(source).st_mode):
                files[path] = _target(tree.root, path)
                continue
            files[path] = file = content(source, None, room)
        except FileNotFoundError:
            raise ChangingError(source) from None
        except OSError as error:
            raise UserError(
                f"{source} cannot be read: {error.strerror}. Change that, or name it in .gitignore."
            ) from error
        room -= file.size
    return files


def content(source: str, copy: str | None, most: int) -> File:
    """Read a file of at most `most` bytes. Write what was read to `copy`, if given."""
    digest = hashlib.sha256()
    with open(_opened(source), "rb", buffering=0) as file:
        before = os.fstat(file.fileno())
        if not stat.S_ISREG(before.st_mode) or before.st_size > most:  # it was another file when the tree was listed
            raise ChangingError(source)
        rest = before.st_size + 1
        with open(copy, "xb", buffering=0) if copy else contextlib.nullcontext() as out:
            while data := file.read(min(CHUNK, rest)):
                rest -= len(data)
                digest.update(data)
                if out is not None:
                    _write(out.fileno(), data)
        after = os.fstat(file.fileno())
    if not rest or (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ChangingError(source)
    return File(digest.hexdigest(), after.st_size, after.st_mtime_ns, stat.S_IMODE(after.st_mode))


def _opened(source: str) -> int:
    try:
        return os.open(source, FLAGS)
    except OSError as error:
        if error.errno in REPLACED:
            raise ChangingError(source) from None
        raise


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _target(root: str, path: str) -> str:
    """Return the target of a link in the copy: inside the tree, the copied file; otherwise where it led before."""
    here = os.path.dirname(os.path.join(root, path))
    leads_to = os.path.normpath(os.path.join(here, os.readlink(os.path.join(root, path))))
    for place in (leads_to, os.path.realpath(leads_to)):  # a home folder often has a second name
        if is_in(place, root):
            return os.path.relpath(place, here)
    return leads_to
