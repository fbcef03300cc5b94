"""What every command needs: the queue, arguments for jobs and groups, and output."""

from __future__ import annotations

import json
import sys
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from click.shell_completion import CompletionItem

    from runner.api import Queue

    NumberType = click.ParamType[int]
    NameType = click.ParamType[str]
else:
    NumberType = NameType = click.ParamType  # generic only in later versions of click

LARGEST_ID = (1 << 63) - 1  # SQLite's
FEW = 100  # a list with up to this many entries is indented for people


def open_queue() -> Queue:
    """Open the queue of the current state folder, as the user at the terminal."""
    from runner.api import Queue
    from runner.terminal.submit import user

    return Queue(actor=user())


class JobNumber(NumberType):
    """A job number as an argument: `12` or `#12`."""

    name = "job"

    def __init__(self, unfinished: bool = False) -> None:
        self._unfinished = unfinished

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ARG002
        """Return the number, or raise UsageError."""
        text = str(value).removeprefix("#")
        if not (text.isascii() and text.isdigit() and len(text) < 20 and 0 < int(text) <= LARGEST_ID):
            raise click.UsageError(f"{value!r} is not the number of a job; `nightshift ls` lists them.", ctx)
        return int(text)

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the latest jobs, without those already typed."""
        from runner.terminal.completion import job_numbers

        typed = {str(value) for values in ctx.params.values() if isinstance(values, tuple) for value in values}
        return [item for item in job_numbers(incomplete, unfinished=self._unfinished) if item.value not in typed]


class GroupName(NameType):
    """The name of a group as an argument. The command checks that the group exists."""

    name = "group"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        """Return the name unchanged."""
        return str(value)

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the latest groups."""
        from runner.terminal.completion import group_names

        return group_names(incomplete)


GROUP = GroupName()
JOB = JobNumber()
UNFINISHED_JOB = JobNumber(unfinished=True)


def say(sentence: str) -> None:
    """Print a sentence to stderr: it is for the user, not for a pipe."""
    print(f"nightshift: {sentence}", file=sys.stderr)


def warn_without_runner(queue: Queue, consequence: str) -> None:
    """Say so if no runner is up, and what follows from that."""
    if not queue.runner_is_up():
        say(f"no runner is up for {queue.home}: {consequence}. Start one: nightshift up --detach")


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    print(json.dumps(value, indent=2))


def print_json_list(values: Iterable[Any]) -> None:
    """Print values as a JSON list while they come. In a long list, each is one line: that takes a tenth of the time."""
    rest = iter(values)
    first = list(islice(rest, FEW + 1))
    if len(first) <= FEW:
        print_json(first)
        return
    print("[", end="")
    separator = "\n"
    for value in chain(first, rest):
        sys.stdout.write(f"{separator}{json.dumps(value)}")
        separator = ",\n"
    print("\n]")


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: `1 job`, `2,000 jobs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


JOBS_ARGUMENT = click.argument("job_ids", type=UNFINISHED_JOB, metavar="N…", nargs=-1, required=True)


def act_on_each(job_ids: Iterable[int], act: Callable[[Queue, int], str]) -> int:
    """Call `act` for each job and print its answer. Return 1 if any was refused; the others are done anyway."""
    from runner.errors import UserError

    refused = 0
    with open_queue() as queue:
        for job_id in dict.fromkeys(job_ids):
            try:
                print(act(queue, job_id), flush=True)
            except UserError as error:
                say(str(error))
                refused = 1
    return refused
