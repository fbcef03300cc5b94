"""The table of jobs: ended, running, waiting. `nightshift ls` without options prints just this, without click."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from runner import clock
from runner.api import Queue
from runner.model import FINAL_STATES, State
from runner.terminal.console import show_any_character, user
from runner.text import words
from runner.text.table import Row, print_table, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from runner.api.outlook import Outlook
    from runner.model import Job
    from runner.store.listing import Listing

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


SHORT = Choice(frozenset(State), ended_limit=10, queued_limit=20)


def main(words: Sequence[str]) -> int:  # noqa: ARG001 - `ls` with words is in ls.py
    """Print the jobs that run, those that wait, and the latest that ended. Return the exit code."""
    show_any_character()
    with Queue(actor=user()) as queue:
        print_jobs(queue, find(queue.listing, SHORT), SHORT)
    return 0


def find(listing: Listing, choice: Choice) -> list[Job]:
    """Return the chosen jobs."""
    jobs = listing.finished(choice.ended, choice.ended_limit) if choice.ended else []
    jobs += listing.live() if State.RUNNING in choice.states else []
    return jobs + (listing.queued(choice.queued_limit) if State.QUEUED in choice.states else [])


def print_jobs(queue: Queue, jobs: list[Job], choice: Choice) -> None:
    """Print the jobs as a table, with why they wait, when they start and how many are left out."""
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
    progress = {job.id: _progress(queue, job, now) for job in jobs if job.state is State.RUNNING}
    rows, titles = [], words.titles(jobs)
    for job in jobs:
        start = starts.get(job.id, "unknown") if job.state is State.QUEUED else ""
        cells = [
            str(job.id),
            words.state_words(job),
            words.gpu_words(job, indices),
            words.duration_words(job, now),
            words.short_time(job.finished_at or job.started_at or job.submitted_at, now),
            titles[job.id],
            *([progress.get(job.id, "")] if any(progress.values()) else []),
            *([start] if starts else []),
            *([reasons.get(job.id, "")] if reasons else []),
        ]
        rows.append(Row(cells, {1: words.colour(job.state)}))
    known = {"PROGRESS": progress.values(), "STARTS": starts, "WAITS FOR": reasons}
    more = [header for header, values in known.items() if any(values)]
    headers = ["ID", "STATE", "GPU", "TIME", "SINCE", "JOB", *more]
    print_table(headers, rows, cut=(5, 5 + len(more), 1) if reasons else (5, 1), right=(0, 3))


def _progress(queue: Queue, job: Job, now: datetime) -> str:
    from runner.text.progress_words import short_progress  # imported late: often nothing runs

    return short_progress(queue.view.progress(job), now, bar=False)


def _reasons(queue: Queue, jobs: list[Job]) -> tuple[Mapping[int, str], str | None]:
    """Return why each job waits; if all wait for the same reason, return only that reason instead."""
    reasons = queue.reasons.of(jobs)
    if len(set(reasons.values())) == 1:
        return {}, next(iter(reasons.values()))
    return {job_id: shortened(reason, REASON_WIDTH) for job_id, reason in reasons.items()}, None


def gpu_indices(queue: Queue) -> dict[str, int | str]:
    """Return what people call each GPU by its UUID; empty if there are no readings."""
    snapshot = queue.view.snapshot()
    return {gpu.uuid: words.gpu_label(gpu.node, gpu.index) for gpu in snapshot[0].gpus} if snapshot else {}
