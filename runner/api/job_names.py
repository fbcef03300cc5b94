"""Which job a name means: names work wherever numbers do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.api.queue import Queue

LOOKED_AT = 100  # of the latest jobs with the name
SHOWN = 8


class SeveralJobsError(UserError):
    """A name means several jobs. The message lists their numbers."""

    def __init__(self, sentence: str, jobs: Sequence[int]) -> None:
        shown = ", ".join(f"#{number}" for number in jobs[:SHOWN])
        more = f" and {len(jobs) - SHOWN} more" if len(jobs) > SHOWN else ""
        super().__init__(f"{sentence}: {shown}{more}. Which one?")
        self.jobs = jobs


def job_named(queue: Queue, name: str) -> int | None:
    """Return the job that the queue's actor means by a name, or None if no job has it.

    Their own jobs come before those of others, then unfinished ones before the latest that ended. Raise
    SeveralJobsError if several are unfinished, or if it is the name of a group.
    """
    jobs = queue.listing.named(name, LOOKED_AT)
    jobs = [job for job in jobs if job.spec.owner == queue.actor] or jobs
    unfinished = [job.id for job in jobs if not job.state.final]
    if len(unfinished) > 1:
        raise SeveralJobsError(f"{len(unfinished)} jobs called {name} wait or run", unfinished)
    if not jobs and (members := queue.groups.current(name)):
        raise SeveralJobsError(f"{name} is a group", [member.id for member in members])
    return unfinished[0] if unfinished else jobs[0].id if jobs else None
