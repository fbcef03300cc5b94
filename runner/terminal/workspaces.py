"""`nightshift ws`: manages workspaces. It never shows the values of variables, only their names."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from runner.config.env_file import read_env_file
from runner.config.options import parse_variable
from runner.config.profiles import parse_settings
from runner.config.workspace import Workspace, environment_of, validate
from runner.errors import UserError
from runner.terminal.cli import HELP_NAMES, Commands, Entry
from runner.terminal.session import AS_JSON, open_queue, print_json
from runner.text.table import Row, print_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.api import Queue

_HERE = "runner.terminal.workspaces"

_COMMANDS = {
    "ls": Entry(f"{_HERE}:list_all", "list the workspaces"),
    "show": Entry(f"{_HERE}:show", "show everything about one"),
    "add": Entry(f"{_HERE}:add", "make one"),
    "edit": Entry(f"{_HERE}:edit", "change one"),
    "rm": Entry(f"{_HERE}:remove", "remove one; its folder stays"),
}


@click.group("ws", Commands, sections={"Commands": _COMMANDS}, context_settings=HELP_NAMES)
def workspaces() -> None:
    """A workspace is a folder and an environment for jobs: those with -w NAME, and those from the chat."""


def _fields(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that describe a workspace to a command."""
    options = [
        click.option("--dir", "folder", metavar="FOLDER", help="Where its jobs run."),
        click.option("--activate", metavar="LINE", help="Shell that sets up its environment: . venv/bin/activate"),
        click.option("--env", "variables", metavar="K=V", multiple=True, help="Set a variable; repeat for more."),
        click.option("--env-file", metavar="FILE", help="File of variables, read when a job starts; for secrets."),
        click.option("--default", is_flag=True, help="Use it for chat jobs that name no workspace."),
        click.option("--profile", metavar="NAME", help="Profile for jobs that are probed; see docs/batch.md."),
        click.option("--probe-with", metavar="margin=85%,cap=512", help="Settings for jobs that are probed."),
        click.option("--progress", metavar="PATTERN", help="What its jobs print: 'step (?P<n>\\d+)'"),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@click.command("add")
@click.argument("name")
@_fields
def add(name: str, **options: Any) -> None:
    """Make the workspace NAME. Its folder is the current one unless --dir names another.

    Example: nightshift ws add vision --dir ~/vision --activate '. venv/bin/activate'
    """
    with open_queue() as queue:
        if any(workspace.name == name for workspace in queue.workspaces.all()):
            raise UserError(f"There is already a workspace {name!r}. Change it: nightshift ws edit {name}")
        put(queue, _changed(Workspace(name=name, dir=os.getcwd()), options))


@click.command("edit")
@click.argument("name")
@_fields
@click.option("--unset", metavar="K", multiple=True, help="Remove a variable; repeat for more.")
def edit(name: str, **options: Any) -> None:
    """Change the workspace NAME. Options that you do not name stay; an empty value removes one."""
    with open_queue() as queue:
        put(queue, _changed(queue.workspaces.get(name), options))


def _changed(old: Workspace, options: dict[str, Any]) -> Workspace:
    """Return the workspace with these changes. None leaves a field as it is; an empty text removes it."""
    chosen = {name: value for name, value in options.items() if value is not None}
    variables = {key: value for key, value in old.variables.items() if key not in chosen.get("unset", ())}
    for text in chosen["variables"]:
        variables |= parse_variable(text)
    return replace(
        old,
        dir=_absolute(chosen["folder"]) if "folder" in chosen else old.dir,
        activate=chosen.get("activate", old.activate),
        variables=variables,
        env_file=_absolute(chosen["env_file"]) if chosen.get("env_file") else chosen.get("env_file", old.env_file),
        default=chosen["default"] or old.default,
        probe=_probe(old.probe, chosen.get("profile"), chosen.get("probe_with")),
        progress=chosen.get("progress", old.progress) or None,
    )


def _probe(old: dict[str, Any], profile: str | None, settings: str | None) -> dict[str, Any]:
    """Return the old probe settings with the given changes. An empty text removes what it would have set."""
    name = old.get("profile") if profile is None else profile or None
    rest = {key: value for key, value in old.items() if key != "profile"} if settings != "" else {}
    return {**({"profile": name} if name else {}), **rest, **(parse_settings(settings) if settings else {})}


def put(queue: Queue, workspace: Workspace) -> None:
    """Check the workspace and save it. The environment is captured now, so that a mistake shows now."""
    checked = validate(workspace)
    environment_of(checked)
    queue.workspaces.put(checked)
    stored = queue.workspaces.get(checked.name)
    print(f"Workspace {stored.name}: {stored.dir}{' (default)' if stored.default else ''}")


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


@click.command("rm")
@click.argument("name")
def remove(name: str) -> None:
    """Remove the workspace NAME. Its folder stays, and its jobs keep what they were submitted with."""
    with open_queue() as queue:
        was_default = queue.workspaces.get(name).default
        queue.workspaces.remove(name)
        print(f"Removed workspace {name}.")
        if was_default and queue.workspaces.all():
            print("There is no default now. Choose one: nightshift ws edit NAME --default")


@click.command("show")
@click.argument("name")
@AS_JSON
def show(name: str, as_json: bool) -> None:
    """Show the workspace NAME."""
    with open_queue() as queue:
        described = _described(queue.workspaces.get(name))
    if as_json:
        print_json(described)
        return
    for label, value in described.items():
        parts = [f"{name}={setting}" for name, setting in value.items()] if isinstance(value, dict) else value
        text = ", ".join(parts) if isinstance(parts, list) else parts
        print(f"{label.replace('_', ' '):<20} {'–' if text in (None, '') else text}")


@click.command("ls")
@AS_JSON
def list_all(as_json: bool) -> None:
    """List the workspaces."""
    with open_queue() as queue:
        stored = queue.workspaces.all()
    if as_json:
        print_json([_described(workspace) for workspace in stored])
    elif not stored:
        print("There are no workspaces yet. Make one: nightshift ws add NAME --dir FOLDER")
    else:
        rows = [Row([w.name + (" *" if w.default else ""), w.dir, w.activate or ""]) for w in stored]
        print_table(["NAME", "FOLDER", "ACTIVATE"], rows, cut=(2, 1))
        print("* is the default." if any(w.default for w in stored) else "None of them is the default.")


def _described(workspace: Workspace) -> dict[str, Any]:
    return {
        "name": workspace.name,
        "dir": workspace.dir,
        "activate": workspace.activate,
        "default": workspace.default,
        "variables": sorted(workspace.variables),
        "env_file": workspace.env_file,
        "env_file_variables": _names_in(workspace.env_file),
        "probe": workspace.probe,
        "progress": workspace.progress,
    }


def _names_in(env_file: str | None) -> list[str]:
    try:
        return sorted(read_env_file(env_file)) if env_file else []
    except UserError as error:
        return [f"({error})"]
