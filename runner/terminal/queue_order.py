"""Commands that hold or reorder waiting jobs: hold, release, first, sooner, later, move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from runner.terminal.session import JOB_ARGUMENT, JOBS_ARGUMENT, UNFINISHED_JOB, act_on_each

if TYPE_CHECKING:
    from collections.abc import Iterable


@click.command("hold")
@JOBS_ARGUMENT
def hold(job_ids: tuple[int, ...]) -> int:
    """Keep waiting jobs from starting, until `nightshift release`."""
    return act_on_each(job_ids, lambda queue, job_id: queue.order.hold(job_id))


@click.command("release")
@JOBS_ARGUMENT
def release(job_ids: tuple[int, ...]) -> int:
    """Let held jobs start again. Each keeps its position in the queue."""
    return act_on_each(job_ids, lambda queue, job_id: queue.order.release(job_id))


@click.command("first")
@JOBS_ARGUMENT
def first(job_ids: tuple[int, ...]) -> int:
    """Move waiting jobs before all others of their owner and priority, in the order given."""
    return _move(reversed(job_ids), "first")


@click.command("sooner")
@JOB_ARGUMENT
def sooner(job_id: int) -> int:
    """Move a waiting job one position forward, among those of its owner and priority."""
    return _move([job_id], "sooner")


@click.command("later")
@JOB_ARGUMENT
def later(job_id: int) -> int:
    """Move a waiting job one position back, among those of its owner and priority."""
    return _move([job_id], "later")


@click.command("move")
@JOB_ARGUMENT
@click.argument("where", type=click.Choice(["first", "sooner", "later", "last", "before", "after"]), metavar="WHERE")
@click.argument("other", type=UNFINISHED_JOB, metavar="[M]", required=False)
def move(job_id: int, where: str, other: int | None) -> int:
    """Move a waiting job, among those of its owner and priority.

    WHERE is first, sooner, later, last, before M or after M.

    Example: nightshift move 12 after 14
    """
    return _move([job_id], where, other)


def _move(job_ids: Iterable[int], where: str, other: int | None = None) -> int:
    return act_on_each(job_ids, lambda queue, job_id: queue.order.move(job_id, where, other))
