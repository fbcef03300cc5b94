"""Parses job numbers and ranges in one word: `12`, `#12`, `14-16,20`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from runner.errors import UserError
from runner.terminal.session import LARGEST_ID, JobNumber

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.api import Queue
    from runner.store.groups import Member


class Spans(NamedTuple):
    """Job numbers as they were typed: the first and last of each range."""

    ends: tuple[tuple[int, int], ...]

    def of(self, there: Iterable[int]) -> list[int]:
        """Return each single number, and the numbers in `there` within each range. Raise UserError if that is none."""
        known = sorted(there)
        found: list[int] = []
        for first, last in self.ends:
            found += [first] if first == last else [number for number in known if first <= number <= last]
        if not found:
            first, last = self.ends[0]
            raise UserError(f"No job from {first} to {last} waits or runs.")
        return list(dict.fromkeys(found))

    def hold(self, number: int) -> bool:
        """Return whether a number is in one of the ranges."""
        return any(first <= number <= last for first, last in self.ends)


def spans_in(text: str) -> Spans:
    """Parse a word like `14-16,20`. Raise UserError if it is not one."""
    ends = []
    for part in text.split(","):
        found = re.fullmatch(r"#?([0-9]{1,19})(?:-#?([0-9]{1,19}))?", part, re.ASCII)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        if not 0 < first <= last <= LARGEST_ID:
            raise UserError(f"{part!r} is not the number of a job, nor 14-16; `nightshift ls` lists them.")
        ends.append((first, last))
    return Spans(tuple(ends))


class JobSpans(JobNumber):
    """Job numbers and ranges as an argument of a command."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002
        """Return the ranges, or raise UsageError with an example."""
        try:
            return value if isinstance(value, Spans) else spans_in(str(value))
        except UserError as error:
            raise click.UsageError(str(error), ctx) from None


UNFINISHED_JOBS = JobSpans(unfinished=True)


def jobs_meant(queue: Queue, job_ids: tuple[int, ...], group: str | None, which: str, none: str) -> tuple[int, ...]:
    """Return the named jobs, or those of a group. Raise UserError if there are none."""
    from runner.api.groups import find
    from runner.errors import UserError

    if group is None:
        if not job_ids:
            raise UserError("Which jobs? Name them by number, or a group with --group; `nightshift ls` lists them.")
        return job_ids
    if job_ids:
        raise UserError(f"Either numbers or --group {group}, not both at once.")
    find(queue, group)
    found: list[Member] = getattr(queue.groups, which)(group)
    if not found:
        raise UserError(f"{group}: {none}.")
    return tuple(member.id for member in found)
