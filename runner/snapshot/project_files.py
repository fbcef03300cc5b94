"""Tells a project's code from its data and results.

In a git work tree, git decides: tracked and new files are code, with their current content, and ignored files are
data. Elsewhere names decide that results, datasets and virtual environments commonly have. An empty folder counts as
a place for results.
"""

from __future__ import annotations

import os
import stat
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_ENTRIES = 100_000
GIT_LIMIT_S = 60.0
DATA = frozenset(
    {
        *("data", "datasets", "dataset", "wandb", "mlruns", "outputs", "output", "out", "runs", "results", "logs"),
        *("lightning_logs", "multirun", "checkpoints", "ckpt", "ckpts", "weights"),
        *("venv", ".venv", "env", "node_modules", "site-packages", ".cache"),
    }
)
CACHE = "__pycache__"  # made again wherever the code runs
GIT = ".git"


class Tree(NamedTuple):
    """A project. All paths are relative to its root."""

    root: str
    files: tuple[str, ...]  # code: files and symbolic links
    data: tuple[str, ...]  # data or results: files and folders, topmost only
    left_out: tuple[str, ...] = ()  # sockets, pipes, devices
    commit: str | None = None


def tree_of(folder: str, without: str = "") -> Tree:
    """Return the project that a folder belongs to, leaving out `without`. Raise UserError if it cannot be listed."""
    folder, without = os.path.realpath(folder), os.path.realpath(without) if without else ""
    root = _root_of_repository(folder)
    if root is not None:
        tree = _by_git(root)
        below = os.path.relpath(folder, root)
        if not any(is_in(below, entry) for entry in tree.data):
            files = tuple(path for path in tree.files if not without or not is_in(os.path.join(root, path), without))
            return tree._replace(files=files)
    return _by_names(folder, without)  # also for a folder that its repository ignores


def is_in(path: str, folder: str) -> bool:
    """Return whether a path is this folder or inside it."""
    return path == folder or path.startswith(folder + "/")


# -- by git ----------------------------------------------------------------------------------------------------------


def _root_of_repository(folder: str) -> str | None:
    """Return the top of the git work tree, or None if there is none."""
    here = folder
    while not os.path.exists(os.path.join(here, GIT)):
        if here == os.path.dirname(here):
            return None
        here = os.path.dirname(here)
    return os.path.realpath(_git(folder, "rev-parse", "--show-toplevel")[:-1])


def _by_git(root: str) -> Tree:
    ignored = _entries(root, "--others", "--ignored", "--exclude-standard", "--directory")
    data = set(_topmost(path.rstrip("/") for path in ignored if CACHE not in path.split("/")))
    files: set[str] = set()
    left_out: set[str] = set()
    for path in _entries(root, "--cached", "--others", "--exclude-standard"):
        name = path.rstrip("/")
        if CACHE in name.split("/"):
            continue
        mode = _mode(os.path.join(root, name))
        if stat.S_ISDIR(mode):
            inner_root = os.path.join(root, name)  # git lists only its name: a repository inside another one
            inner = _by_git(inner_root) if os.path.exists(os.path.join(inner_root, GIT)) else _by_names(inner_root)
            for kind, paths in ((files, inner.files), (data, inner.data), (left_out, inner.left_out)):
                kind.update(f"{name}/{path}" for path in paths)
        elif mode:  # git also lists files that were deleted
            (files if stat.S_ISREG(mode) or stat.S_ISLNK(mode) else left_out).add(name)
    new = _entries(root, "--others", "--exclude-standard", "--directory")
    data.update(_empty_folders(root, (path.rstrip("/") for path in new if path.endswith("/")), data))
    data.difference_update({parent for path in files for parent in parents(path)})
    return Tree(root, tuple(sorted(files)), tuple(sorted(data)), tuple(sorted(left_out)), commit=_commit(root))


def _empty_folders(root: str, folders: Iterable[str], data: set[str]) -> Iterator[str]:
    for folder in folders:
        if folder in data or CACHE in folder.split("/"):
            continue
        for parent, folders_in, names in os.walk(os.path.join(root, folder)):
            if not folders_in and not names:
                yield os.path.relpath(parent, root)
            folders_in[:] = [name for name in folders_in if name not in {CACHE, GIT}]


def _topmost(paths: Iterable[str]) -> Iterator[str]:
    last = None
    for path in sorted(set(paths), key=lambda path: path.split("/")):
        if last is None or not is_in(path, last):
            last = path
            yield path


def parents(path: str) -> Iterator[str]:
    """Yield the folders above a relative path, nearest first."""
    while path := os.path.dirname(path):
        yield path


def _entries(root: str, *options: str) -> list[str]:
    paths = _git(root, "ls-files", "-z", *options).split("\0")[:-1]
    _refuse_too_many(root, len(paths))
    return paths


def _commit(root: str) -> str | None:
    try:
        return _git(root, "rev-parse", "--verify", "HEAD").strip()
    except UserError:
        return None  # no commit yet


def _git(folder: str, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", folder, *words], env={**environment, "LC_ALL": "C"}, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=GIT_LIMIT_S, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise UserError(f"{folder} is in a git repository, but git is not installed. Install it.") from None
    except subprocess.TimeoutExpired:
        raise UserError(
            f"git takes longer than {GIT_LIMIT_S:.0f} s to list the files of {folder}. Look whether `git status` ends"
            " there: a pipe in place of .gitignore stops it, and so does a network folder that hangs."
        ) from None
    if done.returncode != 0:
        reason = os.fsdecode(done.stderr).strip().partition("\n")[0]
        raise UserError(f"git cannot list the files of {folder}: {reason}")
    return os.fsdecode(done.stdout)


# -- by names --------------------------------------------------------------------------------------------------------


def _by_names(root: str, without: str = "") -> Tree:
    files: list[str] = []
    data: list[str] = []
    left_out: list[str] = []
    waiting = [""]
    while waiting:
        here = waiting.pop()
        try:
            with os.scandir(os.path.join(root, here)) as listing:
                entries = list(listing)
        except FileNotFoundError:
            continue  # it was just removed, like a temporary folder
        except OSError as error:
            raise UserError(f"{os.path.join(root, here)} cannot be copied: {error.strerror}.") from error
        if not entries and here:
            data.append(here)
        for entry in entries:
            path = os.path.join(here, entry.name)
            if entry.name in {CACHE, GIT} or entry.path == without:
                continue
            if entry.is_dir(follow_symlinks=False):
                (data if _is_data(entry) else waiting).append(path)
            elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                files.append(path)
            else:
                left_out.append(path)
        _refuse_too_many(root, len(files) + len(data) + len(waiting))
    return Tree(root, tuple(sorted(files)), tuple(sorted(data)), tuple(sorted(left_out)))


def _is_data(entry: os.DirEntry[str]) -> bool:
    return entry.name.lower() in DATA or os.path.exists(os.path.join(entry.path, "pyvenv.cfg"))


def _mode(path: str) -> int:
    """Return the mode that lstat reports, or 0 if there is nothing."""
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _refuse_too_many(root: str, entries: int) -> None:
    if entries > MOST_ENTRIES:
        raise UserError(
            f"{root} has more than {MOST_ENTRIES:,} entries: too many to copy. Name its data in .gitignore."
        )
