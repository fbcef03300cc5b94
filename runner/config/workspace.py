"""Workspaces: where a job runs and with what: a folder, a shell environment, an env file."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from runner.config.env_file import is_variable_name, read_env_file
from runner.config.job_environment import fingerprint, login_environment
from runner.config.options import parse_name, parse_progress
from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Files that a login shell reads before it runs the activate line.
_PROFILES = ("/etc/profile", "/etc/bash.bashrc", "~/.bash_profile", "~/.bash_login", "~/.profile", "~/.bashrc")
_PROFILE_FOLDER = "/etc/profile.d"
_SOURCED = r"(?:^|[;&|({\n])[^\S\n]*(?:source|\.)\s+((?:[^\s;&|'\"]|'[^']*'|\"[^\"]*\")+)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A named folder and environment to run jobs in."""

    name: str
    dir: str
    activate: str | None = None  # a line of shell that sets up the environment
    variables: dict[str, str] = field(default_factory=dict)
    env_file: str | None = None  # read when a job starts, so that its secrets are never copied
    default: bool = False
    probe: dict[str, Any] = field(default_factory=dict)  # for jobs that are probed: a profile, and settings
    progress: str | None = None  # a pattern for how far its jobs are


def validate(workspace: Workspace) -> Workspace:
    """Return the workspace with full paths. Raise UserError that says what is wrong."""
    folder = _folder(workspace.dir)
    return replace(
        workspace,
        name=parse_name(workspace.name),
        dir=folder,
        activate=_activate(workspace.activate or ""),
        variables=_variables(workspace.variables),
        env_file=_env_file(folder, workspace.env_file) if workspace.env_file else None,
        probe=_probe(workspace.probe) if workspace.probe else {},
        progress=parse_progress(workspace.progress) if workspace.progress else None,
    )


def _folder(text: str) -> str:
    folder = os.path.expanduser(text)
    if not os.path.isabs(folder):
        raise UserError(f"{text!r} is not a full path: it must begin with / or ~")
    if "\0" in folder or not os.path.isdir(folder):
        raise UserError(f"there is no folder {folder!r} on this box")
    return os.path.normpath(folder)


def _activate(text: str) -> str | None:
    if "\0" in text:
        raise UserError("the activate line holds a character that no shell can read")
    return text.strip() or None


def _variables(variables: Mapping[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if not is_variable_name(name) or "\0" in value:
            raise UserError(f"{name!r} cannot be a variable: use letters, digits and '_'")
    return dict(variables)


def _probe(settings: Mapping[str, Any]) -> dict[str, Any]:
    from runner.config import home, profiles

    own = {name: value for name, value in settings.items() if name != "profile"}
    profiles.Profile(**own)  # refuses values that are too small or too large
    if "profile" in settings:
        profiles.named(settings["profile"], home.state_folder())
    return dict(settings)


def _env_file(folder: str, text: str) -> str:
    """Return the full path of an env file. Raise UserError if it cannot be read, or if others can open it."""
    path = os.path.join(folder, os.path.expanduser(text))
    read_env_file(path)
    if os.stat(path).st_mode & 0o077:
        raise UserError(f"other users can open {path}, which may hold secrets; type: chmod 600 {shlex.quote(path)}")
    return path


def stamp(workspace: Workspace) -> str:
    """Return a cheap key that changes whenever environment_of may return something else."""
    facts = {path: _state_of(path) for path in (*_profiles(), *_sourced_files(workspace))}
    facts[""] = repr((workspace.dir, workspace.activate, sorted(workspace.variables.items())))
    return fingerprint(facts)


def _profiles() -> list[str]:
    own = [os.path.expanduser(path) for path in _PROFILES]
    try:
        return own + [os.path.join(_PROFILE_FOLDER, name) for name in os.listdir(_PROFILE_FOLDER)]
    except OSError:
        return own


def _state_of(path: str) -> str:
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return "missing"
    return f"{info.st_ino} {info.st_size} {info.st_mtime_ns}"


def _sourced_files(workspace: Workspace) -> list[str]:
    """Return the files that the activate line reads with `source X` or `. X`."""
    words = [word.replace("'", "").replace('"', "") for word in re.findall(_SOURCED, workspace.activate or "")]
    return [os.path.join(workspace.dir, os.path.expanduser(os.path.expandvars(word))) for word in words]


def environment_of(workspace: Workspace) -> dict[str, str]:
    """Return the environment that its jobs start from. Runs a login shell, so it takes as long as a login."""
    return {**login_environment(workspace.dir, workspace.activate), **workspace.variables}
