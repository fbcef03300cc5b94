"""`nightshift kill`: stops running jobs and cancels waiting ones."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from runner.api.groups import find
from runner.errors import UserError
from runner.model import State
from runner.terminal.session import UNFINISHED_JOBS, group_option, open_queue, say, warn_without_runner
from runner.terminal.wait import wait_for
from runner.text.table import shortened
from runner.text.words import state_words, title

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from runner.api import Queue
    from runner.terminal.session import Spans

_STATES = {"queued": [State.QUEUED], "running": [State.STARTING, State.RUNNING]}
LISTED = 20
AT_ONCE = 200  # stops in one transaction: each costs a write to the disk, and other processes must write too


@click.command("kill")
@click.argument("numbers", type=UNFINISHED_JOBS, metavar="[N…]", nargs=-1)
@click.option("--state", type=click.Choice(list(_STATES)), help="Only those that wait, or only those that run.")
@click.option("--mine", is_flag=True, help="Only your own.")
@group_option("Only those of this group or sweep.")
@click.option("--all", "everything", is_flag=True, help="All waiting and running jobs, of everybody.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask first.")
@click.option("--wait", "wait_for_end", is_flag=True, help="Return when they have ended.")
def kill(numbers: tuple[Spans, ...], yes: bool, wait_for_end: bool, everything: bool, **filters: Any) -> int:
    """Stop running jobs and cancel waiting ones.

    Choose them by number, by --state, --mine and --group, or both. On a terminal it asks first.

    \b
    Examples:
      nightshift kill 12 14-16,20
      nightshift kill --state queued --mine
    """
    if not numbers and not everything and not any(filters.values()):
        raise UserError("Which jobs? Give numbers like 12 14-16, or --state, --mine, --group or --all.")
    with open_queue() as queue:
        job_ids = _chosen(queue, numbers, **filters)
        if not yes and sys.stdin.isatty() and sys.stdout.isatty() and not _confirmed(queue, job_ids):
            return 1
        unfinished = set(queue.listing.unfinished())
        stopped: list[int] = []
        for at in range(0, len(job_ids), AT_ONCE):
            stopped += _stop_all(queue, job_ids[at : at + AT_ONCE], unfinished)
        if any(queue.job(job_id).state.live for job_id in stopped):
            warn_without_runner(queue, "running jobs are stopped when one is")
        if wait_for_end:
            wait_for(queue, stopped)
        return 0 if len(stopped) == len(job_ids) else 1


def _chosen(queue: Queue, numbers: Sequence[Spans], *, state: str | None, mine: bool, group: str | None) -> list[int]:
    """Return the chosen jobs, waiting ones first: a freed GPU must not go to a job that is about to be stopped."""
    if group is not None:
        find(queue, group)
    owner = queue.actor if mine else None
    job_ids: list[int] = []
    for which, states in _STATES.items():
        if state in (None, which):
            job_ids += queue.listing.unfinished(owner=owner, group=group, states=states)
    if numbers and not (state or mine or group):
        named = [number for spans in numbers for number in spans.of(job_ids)]
        place = {number: at for at, number in enumerate(job_ids)}
        return sorted(dict.fromkeys(named), key=lambda number: place.get(number, -1))
    if numbers:
        job_ids = [number for number in job_ids if any(spans.hold(number) for spans in numbers)]
    if not job_ids:
        raise UserError("No such job waits or runs.")
    return job_ids


def _confirmed(queue: Queue, job_ids: Sequence[int]) -> bool:
    jobs = [job for job_id in job_ids if (job := queue.jobs.get(job_id)) and not job.state.final]
    for job in jobs[:LISTED]:
        click.echo(f"{job.id:>6}  {state_words(job)}  {shortened(title(job), 60)}")
    if len(jobs) > LISTED:
        click.echo(f"        … and {len(jobs) - LISTED:,} more")
    if not jobs:
        return True  # nothing to ask about: each stop will be refused with a reason
    return click.confirm("Stop this job?" if len(jobs) == 1 else f"Stop these {len(jobs):,} jobs?")


def _stop_all(queue: Queue, job_ids: Sequence[int], unfinished: Collection[int]) -> list[int]:
    """Stop these in one transaction and print the outcomes after it. Return all but those that were refused."""
    stopped, answers, refusals = [], [], []
    with queue.store.transaction():
        for job_id in job_ids:
            try:
                answers.append(queue.stop(job_id))
            except UserError as error:
                if job_id not in unfinished:
                    refusals.append(str(error))
                    continue
                answers.append(f"Job {job_id} has ended meanwhile.")  # it may have depended on another of these
            stopped.append(job_id)
    queue.ring()
    for answer in answers:
        print(answer)
    sys.stdout.flush()
    for refusal in refusals:
        say(refusal)
    return stopped
