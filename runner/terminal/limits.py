"""`nightshift keep` and `extend`: more time for jobs."""

from __future__ import annotations

import click

from runner.terminal.session import JOBS_ARGUMENT, UNFINISHED_JOB, act_on_each


@click.command("keep")
@JOBS_ARGUMENT
@click.option("--for", "duration", metavar="1h", help="How long; without it for good.")
def keep(job_ids: tuple[int, ...], duration: str | None) -> int:
    """Do not stop these jobs for being idle or hung."""
    from runner.units import parse_duration

    for_s = parse_duration(duration) if duration else None
    return act_on_each(job_ids, lambda queue, job_id: queue.keep(job_id, for_s))


@click.command("extend")
@click.argument("job_id", type=UNFINISHED_JOB, metavar="N")
@click.argument("duration", metavar="2h")
def extend(job_id: int, duration: str) -> int:
    """Extend the time limit of a job by this much. The job may already be running."""
    from runner.units import parse_duration

    by_s = parse_duration(duration)
    return act_on_each([job_id], lambda queue, each: queue.extend(each, by_s))
