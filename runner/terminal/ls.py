"""`nightshift ls`: lists jobs in order of time: ended, running, waiting."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from runner import clock
from runner.model import FINAL_STATES, State
from runner.store.listing import Listing
from runner.terminal.session import open_queue, print_json, print_json_list
from runner.text import words
from runner.text.table import Row, print_table, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.api import Queue
    from runner.api.outlook import Outlook
    from runner.model import Job

_KINDS = {
    "failed": [State.FAILED, State.LOST],
    "succeeded": [State.SUCCEEDED],
    "running": [State.STARTING, State.RUNNING],
    "queued": [State.QUEUED],
}
REASON_WIDTH = 48


class Choice(NamedTuple):
    """Which jobs to list, and how many of those that ended or wait; -1 means no limit."""

    states: frozenset[State]
    ended_limit: int
    queued_limit: int

    @property
    def ended(self) -> frozenset[State]:
        """Return the chosen states of jobs that have ended."""
        return self.states & FINAL_STATES


@click.command("ls")
@click.option("--all", "everything", is_flag=True, help="All jobs.")
@click.option("--failed", is_flag=True, help="Jobs that failed or were lost.")
@click.option("--succeeded", is_flag=True, help="Jobs that succeeded.")
@click.option("--running", is_flag=True, help="Running jobs.")
@click.option("--queued", is_flag=True, help="Waiting jobs.")
@click.option("--limit", type=click.IntRange(0, 10**9), metavar="N", help="At most N ended and N waiting jobs.")
@click.option("--commands", "only_commands", is_flag=True, help="Only the commands, one per line, for `submit -`.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs: all jobs by default.")
def ls(limit: int | None, only_commands: bool, as_json: bool, everything: bool, **chosen: bool) -> None:
    """List jobs: by default those that run, those that wait, and the latest that ended."""
    short = not (any(chosen.values()) or everything or only_commands or as_json)
    states = frozenset(state for kind, states in _KINDS.items() if chosen[kind] for state in states) or frozenset(State)
    ended_limit, queued_limit = (limit, limit) if limit is not None else (10, 20) if short else (-1, -1)
    choice = Choice(states, ended_limit, queued_limit)
    with open_queue() as queue:
        listing = Listing(queue.store)
        if as_json and limit is None:
            print_json_list(queue.view.describe_rows(listing.rows(choice.states)))
            return
        jobs = _find(listing, choice)
        if as_json:
            print_json(queue.view.describe(jobs))
        elif only_commands:
            _print_commands(jobs)
        else:
            _print_jobs(queue, jobs, choice)


def _find(listing: Listing, choice: Choice) -> list[Job]:
    jobs = listing.finished(choice.ended, choice.ended_limit) if choice.ended else []
    jobs += listing.live() if State.RUNNING in choice.states else []
    return jobs + (listing.queued(choice.queued_limit) if State.QUEUED in choice.states else [])


def _print_commands(jobs: list[Job]) -> None:
    for job in jobs:
        sys.stdout.buffer.write(words.as_one_line(job).encode("utf-8", "surrogateescape") + b"\n")
    sys.stdout.buffer.flush()


def _print_jobs(queue: Queue, jobs: list[Job], choice: Choice) -> None:
    queued = _left_out(queue, jobs, choice.states & {State.QUEUED}, choice.queued_limit)
    ended = _left_out(queue, jobs, choice.ended, choice.ended_limit)
    if not (jobs or queued or ended):
        print("There are no jobs. Queue one: nightshift submit -- python train.py")
        return
    reasons, common = _reasons(queue, jobs)
    ahead = queue.view.outlook() if reasons or common else None
    if jobs:
        _print_table(queue, jobs, reasons, ahead)
    if queued:
        print(f"… and {queued:,} more queued")
    if ended:
        print(f"… and {ended:,} that ended before: nightshift ls --all")
    if common:
        print(f"\nWaiting: {common}.")
    elif any(job.state.live for job in jobs) and not queue.runner_is_up():
        print("\nNo runner is up: jobs shown as running may have ended. Start one: nightshift up --detach")
    if ahead and (done := ahead.done_words()):
        print(f"{'' if common else chr(10)}The queue: {done}.")
    _print_what_is_due(queue)


def _left_out(queue: Queue, jobs: list[Job], states: frozenset[State], limit: int) -> int:
    """Return how many more jobs are in these states than are listed."""
    if not states or limit < 0:
        return 0
    return max(0, queue.jobs.count(*states) - sum(job.state in states for job in jobs))


def _print_what_is_due(queue: Queue) -> None:
    """Announce the command for an empty queue before it runs."""
    due = queue.view.when_empty()
    if due and (at := clock.moment(due["due_at"])):
        print(f"\nThe queue is empty. At {words.long_time(at)} this runs, unless you type `nightshift stay`:")
        print(f"  {words.printable(due['command'])}")


def _print_table(queue: Queue, jobs: list[Job], reasons: Mapping[int, str], ahead: Outlook | None) -> None:
    now, indices = clock.now(), gpu_indices(queue)
    starts = {job.id: start for job in jobs if ahead and (start := ahead.start_words(job.id))}
    rows = []
    for job in jobs:
        start = starts.get(job.id, "unknown") if job.state is State.QUEUED else ""
        cells = [
            str(job.id),
            words.state_words(job),
            words.gpu_words(job, indices),
            words.duration_words(job, now),
            words.short_time(job.finished_at or job.started_at or job.submitted_at, now),
            words.title(job),
            *([start] if starts else []),
            *([reasons.get(job.id, "")] if reasons else []),
        ]
        rows.append(Row(cells, {1: words.colour(job.state)}))
    more = [*(["STARTS"] if starts else []), *(["WAITS FOR"] if reasons else [])]
    headers = ["ID", "STATE", "GPU", "TIME", "SINCE", "JOB", *more]
    print_table(headers, rows, cut=(5, 5 + len(more), 1) if reasons else (5, 1), right=(0, 3))


def _reasons(queue: Queue, jobs: list[Job]) -> tuple[Mapping[int, str], str | None]:
    """Return why each job waits; if all wait for the same reason, return only that reason instead."""
    reasons = queue.reasons.of(jobs)
    if len(set(reasons.values())) == 1:
        return {}, next(iter(reasons.values()))
    return {job_id: shortened(reason, REASON_WIDTH) for job_id, reason in reasons.items()}, None


def gpu_indices(queue: Queue) -> dict[str, int]:
    """Return the index of each GPU by its UUID; empty if there are no readings."""
    snapshot = queue.view.snapshot()
    return {gpu.uuid: gpu.index for gpu in snapshot[0].gpus} if snapshot else {}
