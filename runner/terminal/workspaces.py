"""`nightshift ws`: manages workspaces. It never shows the values of variables, only their names."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from runner.terminal.command_group import HELP_NAMES, Commands, Entry
from runner.terminal.session import open_queue, print_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.api import Queue
    from runner.config.workspace import Workspace

_HERE = "runner.terminal.workspaces"

workspaces = Commands(
    {
        "Commands": {
            "ls": Entry(f"{_HERE}:list_all", "list them"),
            "show": Entry(f"{_HERE}:show", "all about one"),
            "add": Entry(f"{_HERE}:add", "make one"),
            "edit": Entry(f"{_HERE}:edit", "change one"),
            "rm": Entry(f"{_HERE}:remove", "forget one"),
        }
    },
    name="ws",
    help="Workspaces: where and as what jobs run that name one (-w NAME), or that come from the chat.",
    context_settings=HELP_NAMES,
)


def _fields(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that describe a workspace to a command."""
    for option in reversed(
        [
            click.option("--dir", "folder", metavar="FOLDER", help="Where its jobs run."),
            click.option("--activate", metavar="LINE", help="Shell that sets up its environment: . venv/bin/activate"),
            click.option("--env", "variables", metavar="K=V", multiple=True, help="A variable; may be given again."),
            click.option("--env-file", metavar="FILE", help="Read when a job starts; for keys and tokens."),
            click.option("--default", "default", is_flag=True, help="The one a chat job gets that names none."),
            click.option("--profile", metavar="NAME", help="For its jobs that are probed: see docs/batch.md."),
            click.option("--probe-with", metavar="margin=85%,cap=512", help="How they are probed."),
        ]
    ):
        function = option(function)
    return function


@click.command("add")
@click.argument("name")
@_fields
def add(
    name: str,
    folder: str | None,
    activate: str | None,
    variables: tuple[str, ...],
    env_file: str | None,
    default: bool,
    profile: str | None,
    probe_with: str | None,
) -> None:
    """Make the workspace NAME. Its folder is the current one unless --dir names another."""
    from runner.config.workspace import Workspace
    from runner.errors import UserError

    with open_queue() as queue:
        if any(known.name == name for known in queue.workspaces.all()):
            raise UserError(f"There is a workspace {name!r} already. Change it: nightshift ws edit {name}")
        _put(
            queue,
            Workspace(
                name=name,
                dir=_absolute(folder or os.getcwd()),
                activate=activate,
                variables=_parsed(variables),
                env_file=_absolute(env_file) if env_file else None,
                default=default,
                probe=_probe({}, profile, probe_with),
            ),
        )


@click.command("edit")
@click.argument("name")
@_fields
@click.option("--unset", metavar="K", multiple=True, help="Take a variable out; may be given again.")
def edit(
    name: str,
    folder: str | None,
    activate: str | None,
    variables: tuple[str, ...],
    env_file: str | None,
    default: bool,
    profile: str | None,
    probe_with: str | None,
    unset: tuple[str, ...],
) -> None:
    """Change the given options of the workspace NAME. An empty value removes an option."""
    with open_queue() as queue:
        old = queue.workspaces.get(name)
        kept = {key: value for key, value in old.variables.items() if key not in unset}
        changed = replace(
            old,
            dir=_absolute(folder) if folder is not None else old.dir,
            activate=activate if activate is not None else old.activate,
            variables={**kept, **_parsed(variables)},
            env_file=old.env_file if env_file is None else env_file and _absolute(env_file),
            default=default or old.default,
            probe=_probe(old.probe, profile, probe_with),
        )
        _put(queue, changed)


def _probe(old: dict[str, Any], profile: str | None, settings: str | None) -> dict[str, Any]:
    """Return the old probe settings with the given changes. An empty text removes what it would have set."""
    from runner.config.profiles import parse_settings

    name = old.get("profile") if profile is None else profile or None
    kept = {key: value for key, value in old.items() if key != "profile"} if settings != "" else {}
    return {**({"profile": name} if name else {}), **kept, **(parse_settings(settings) if settings else {})}


def _put(queue: Queue, workspace: Workspace) -> None:
    """Check the workspace and save it. The environment is captured now, so that a mistake shows now."""
    from runner.config.workspace import environment_of, validate

    checked = validate(workspace)
    environment_of(checked)
    queue.workspaces.put(checked)
    kept = queue.workspaces.get(checked.name)
    print(f"Workspace {kept.name}: {kept.dir}{' (default)' if kept.default else ''}")


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _parsed(variables: tuple[str, ...]) -> dict[str, str]:
    from runner.config.options import parse_variable

    return {name: value for text in variables for name, value in parse_variable(text).items()}


@click.command("rm")
@click.argument("name")
def remove(name: str) -> None:
    """Forget the workspace NAME. Its folder stays, and its jobs keep what they were submitted with."""
    with open_queue() as queue:
        was_default = queue.workspaces.get(name).default
        queue.workspaces.remove(name)
        rest = "" if not was_default else " There is no default now: nightshift ws edit NAME --default"
        print(f"Workspace {name} is forgotten.{rest if queue.workspaces.all() else ''}")


@click.command("show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
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
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def list_all(as_json: bool) -> None:
    """List the workspaces."""
    from runner.text.table import Row, print_table

    with open_queue() as queue:
        found = queue.workspaces.all()
    if as_json:
        print_json([_described(workspace) for workspace in found])
    elif not found:
        print(
            "There is no workspace yet. Make one: nightshift ws add NAME --dir FOLDER --activate '. venv/bin/activate'"
        )
    else:
        rows = [Row([w.name + (" *" if w.default else ""), w.dir, w.activate or ""]) for w in found]
        print_table(["NAME", "FOLDER", "ACTIVATE"], rows, cut=(2, 1))
        print("* is the default." if any(w.default for w in found) else "None of them is the default.")


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
    }


def _names_in(env_file: str | None) -> list[str]:
    from runner.config.env_file import read_env_file
    from runner.errors import UserError

    try:
        return sorted(read_env_file(env_file)) if env_file else []
    except UserError as error:
        return [f"({error})"]
