"""`nightshift ls`: lists jobs in order of time: ended, running, waiting."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from runner import clock
from runner.model import State
from runner.store.listing import Listing
from runner.terminal.session import open_queue, print_json, print_json_list
from runner.text import words
from runner.text.table import Row, print_table, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.api import Queue
    from runner.api.outlook import Outlook
    from runner.model import Job

FINISHED_SHOWN, QUEUED_SHOWN = 10, 20
REASON_WIDTH = 48


class Choice(NamedTuple):
    """Which jobs to list, and how many of each kind; -1 means no limit."""

    ended: frozenset[State]
    running: bool
    queued: bool
    ended_limit: int
    queued_limit: int

    @property
    def states(self) -> list[State]:
        """Return all states of the chosen jobs."""
        live = [State.STARTING, State.RUNNING] if self.running else []
        return [*self.ended, *live, *([State.QUEUED] if self.queued else [])]


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
    choice = _choice(limit, short, **chosen)
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
            _print_jobs(queue, jobs, _not_shown(queue, jobs, choice), _older(queue, jobs, choice))


def _choice(limit: int | None, short: bool, *, failed: bool, succeeded: bool, running: bool, queued: bool) -> Choice:
    all_kinds = not (failed or succeeded or running or queued)
    ended = {
        State.FAILED: failed,
        State.LOST: failed,
        State.SUCCEEDED: succeeded,
        State.CANCELLED: False,
    }
    return Choice(
        ended=frozenset(state for state, is_chosen in ended.items() if is_chosen or all_kinds),
        running=running or all_kinds,
        queued=queued or all_kinds,
        ended_limit=limit if limit is not None else FINISHED_SHOWN if short else -1,
        queued_limit=limit if limit is not None else QUEUED_SHOWN if short else -1,
    )


def _find(listing: Listing, choice: Choice) -> list[Job]:
    jobs = listing.finished(choice.ended, choice.ended_limit) if choice.ended else []
    jobs += listing.live() if choice.running else []
    return jobs + (listing.queued(choice.queued_limit) if choice.queued else [])


def _print_commands(jobs: list[Job]) -> None:
    for job in jobs:
        sys.stdout.buffer.write(words.as_one_line(job).encode("utf-8", "surrogateescape") + b"\n")
    sys.stdout.buffer.flush()


def _print_jobs(queue: Queue, jobs: list[Job], not_shown: int, older: int) -> None:
    if not (jobs or not_shown or older):
        print("There are no jobs. Queue one: nightshift submit -- python train.py")
        return
    reasons, common = _reasons(queue, jobs)
    ahead = queue.view.outlook() if reasons or common else None
    if jobs:
        _print_table(queue, jobs, reasons, ahead)
    if not_shown:
        print(f"… and {not_shown:,} more queued")
    if older:
        print(f"… and {older:,} that ended before: nightshift ls --all")
    if common:
        print(f"\nWaiting: {common}.")
    elif any(job.state.live for job in jobs) and not queue.runner_is_up():
        print("\nNo runner is up: jobs shown as running may have ended. Start one: nightshift up --detach")
    if ahead and (done := ahead.done_words()):
        print(f"{'' if common else chr(10)}The queue: {done}.")
    _print_what_is_due(queue)


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
        when = job.finished_at or job.started_at or job.submitted_at
        rows.append(
            Row(
                [
                    str(job.id),
                    words.state_words(job),
                    words.gpu_words(job, indices),
                    words.duration_words(job, now),
                    words.short_time(when, now),
                    words.title(job),
                    *([_starts(job, starts)] if starts else []),
                    *([reasons.get(job.id, "")] if reasons else []),
                ],
                {1: words.colour(job.state)},
            )
        )
    more = [*(["STARTS"] if starts else []), *(["WAITS FOR"] if reasons else [])]
    headers = ["ID", "STATE", "GPU", "TIME", "SINCE", "JOB", *more]
    print_table(headers, rows, cut=(5, 5 + len(more), 1) if reasons else (5, 1), right=(0, 3))


def _starts(job: Job, starts: Mapping[int, str]) -> str:
    """Return when a queued job starts, or `unknown`; empty for other jobs."""
    return starts.get(job.id, "unknown") if job.state is State.QUEUED else ""


def _reasons(queue: Queue, jobs: list[Job]) -> tuple[Mapping[int, str], str | None]:
    """Return why each job waits; if all wait for the same reason, return only that reason instead."""
    reasons = queue.reasons.of(jobs)
    if len(set(reasons.values())) == 1:
        return {}, next(iter(reasons.values()))
    return {job_id: shortened(reason, REASON_WIDTH) for job_id, reason in reasons.items()}, None


def _not_shown(queue: Queue, jobs: list[Job], choice: Choice) -> int:
    """Return how many more jobs wait than are listed."""
    if not choice.queued or choice.queued_limit < 0:
        return 0
    return max(0, queue.jobs.count(State.QUEUED) - sum(job.state is State.QUEUED for job in jobs))


def _older(queue: Queue, jobs: list[Job], choice: Choice) -> int:
    """Return how many more jobs have ended than are listed."""
    if not choice.ended or choice.ended_limit < 0:
        return 0
    return max(0, queue.jobs.count(*choice.ended) - sum(job.state.final for job in jobs))


def gpu_indices(queue: Queue) -> dict[str, int]:
    """Return the index of each GPU by its UUID; empty if there are no readings."""
    snapshot = queue.view.snapshot()
    return {gpu.uuid: gpu.index for gpu in snapshot[0].gpus} if snapshot else {}
