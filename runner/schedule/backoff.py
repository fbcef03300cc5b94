"""How long a job waits before a retry. Pure."""

from __future__ import annotations

from typing import NamedTuple

from runner.model import Reason, State
from runner.units import format_duration

FIRST_S, LONGEST_S = 10.0, 600.0
SOUND_S = 600.0  # after an attempt that ran this long, the pauses start from the beginning


class Retry(NamedTuple):
    """One more attempt."""

    number: int
    of: int
    wait_s: float
    is_news: bool  # the first of a series; the owner gets no message for the others

    @property
    def words(self) -> str:
        """Return the retry in words, like "retry 3 of 5 in 40 s"."""
        return f"retry {self.number} of {self.of}" + (f" in {format_duration(self.wait_s)}" if self.wait_s else "")


def pause_s(before_s: float | None, state: State, reason: Reason, ran_s: float) -> float:
    """Return the pause after an attempt, in seconds. It starts with the first failure or the second loss, and doubles.

    `before_s` is the pause before that attempt, None if it was no retry. After a reboot there is no pause.
    """
    if reason is Reason.HOST:
        return 0.0
    if before_s is None or ran_s >= SOUND_S:
        return FIRST_S if state is State.FAILED else 0.0
    return min(max(FIRST_S, 2 * before_s), LONGEST_S)


def is_news(before_s: float | None, ran_s: float) -> bool:
    """Return whether the owner gets a message about a retry: not if a delayed retry has just failed soon again."""
    return not before_s or ran_s >= SOUND_S
