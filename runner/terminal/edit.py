"""`nightshift edit`: changes the spec of waiting jobs. It parses its words as `submit` does."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from runner.api.edits import CLEAR, Edit, options_of
from runner.config import options
from runner.errors import UserError
from runner.terminal.job_numbers import spans_in
from runner.terminal.session import open_queue, say
from runner.terminal.submit import command_of, usage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from runner.api import Queue

USAGE = """\
Usage: nightshift edit N [options] [-- COMMAND…]
       nightshift edit 12 --time 4h --priority high
       nightshift edit 12-15,20 --clear time,after
       nightshift edit 12                           which options it has now

Change jobs that wait. What is not named stays; the environment and the folder stay as they were captured, unless
--dir, --env (which adds to those it has) or --workspace name others. One argument after -- is shell text; several
are an exact argument list.

Options:
"""
OWN = (
    CLEAR,
    options.Option(("--script",), "FILE", "script", "run this file instead of its command", str),
    options.Option(("-h", "--help"), "", "help", "this text", bool),
)
SHOWN = (*options.OPTIONS, *OWN)


def main(words: Sequence[str]) -> int:
    """Change jobs as the words say, or print their options. Return 1 if any change was refused, else 0."""
    if words and words[0] in {"-h", "--help"}:
        print(usage(USAGE, SHOWN), end="")
        return 0
    if not words or words[0].startswith("-"):
        raise UserError("Which job? The number comes first: nightshift edit 12 --time 4h")
    values, rest, _ = options.read_words(words[1:], OWN)
    if values.pop("help", False):
        print(usage(USAGE, SHOWN), end="")
        return 0
    with open_queue() as queue:
        numbers = spans_in(words[0]).of(queue.unfinished())
        if not values and not rest:
            return _each(numbers, lambda job_id: _now(queue, job_id))
        edit = _edit(queue, values, rest)
        return _each(numbers, lambda job_id: queue.edit(job_id, edit))


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


def _each(numbers: Sequence[int], act: Any) -> int:
    refused = 0
    for job_id in numbers:
        try:
            print(act(job_id), flush=True)
        except UserError as error:
            say(str(error))
            refused = 1
    return refused
