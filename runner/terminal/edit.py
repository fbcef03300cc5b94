"""`nightshift edit`: changes the spec of waiting jobs. It parses its words as `submit` does."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from runner.api.edits import CLEAR, Edit, options_of
from runner.config import options
from runner.config.option_reader import read_words
from runner.errors import UserError
from runner.terminal.session import open_queue, print_each, spans_in
from runner.terminal.submit import HELP, SCRIPT, command_of, print_help

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from runner.api import Queue

USAGE = """\
Usage: nightshift edit N [options] [-- COMMAND…]
       nightshift edit 12                 (shows the options of the job)

Change jobs that wait. Options that you do not name stay. The job keeps the
folder and the environment it was submitted with, unless --dir, --workspace or
--env (which adds variables) changes them. One argument after -- is shell text;
several are an exact list of arguments.

  nightshift edit 12 --time 4h --priority high
  nightshift edit 12-15,20 --clear time,after
"""
OWN = (CLEAR, SCRIPT, HELP)
SECTIONS = {"This command": OWN, **options.SECTIONS}


def main(words: Sequence[str]) -> int:
    """Change jobs as the words say, or print their options. Return 1 if any change was refused, else 0."""
    if words and words[0] in HELP.flags:
        return print_help(USAGE, SECTIONS)
    if not words or words[0].startswith("-"):
        raise UserError("Which job? The number comes first: nightshift edit 12 --time 4h")
    values, rest, _ = read_words(words[1:], OWN)
    if values.pop("help", False):
        return print_help(USAGE, SECTIONS)
    with open_queue() as queue:
        numbers = spans_in(words[0]).of(queue.listing.unfinished())
        if not values and not rest:
            return print_each(numbers, lambda job_id: _now(queue, job_id))
        edit = _edit(queue, values, rest)
        return print_each(numbers, lambda job_id: queue.edit(job_id, edit))


def _edit(queue: Queue, values: dict[str, Any], rest: list[str]) -> Edit:
    if "dir" in values:
        values["dir"] = os.path.abspath(os.path.expanduser(values["dir"]))
    workspace = queue.workspaces.get(values["workspace"]) if "workspace" in values else None
    environment = queue.workspaces.environment(workspace) if workspace else None
    command, argv, script = command_of(values, rest) if rest or "script" in values else (None, None, False)
    values.pop("script", None)
    return Edit(
        values=values, command=command, argv=argv, script=script, workspace=workspace, environment=environment
    )  # fmt: skip


def _now(queue: Queue, job_id: int) -> str:
    """Return the `edit` command that would set the options and the command the job has now."""
    spec = queue.job(job_id).spec
    return f"nightshift edit {job_id} {options_of(spec)}".rstrip() + f" -- {spec.command}"
