"""Three jobs in a row that fail at once, and in the same way, are not three bad jobs but one bad box. Pure.

A broken environment fails every job alike; that is what tells it from a queue of commands that were each
meant to fail differently, and so the way of failing counts, not only the number. Whether it is the box is then found
out with one job that is unlike them: if it runs, they are held and the others go on.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from runner.model import State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.model import Exit

LONGEST_WAIT_S = 3600.0


class Streak(NamedTuple):
    """Failures in a row so far: the jobs whose attempts they were, some of them perhaps more than once."""

    manner: str = ""
    jobs: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """The streak for people."""
        what = "jobs" if len(set(self.jobs)) == len(self.jobs) else "attempts"
        return f"{len(self.jobs)} {what} in a row failed within seconds ({self.manner})"


def after(streak: Streak, job_id: int, state: State, end: Exit | None, within_s: float) -> Streak:
    """The streak when an attempt of this job has ended, too."""
    if state is State.FAILED and end is not None and end.duration_s <= within_s:
        manner = end.spawn_error or (f"exit code {end.exit_code}" if end.signal is None else f"signal {end.signal}")
        before = streak.jobs if streak.manner == manner else ()
        return Streak(manner, (*before, job_id))
    # a job that was stopped says nothing about the box; one that worked, or ran for long, clears it
    return streak if state in (State.CANCELLED, State.LOST) else Streak()


def wait_s(tries: int, first_s: float) -> float:
    """How long to wait after so many tries in vain: each time twice as long."""
    return min(first_s * float(1 << min(tries, 10)), max(first_s, LONGEST_WAIT_S))


def broken(shapes: Iterable[str]) -> list[str]:
    """Which kinds of jobs are to blame, by the kind of each that failed: once is no pattern."""
    return [shape for shape, count in Counter(shapes).items() if count > 1]
