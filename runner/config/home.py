"""Find the state folder and read its .env: the few settings that a fast client reads without the settings module."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from runner.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "NIGHTSHIFT_"
DEFAULT = "~/.nightshift"
RUNNER_BELL, BOT_BELL = "runner.sock", "bot.sock"
RUNNER_LOCK, BOT_LOCK = "runner.lock", "bot.lock"
PAGE_LINK = "page.url"  # a link to the chat page, for anybody who may read the state folder

_env_file: str | None = None


def use_env_file(path: str | None) -> None:
    """Read settings from this file instead of .env in the state folder (the option --env-file)."""
    global _env_file  # noqa: PLW0603 - one choice per process, made by its command line
    _env_file = os.path.abspath(path) if path else None


def env_file() -> str | None:
    """Return the file given with --env-file, or None."""
    return _env_file


def values(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return every setting as text. The environment wins over the .env file. The current folder's .env is not read."""
    from_file = {}
    path = _env_file or os.path.join(_expand(environ.get(PREFIX + "HOME") or DEFAULT), ".env")
    if _env_file or os.path.exists(path):
        from runner.config.env_file import read_env_file

        from_file = {key: value for key, value in read_env_file(path).items() if key.startswith(PREFIX)}
    return {**from_file, **{key: value for key, value in environ.items() if key.startswith(PREFIX)}}


def setting(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return one setting as text, or None if it is not set."""
    return values(environ).get(PREFIX + name) or None


def state_folder(environ: Mapping[str, str] = os.environ) -> str:
    """Return the state folder. It must be an absolute path: a relative one would mean a new queue in every folder."""
    folder = os.path.expanduser(setting("HOME", environ) or DEFAULT)
    if not os.path.isabs(folder):
        raise OperatorError(f"NIGHTSHIFT_HOME={folder} is not a full path: write {os.path.abspath(folder)}")
    return os.path.abspath(folder)


def backup_folder(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the absolute folder of the continuous copy, or None if there is none."""
    folder = setting("BACKUP_DIR", environ)
    return _expand(folder) if folder else None


def _expand(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))
