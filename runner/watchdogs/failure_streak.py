"""Counts attempts in a row that fail quickly and in the same way: a sign of a broken box, not of bad jobs. Pure.

A broken environment makes every job fail in the same way. Commands that are wrong themselves fail in different ways.
So the way of failing counts, not only the number: the reason and the line of the output that says why, or the exit
code if there is no such line. To find out whether it is the box, one job of another kind is tried: if it runs, the
failing kinds are held and the others go on.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from runner.model import Reason, State
from runner.text.failures import normalised

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.model import Exit

LONGEST_WAIT_S = 3600.0


class Streak(NamedTuple):
    """Failures in a row so far, with the job of each attempt. A job may be in it more than once."""

    manner: str = ""  # how the last of them failed, for people
    jobs: tuple[int, ...] = ()
    error: str | None = None  # the line that says why the last of them failed
    alike: str | None = None  # what they have in common; None: the manner

    @property
    def words(self) -> str:
        """Return one sentence about the streak, for people."""
        what = "jobs" if len(set(self.jobs)) == len(self.jobs) else "attempts"
        return f"{len(self.jobs)} {what} in a row failed within seconds ({self.manner})"


def after(streak: Streak, job_id: int, state: State, end: Exit | None, within_s: float) -> Streak:
    """Return the streak after one more attempt, of this job, has ended."""
    if state is State.FAILED and end is not None and end.duration_s <= within_s:
        manner = end.spawn_error or (f"exit code {end.exit_code}" if end.signal is None else f"signal {end.signal}")
        alike = f"{_reason(end).value}: {normalised(end.error)}" if end.error else None
        before = streak.jobs if (alike or manner) == (streak.alike or streak.manner) else ()
        return Streak(manner, (*before, job_id), end.error, alike)
    # a job that was stopped says nothing about the box; one that worked or ran longer ends the streak
    return streak if state in (State.CANCELLED, State.LOST) else Streak()


def _reason(end: Exit) -> Reason:
    if end.memory is not None:
        return Reason.OOM
    return Reason.EXIT if end.signal is None else Reason.SIGNAL


def wait_s(tries: int, first_s: float) -> float:
    """Return how long to wait after this many failed tries. The wait doubles each time, up to an hour."""
    return min(first_s * float(1 << min(tries, 10)), max(first_s, LONGEST_WAIT_S))


def broken(shapes: Iterable[str]) -> list[str]:
    """Return the kinds of jobs that failed more than once; `shapes` is the kind of each failed job."""
    return [shape for shape, count in Counter(shapes).items() if count > 1]
