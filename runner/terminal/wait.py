"""`nightshift wait`: waits until jobs have ended. It wakes when the database file changes, at every commit."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from runner.errors import UserError
from runner.model import FINAL_STATES, State
from runner.processes.file_changes import Changes
from runner.store.listing import Listing
from runner.terminal.session import UNFINISHED_JOB, group_option, jobs_meant, open_queue, say, warn_without_runner
from runner.text.words import state_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runner.api import Queue


@click.command("wait")
@click.argument("job_ids", type=UNFINISHED_JOB, metavar="[N…]", nargs=-1)
@group_option("All jobs of this group or sweep.")
@click.option("--all", "everything", is_flag=True, help="All jobs that wait or run now.")
def wait(job_ids: tuple[int, ...], group: str | None, everything: bool) -> int:
    """Wait until these jobs have ended.

    The exit code is 0 if all succeeded, otherwise the code of the first job that did not.

    Example: nightshift wait 12 13
    """
    if not (job_ids or group or everything):  # such as `nightshift wait $ids` with empty ids
        raise UserError("Which jobs? Give their numbers, --group NAME or --all.")
    if everything and (job_ids or group):
        raise UserError("Give either --all or some of the jobs, not both.")
    with open_queue() as queue:
        if group is not None:
            job_ids = jobs_meant(queue, job_ids, group, "current", "it has no jobs")
        awaited = job_ids or Listing(queue.store).unfinished()
        for job_id in awaited:
            queue.job(job_id)
        if awaited:
            warn_without_runner(queue, "this waits until one is")
        else:
            say("nothing waits or runs.")
        code = wait_for(queue, awaited, say)
        for job_id in awaited:
            print(f"Job {job_id}: {state_words(queue.job(job_id))}")
    return code


def wait_until(folder: str, done: Callable[[], bool]) -> None:
    """Wait until `done` returns true. It is called whenever something in the folder changes, at least every 5 s."""
    with closing(Changes(folder)) as changes:
        while not done():
            changes.wait()


def wait_for(queue: Queue, job_ids: Sequence[int], say: Callable[[str], None] | None = None) -> int:
    """Wait until all these jobs have ended. Return 0 if all succeeded, else the code of the first that did not.

    If something that a person must lift holds the jobs back, call `say` with it, once each time it changes.
    """
    remaining = [queue.job(job_id).id for job_id in job_ids]
    unfinished, reported = frozenset(remaining), list[str | None]([None])

    def done() -> bool:
        # look at one job at a time, however many there are: all must end, so the order does not matter
        while remaining and queue.job(remaining[-1]).state in FINAL_STATES:
            remaining.pop()
        if remaining and say and (why := queue.reasons.why_blocked(unfinished)) != reported[-1]:
            reported.append(why)
            if why:
                say(why)
        return not remaining

    wait_until(queue.home, done)
    for job_id in job_ids:
        job = queue.job(job_id)
        if job.state is not State.SUCCEEDED:
            return job.exit_code or (128 + job.signal if job.signal else 1)
    return 0
