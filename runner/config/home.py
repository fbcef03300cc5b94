"""Where the state folder is and what its .env says: the few settings a quick client reads by itself."""

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
PAGE_LINK = "page.url"  # how to reach the chat page, for whoever may read the state folder

_env_file: str | None = None


def use_env_file(path: str | None) -> None:
    """Read settings from this file instead of .env in the state folder (the option --env-file)."""
    global _env_file  # noqa: PLW0603 - one choice per process, made by its command line
    _env_file = os.path.abspath(path) if path else None


def env_file() -> str | None:
    """The file named by --env-file, if one was."""
    return _env_file


def values(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Every setting as text: the environment first, then the .env file. Never from the current folder."""
    found = {}
    path = _env_file or os.path.join(_expand(environ.get(PREFIX + "HOME") or DEFAULT), ".env")
    if _env_file or os.path.exists(path):
        from runner.config.env_file import read_env_file

        found = {key: value for key, value in read_env_file(path).items() if key.startswith(PREFIX)}
    return {**found, **{key: value for key, value in environ.items() if key.startswith(PREFIX)}}


def setting(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """One setting as text, or None where it is not set."""
    return values(environ).get(PREFIX + name) or None


def state_folder(environ: Mapping[str, str] = os.environ) -> str:
    """The state folder, absolute: one that depends on where one stands would be another queue in every folder."""
    folder = os.path.expanduser(setting("HOME", environ) or DEFAULT)
    if not os.path.isabs(folder):
        raise OperatorError(f"NIGHTSHIFT_HOME={folder} is not a whole path: write {os.path.abspath(folder)}")
    return os.path.abspath(folder)


def backup_folder(environ: Mapping[str, str] = os.environ) -> str | None:
    """Where the continuous copy is, absolute; None without one."""
    folder = setting("BACKUP_DIR", environ)
    return _expand(folder) if folder else None


def _expand(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))
