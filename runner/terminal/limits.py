"""`nightshift keep` and `extend`: more time for jobs."""

from __future__ import annotations

import click

from runner.terminal.session import JOB_ARGUMENT, JOBS_ARGUMENT, act_on_each
from runner.units import parse_duration


@click.command("keep")
@JOBS_ARGUMENT
@click.option("--for", "duration", metavar="1h", help="For how long (default: until it ends).")
def keep(job_ids: tuple[int, ...], duration: str | None) -> int:
    """Do not stop these jobs for being idle or hung.

    Example: nightshift keep 12 --for 2h
    """
    for_s = parse_duration(duration) if duration else None
    return act_on_each(job_ids, lambda queue, job_id: queue.keep(job_id, for_s))


@click.command("extend")
@JOB_ARGUMENT
@click.argument("duration", metavar="TIME")
def extend(job_id: int, duration: str) -> int:
    """Extend the time limit of job N. It may already be running.

    Example: nightshift extend 12 2h
    """
    by_s = parse_duration(duration)
    return act_on_each([job_id], lambda queue, each: queue.extend(each, by_s))
