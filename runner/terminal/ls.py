"""`nightshift ls`: lists jobs in order of time: ended, running, waiting."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from runner.terminal.session import open_queue, print_json, print_json_list

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.api import Queue
    from runner.api.outlook import Outlook
    from runner.model import Job, State
    from runner.store.listing import Listing

FINISHED_SHOWN, QUEUED_SHOWN = 10, 20
REASON_WIDTH = 48


class Wanted(NamedTuple):
    """Which jobs to list, and how many of each kind; -1 means no limit."""

    ended: frozenset[State]
    running: bool
    queued: bool
    ended_limit: int
    queued_limit: int


@click.command("ls")
@click.option("--all", "everything", is_flag=True, help="All jobs there are.")
@click.option("--failed", is_flag=True, help="Those that failed or were lost.")
@click.option("--succeeded", is_flag=True, help="Those that succeeded.")
@click.option("--running", is_flag=True, help="Those under way.")
@click.option("--queued", is_flag=True, help="Those that wait.")
@click.option("--limit", type=click.IntRange(0, 10**9), metavar="N", help="At most N that ended and N that wait.")
@click.option("--commands", "only_commands", is_flag=True, help="Only the commands, one per line, for `submit -`.")
@click.option("--json", "as_json", is_flag=True, help="For programs: all jobs, unless others are asked for.")
def ls(
    everything: bool,
    failed: bool,
    succeeded: bool,
    running: bool,
    queued: bool,
    limit: int | None,
    only_commands: bool,
    as_json: bool,
) -> None:
    """List jobs: by default those that run, those that wait, and the latest that ended."""
    chosen = failed or succeeded or running or queued
    short = not (chosen or everything or only_commands or as_json)
    wanted = Wanted(
        ended=_ended(failed, succeeded) if chosen else _ended(True, True, rest=True),
        running=running or not chosen,
        queued=queued or not chosen,
        ended_limit=limit if limit is not None else FINISHED_SHOWN if short else -1,
        queued_limit=limit if limit is not None else QUEUED_SHOWN if short else -1,
    )
    from runner.store.listing import Listing

    with open_queue() as queue:
        listing = Listing(queue.store)
        if as_json and limit is None:
            print_json_list(queue.describe_rows(listing.rows(_states(wanted))))
            return
        jobs = _find(listing, wanted)
        if as_json:
            print_json(queue.describe(sorted(jobs, key=lambda job: job.id)))
        elif only_commands:
            _print_commands(jobs)
        else:
            _print_jobs(queue, jobs, _not_shown(queue, jobs, wanted), _older(queue, jobs, wanted))


def _ended(failed: bool, succeeded: bool, *, rest: bool = False) -> frozenset[State]:
    from runner.model import State

    states = {State.FAILED: failed, State.LOST: failed, State.SUCCEEDED: succeeded, State.CANCELLED: rest}
    return frozenset(state for state, is_wanted in states.items() if is_wanted)


def _states(wanted: Wanted) -> list[State]:
    from runner.model import State

    live = [State.STARTING, State.RUNNING] if wanted.running else []
    return [*wanted.ended, *live, *([State.QUEUED] if wanted.queued else [])]


def _find(listing: Listing, wanted: Wanted) -> list[Job]:
    jobs = listing.finished(wanted.ended, wanted.ended_limit) if wanted.ended else []
    jobs += listing.live() if wanted.running else []
    return jobs + (listing.queued(wanted.queued_limit) if wanted.queued else [])


def _print_commands(jobs: list[Job]) -> None:
    from runner.text.words import as_one_line

    for job in jobs:
        sys.stdout.buffer.write(as_one_line(job).encode("utf-8", "surrogateescape") + b"\n")
    sys.stdout.buffer.flush()


def _print_jobs(queue: Queue, jobs: list[Job], not_shown: int, older: int) -> None:
    if not (jobs or not_shown or older):
        print("There are none. Queue one: nightshift submit -- python train.py")
        return
    reasons, common = _reasons(queue, jobs)
    ahead = queue.outlook() if reasons or common else None
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
    from runner import clock
    from runner.text.words import long_time, printable

    due = queue.when_empty()
    if due and (at := clock.moment(due["due_at"])):
        print(f"\nNothing is left to do: at {long_time(at)} this is run, unless you type `nightshift stay`:")
        print(f"  {printable(due['command'])}")


def _print_table(queue: Queue, jobs: list[Job], reasons: Mapping[int, str], ahead: Outlook | None) -> None:
    from runner import clock
    from runner.text import words
    from runner.text.table import Row, print_table

    now, indices = clock.now(), gpu_indices(queue)
    starts = {job.id: words_ for job in jobs if ahead and (words_ := ahead.start_words(job.id))}
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
    from runner.model import State

    return starts.get(job.id, "unknown") if job.state is State.QUEUED else ""


def _reasons(queue: Queue, jobs: list[Job]) -> tuple[Mapping[int, str], str | None]:
    """Return why each job waits; if all wait for the same reason, return only that reason instead."""
    from runner.text.table import shortened

    reasons = queue.waiting_reasons(jobs)
    if len(set(reasons.values())) == 1:
        return {}, next(iter(reasons.values()))
    return {job_id: shortened(reason, REASON_WIDTH) for job_id, reason in reasons.items()}, None


def _not_shown(queue: Queue, jobs: list[Job], wanted: Wanted) -> int:
    """Return how many more jobs wait than are listed."""
    from runner.model import State

    if not wanted.queued or wanted.queued_limit < 0:
        return 0
    return max(0, queue.jobs.count(State.QUEUED) - sum(job.state is State.QUEUED for job in jobs))


def _older(queue: Queue, jobs: list[Job], wanted: Wanted) -> int:
    """Return how many more jobs have ended than are listed."""
    if not wanted.ended or wanted.ended_limit < 0:
        return 0
    return max(0, queue.jobs.count(*wanted.ended) - sum(job.state.final for job in jobs))


def gpu_indices(queue: Queue) -> dict[str, int]:
    """Return the index of each GPU by its UUID; empty if there are no readings."""
    found = queue.snapshot()
    return {gpu.uuid: gpu.index for gpu in found[0].gpus} if found else {}
