"""`nightshift ls` with options: lists jobs in order of time: ended, running, waiting."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from runner.model import State
from runner.terminal.job_table import SHORT, Choice, find, print_jobs
from runner.terminal.session import open_queue, print_json, print_json_list
from runner.text import words

if TYPE_CHECKING:
    from runner.model import Job

_KINDS = {
    "failed": [State.FAILED, State.LOST],
    "succeeded": [State.SUCCEEDED],
    "running": [State.STARTING, State.RUNNING],
    "queued": [State.QUEUED],
}


@click.command("ls")
@click.option("--all", "everything", is_flag=True, help="All jobs.")
@click.option("--failed", is_flag=True, help="Jobs that failed or were lost.")
@click.option("--succeeded", is_flag=True, help="Jobs that succeeded.")
@click.option("--running", is_flag=True, help="Running jobs.")
@click.option("--queued", is_flag=True, help="Waiting jobs.")
@click.option("--limit", type=click.IntRange(0, 10**9), metavar="N", help="At most N ended and N waiting jobs.")
@click.option("--commands", "only_commands", is_flag=True, help="Only the commands, one per line, for `submit -`.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs: all jobs by default.")
def ls(limit: int | None, only_commands: bool, as_json: bool, everything: bool, **chosen: bool) -> None:
    """List jobs: by default those that run, those that wait, and the latest that ended."""
    short = not (any(chosen.values()) or everything or only_commands or as_json)
    states = frozenset(state for kind, states in _KINDS.items() if chosen[kind] for state in states) or frozenset(State)
    each = -1 if limit is None else limit
    choice = SHORT if short and limit is None else Choice(states, each, each)
    with open_queue() as queue:
        if as_json and limit is None:
            print_json_list(queue.view.describe_rows(queue.listing.rows(choice.states)))
            return
        jobs = find(queue.listing, choice)
        if as_json:
            print_json(queue.view.describe(jobs))
        elif only_commands:
            _print_commands(jobs)
        else:
            print_jobs(queue, jobs, choice)


def _print_commands(jobs: list[Job]) -> None:
    for job in jobs:
        sys.stdout.buffer.write(words.as_one_line(job).encode("utf-8", "surrogateescape") + b"\n")
    sys.stdout.buffer.flush()
