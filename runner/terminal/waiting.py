"""Commands about single jobs: hold, release, first, sooner, later, move, keep, extend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from runner.terminal.session import UNFINISHED_JOB, open_queue, say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from runner.api import Queue

_JOBS = click.argument("job_ids", type=UNFINISHED_JOB, metavar="N…", nargs=-1, required=True)


@click.command("hold")
@_JOBS
def hold(job_ids: tuple[int, ...]) -> int:
    """Keep jobs that wait from starting, until `nightshift release`."""
    return _each(job_ids, lambda queue, job_id: queue.hold(job_id))


@click.command("release")
@_JOBS
def release(job_ids: tuple[int, ...]) -> int:
    """Let held jobs start again; each is where it was in the queue."""
    return _each(job_ids, lambda queue, job_id: queue.release(job_id))


@click.command("first")
@_JOBS
def first(job_ids: tuple[int, ...]) -> int:
    """Put jobs that wait before all others of their owner and priority, in the order named."""
    return _each(reversed(job_ids), lambda queue, job_id: queue.to_front(job_id))


@click.command("sooner")
@click.argument("job_id", type=UNFINISHED_JOB, metavar="N")
def sooner(job_id: int) -> int:
    """Put a job that waits one place further to the front, among those of its owner and priority."""
    return _each([job_id], lambda queue, each: queue.move_up(each))


@click.command("later")
@click.argument("job_id", type=UNFINISHED_JOB, metavar="N")
def later(job_id: int) -> int:
    """Put a job that waits one place further to the back, among those of its owner and priority."""
    return _each([job_id], lambda queue, each: queue.move_down(each))


@click.command("move")
@click.argument("job_id", type=UNFINISHED_JOB, metavar="N")
@click.argument("where", type=click.Choice(["first", "sooner", "later", "last", "before", "after"]))
@click.argument("other", type=UNFINISHED_JOB, metavar="[M]", required=False)
def move(job_id: int, where: str, other: int | None) -> int:
    """Put a job that waits elsewhere among those of its owner and priority: nightshift move 12 after 14"""
    return _each([job_id], lambda queue, each: queue.move(each, where, other))


@click.command("keep")
@_JOBS
@click.option("--for", "duration", metavar="1h", help="How long; without it for good.")
def keep(job_ids: tuple[int, ...], duration: str | None) -> int:
    """Leave jobs alone that would be stopped because their GPUs are idle."""
    from runner.quantities import parse_duration

    for_s = parse_duration(duration) if duration else None
    return _each(job_ids, lambda queue, job_id: queue.keep(job_id, for_s))


@click.command("extend")
@click.argument("job_id", type=UNFINISHED_JOB, metavar="N")
@click.argument("duration", metavar="2h")
def extend(job_id: int, duration: str) -> int:
    """Give a job so much more time than its limit; it may be running already."""
    from runner.quantities import parse_duration

    by_s = parse_duration(duration)
    return _each([job_id], lambda queue, each: queue.extend(each, by_s))


def _each(job_ids: Iterable[int], act: Callable[[Queue, int], str]) -> int:
    """One that is refused does not keep back the others; 1 if any was."""
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
