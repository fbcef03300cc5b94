"""Commands that hold or reorder waiting jobs: hold, release, first, sooner, later, move."""

from __future__ import annotations

import click

from runner.terminal.session import JOBS_ARGUMENT, UNFINISHED_JOB, act_on_each


@click.command("hold")
@JOBS_ARGUMENT
def hold(job_ids: tuple[int, ...]) -> int:
    """Keep waiting jobs from starting, until `nightshift release`."""
    return act_on_each(job_ids, lambda queue, job_id: queue.hold(job_id))


@click.command("release")
@JOBS_ARGUMENT
def release(job_ids: tuple[int, ...]) -> int:
    """Let held jobs start again. Each keeps its position in the queue."""
    return act_on_each(job_ids, lambda queue, job_id: queue.release(job_id))


@click.command("first")
@JOBS_ARGUMENT
def first(job_ids: tuple[int, ...]) -> int:
    """Move waiting jobs before all others of their owner and priority, in the order named."""
    return act_on_each(reversed(job_ids), lambda queue, job_id: queue.to_front(job_id))


@click.command("sooner")
@click.argument("job_id", type=UNFINISHED_JOB, metavar="N")
def sooner(job_id: int) -> int:
    """Move a waiting job one position forward, among those of its owner and priority."""
    return act_on_each([job_id], lambda queue, each: queue.move_up(each))


@click.command("later")
@click.argument("job_id", type=UNFINISHED_JOB, metavar="N")
def later(job_id: int) -> int:
    """Move a waiting job one position back, among those of its owner and priority."""
    return act_on_each([job_id], lambda queue, each: queue.move_down(each))


@click.command("move")
@click.argument("job_id", type=UNFINISHED_JOB, metavar="N")
@click.argument("where", type=click.Choice(["first", "sooner", "later", "last", "before", "after"]))
@click.argument("other", type=UNFINISHED_JOB, metavar="[M]", required=False)
def move(job_id: int, where: str, other: int | None) -> int:
    """Move a waiting job, among those of its owner and priority: nightshift move 12 after 14"""
    return act_on_each([job_id], lambda queue, each: queue.move(each, where, other))
