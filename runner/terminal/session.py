"""What every command needs: the queue, arguments for jobs and groups, job numbers like `14-16,20`, and output."""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.shell_completion import CompletionItem

from runner.errors import NightshiftError, UserError
from runner.units import parse_job_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from runner.api import Queue
    from runner.model import Job
    from runner.store.connection import Store
    from runner.store.groups import Member

    NumberType = click.ParamType[int]
else:
    NumberType = click.ParamType  # generic only in later versions of click

T = TypeVar("T")

LISTED_BY = "`nightshift ls` lists the jobs."

FEW = 100  # a list with up to this many entries is indented for people
OFFERED, WIDEST = 50, 60  # jobs or groups that are offered as completions, and cells for the text about each


def open_queue() -> Queue:
    """Open the queue of the current state folder, as the user at the terminal."""
    from runner.api import Queue
    from runner.terminal.console import user

    return Queue(actor=user())


class JobNumber(NumberType):
    """A job as an argument: `12`, `#12` or its name."""

    name = "job"

    def __init__(self, unfinished: bool = False) -> None:
        self._unfinished = unfinished

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ARG002
        """Return the number, or raise UsageError. Raise UserError if a name means several jobs."""
        ends = parse_job_range(str(value))
        number = _job_named(str(value)) if ends is None else ends[0]
        if number is None or (ends is not None and ends[0] != ends[1]):
            raise click.UsageError(f"{value!r} is not a job number, nor a job's name. {LISTED_BY}", ctx)
        return number

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the latest jobs, without those already typed."""
        typed = {str(value) for values in ctx.params.values() if isinstance(values, tuple) for value in values}
        return [item for item in job_numbers(incomplete, unfinished=self._unfinished) if item.value not in typed]


def _job_named(name: str) -> int | None:
    """Return the job that the user at the terminal means by a name; None if no job has it."""
    from runner.api.job_names import job_named

    with open_queue() as queue:
        return job_named(queue, name)


def job_numbers(incomplete: str, *, unfinished: bool) -> list[CompletionItem]:
    """Return the live jobs and the newest others, if their numbers begin with what was typed."""
    from runner.store.listing import Listing
    from runner.text.table import shortened
    from runner.text.words import state_words, title

    typed = incomplete.removeprefix("#")

    def find(store: Store) -> list[Job]:
        listing = Listing(store)
        live = [job for job in listing.live() if str(job.id).startswith(typed)]
        newest = listing.numbered(typed, OFFERED, unfinished=unfinished)
        return list({job.id: job for job in (*live, *newest)}.values())

    texts = {job.id: shortened(f"{state_words(job)}: {title(job)}", WIDEST) for job in _looked_up(find)}
    return [CompletionItem(str(job_id), help=text) for job_id, text in texts.items()]


def group_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return those of the latest groups whose names begin with what was typed."""
    from runner.store.groups import Groups

    names = _looked_up(lambda store: Groups(store).latest(OFFERED))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _looked_up(look: Callable[[Store], list[T]]) -> list[T]:
    """Return what `look` finds, or nothing if the queue cannot be opened: no errors while somebody types."""
    from runner.config import home
    from runner.store.connection import DATABASE, open_store

    try:
        folder = home.state_folder()
        if not os.path.exists(os.path.join(folder, DATABASE)):
            return []
        with closing(open_store(folder, begin=False)) as store:
            return look(store)
    except (NightshiftError, OSError):
        return []


class Spans(NamedTuple):
    """Job numbers as they were typed: the first and last of each range."""

    ends: tuple[tuple[int, int], ...]

    def of(self, existing: Iterable[int]) -> list[int]:
        """Return each single number, and the existing numbers within each range. Raise UserError if that is none."""
        in_order = sorted(existing)
        numbers: list[int] = []
        for first, last in self.ends:
            numbers += [first] if first == last else [number for number in in_order if first <= number <= last]
        if not numbers:
            first, last = self.ends[0]
            raise UserError(f"No job from {first} to {last} waits or runs.")
        return list(dict.fromkeys(numbers))

    def hold(self, number: int) -> bool:
        """Return whether a number is in one of the ranges."""
        return any(first <= number <= last for first, last in self.ends)


def spans_in(text: str) -> Spans:
    """Parse a word like `14-16,20`. Raise UserError if it is not one."""
    ends = []
    for part in text.split(","):
        span = parse_job_range(part)
        if span is None and (number := _job_named(part)) is not None:
            span = number, number
        if span is None or span[0] > span[1]:
            raise UserError(f"{part!r} is not a job number, nor a range like 14-16, nor a job's name. {LISTED_BY}")
        ends.append(span)
    return Spans(tuple(ends))


class JobSpans(JobNumber):
    """Job numbers and ranges as an argument of a command."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Return the ranges, or raise UsageError with an example."""
        try:
            return value if isinstance(value, Spans) else spans_in(str(value))
        except UserError as error:
            raise click.UsageError(str(error), ctx) from None


JOB = JobNumber()
UNFINISHED_JOB = JobNumber(unfinished=True)
UNFINISHED_JOBS = JobSpans(unfinished=True)
JOB_ARGUMENT = click.argument("job_id", type=UNFINISHED_JOB, metavar="N")
JOBS_ARGUMENT = click.argument("job_ids", type=UNFINISHED_JOB, metavar="N…", nargs=-1, required=True)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def group_option(text: str) -> Callable[[Any], Any]:
    """Return the option --group with this help."""
    return click.option("--group", metavar="NAME", shell_complete=group_names, help=text)


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


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: `1 job`, `2,000 jobs`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def act_on_each(job_ids: Iterable[int], act: Callable[[Queue, int], str]) -> int:
    """Open the queue, call `act` for each job and print its answer. Return 1 if any was refused."""
    with open_queue() as queue:
        return print_each(job_ids, lambda job_id: act(queue, job_id))


def print_each(job_ids: Iterable[int], act: Callable[[int], str]) -> int:
    """Call `act` for each job and print its answer. Return 1 if any was refused; the others are done anyway."""
    refused = 0
    for job_id in dict.fromkeys(job_ids):
        try:
            print(act(job_id), flush=True)
        except UserError as error:
            say(str(error))
            refused = 1
    return refused


def jobs_meant(queue: Queue, job_ids: tuple[int, ...], group: str | None, which: str, none: str) -> tuple[int, ...]:
    """Return the named jobs, or those of a group. Raise UserError if there are none."""
    from runner.api.groups import find

    if group is None:
        if not job_ids:
            raise UserError("Which jobs? Give their numbers, or --group NAME. `nightshift ls` lists them.")
        return job_ids
    if job_ids:
        raise UserError(f"Give either job numbers or --group {group}, not both.")
    find(queue, group)
    members: list[Member] = getattr(queue.groups, which)(group)
    if not members:
        raise UserError(f"{group}: {none}.")
    return tuple(member.id for member in members)
