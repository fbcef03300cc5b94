"""`nightshift wait`: waits until jobs have ended."""

from __future__ import annotations

import click

from runner.terminal.job_numbers import jobs_meant
from runner.terminal.session import GROUP, UNFINISHED_JOB, open_queue, say, warn_without_runner


@click.command("wait")
@click.argument("job_ids", type=UNFINISHED_JOB, metavar="[N…]", nargs=-1)
@click.option("--group", type=GROUP, metavar="NAME", help="All of this group, or sweep.")
@click.option("--all", "everything", is_flag=True, help="All that wait or run now.")
def wait(job_ids: tuple[int, ...], group: str | None, everything: bool) -> int:
    """Wait until these jobs have ended: nightshift wait 12 13

    The exit code is 0 if all succeeded, otherwise the code of the first job that did not.
    """
    from runner.errors import UserError
    from runner.store.listing import Listing
    from runner.terminal.wait_for_jobs import wait_for
    from runner.text.words import state_words

    if not (job_ids or group or everything):  # such as `nightshift wait $ids` with empty ids
        raise UserError("Which jobs? Name them by number, or by --group or --all.")
    if everything and (job_ids or group):
        raise UserError("Either --all, or some of them, not both at once.")
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
