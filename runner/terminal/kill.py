"""`nightshift kill`: stops running jobs and cancels waiting ones."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from runner.terminal.job_numbers import UNFINISHED_JOBS
from runner.terminal.session import GROUP, open_queue, say, warn_without_runner

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from runner.api import Queue
    from runner.terminal.job_numbers import Spans

_STATES = {"queued": ("QUEUED",), "running": ("STARTING", "RUNNING")}
LISTED = 20
AT_ONCE = 200  # stops in one transaction: each costs a write to the disk, and other processes must write too


@click.command("kill")
@click.argument("numbers", type=UNFINISHED_JOBS, metavar="[N…]", nargs=-1)
@click.option("--state", type=click.Choice(list(_STATES)), help="Of those, the ones that wait or that run.")
@click.option("--mine", is_flag=True, help="Of those, yours.")
@click.option("--group", type=GROUP, metavar="NAME", help="Of those, the ones of this group.")
@click.option("--all", "everything", is_flag=True, help="All waiting and running jobs, of everybody.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--wait", "wait_for_end", is_flag=True, help="Return when they have ended.")
def kill(numbers: tuple[Spans, ...], yes: bool, wait_for_end: bool, everything: bool, **filters: Any) -> int:
    """Stop running jobs and cancel waiting ones: nightshift kill 12 14-16,20

    Without numbers, --state, --mine and --group choose the jobs: nightshift kill --state queued --mine
    """
    from runner.errors import UserError

    if not numbers and not everything and not any(filters.values()):
        raise UserError("Which jobs? Name them like 12 14-16, or by --state, --mine, --group or --all.")
    with open_queue() as queue:
        job_ids = _chosen(queue, numbers, **filters)
        if not yes and sys.stdin.isatty() and sys.stdout.isatty() and not _confirmed(queue, job_ids):
            return 1
        unfinished = set(queue.unfinished())
        asked: list[int] = []
        for at in range(0, len(job_ids), AT_ONCE):
            asked += _stop_all(queue, job_ids[at : at + AT_ONCE], unfinished)
        if any(queue.job(job_id).state.live for job_id in asked):
            warn_without_runner(queue, "running jobs are stopped when one is")
        if wait_for_end:
            _wait_until_ended(queue, asked)
        return 0 if len(asked) == len(job_ids) else 1


def _chosen(queue: Queue, numbers: Sequence[Spans], *, state: str | None, mine: bool, group: str | None) -> list[int]:
    """Return the chosen jobs, waiting ones first: a freed GPU must not go to a job that is about to be stopped."""
    from runner.api.groups import find
    from runner.errors import UserError
    from runner.model import State

    if group is not None:
        find(queue, group)
    waiting, running = ([State(name) for name in _STATES[which]] for which in ("queued", "running"))
    owner = queue.actor if mine else None
    found: list[int] = []
    for which, states in (("queued", waiting), ("running", running)):
        if state in (None, which):
            found += queue.unfinished(owner=owner, group=group, states=states)
    if numbers and not (state or mine or group):
        named = [number for spans in numbers for number in spans.of(found)]
        place = {number: at for at, number in enumerate(found)}
        return sorted(dict.fromkeys(named), key=lambda number: place.get(number, -1))
    if numbers:
        found = [number for number in found if any(spans.hold(number) for spans in numbers)]
    if not found:
        raise UserError("No such job waits or runs.")
    return found


def _confirmed(queue: Queue, job_ids: Sequence[int]) -> bool:
    from runner.text.table import shortened
    from runner.text.words import state_words, title

    found = [job for job_id in job_ids if (job := queue.jobs.get(job_id)) and not job.state.final]
    for job in found[:LISTED]:
        click.echo(f"{job.id:>6}  {state_words(job)}  {shortened(title(job), 60)}")
    if len(found) > LISTED:
        click.echo(f"        … and {len(found) - LISTED:,} more")
    if not found:
        return True  # nothing to ask about: each stop will be refused with a reason
    return click.confirm("Stop this job?" if len(found) == 1 else f"Stop these {len(found):,} jobs?")


def _stop_all(queue: Queue, job_ids: Sequence[int], unfinished: Collection[int]) -> list[int]:
    """Stop these in one transaction and print the outcomes after it. Return all but those that were refused."""
    from runner.errors import UserError

    asked, said, refused = [], [], []
    with queue.store.transaction():
        for job_id in job_ids:
            try:
                said.append(queue.stop(job_id))
            except UserError as error:
                if job_id not in unfinished:
                    refused.append(str(error))
                    continue
                said.append(f"Job {job_id} has ended meanwhile.")  # for example because it depended on another of these
            asked.append(job_id)
    queue.ring()
    for line in said:
        print(line)
    sys.stdout.flush()
    for line in refused:
        say(line)
    return asked


def _wait_until_ended(queue: Queue, job_ids: list[int]) -> None:
    from runner.terminal.wait_for_jobs import wait_for

    wait_for(queue, job_ids)
