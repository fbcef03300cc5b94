"""Decides what a job's own counter says about GPUs that seem to do no work. Pure.

GPUs at 0 %, or at 100 % with little power, may belong to a job that evaluates on the CPU, loads data or saves. Its
counter (runner.progress) tells more. While it advances, or stands still no longer than this job's pauses usually last,
the job is not stopped. If it stands still for far longer than the longest pause so far, the job is stopped sooner than
without a counter. No time gets shorter before the first pause or evaluation, because nobody knows yet how long they
take, nor at the end of the counter, because a final evaluation or upload is unlike the pauses before.

Only a counter of real work counts. Downloads and installs are not work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.idle.policy import format_number

if TYPE_CHECKING:
    from runner.progress.pace import Progress

EXCUSED_GAPS, STALLED_GAPS = 20.0, 40.0  # usual times between two advances
EXCUSED_PAUSES, STALLED_PAUSES = 2.0, 4.0  # longest pauses so far
LONGEST_GAPS_S = 600.0  # for a counter that prints seldom 40 gaps would be hours; two of them still count
EXCUSED_AT_LEAST_S, STALLED_AT_LEAST_S = 60.0, 120.0  # stalled: twice as long after a single pause of unknown cause
SAVES_AT_MOST_S = 1800.0  # after the last advance; a job that reads or writes for longer may hang in a loop


@dataclass(frozen=True, slots=True)
class Standstill:
    """Since when a job's counter stands still, and how long it may. Times are of the monotonic clock."""

    since: float  # the counter advanced, or the job's processes read or wrote as for a checkpoint
    silent_since: float  # the same, or the job printed anything
    excused_s: float  # it is not stopped earlier than this after `since`
    stalled_s: float | None  # it may be stopped this long after `silent_since`; None: not before its usual time

    def allowed_s(self, usual_s: float, at_least_s: float = 0.0) -> float:
        """Return how long after `since` the job may be stopped. `usual_s` is the time without a counter."""
        if self.stalled_s is None:
            return max(self.excused_s, usual_s)
        stalled_s = self.silent_since - self.since + max(self.stalled_s, at_least_s)
        return max(self.excused_s, min(usual_s, stalled_s))

    def stops_at(self, usual_s: float) -> float:
        """Return when the job may be stopped."""
        return self.since + self.allowed_s(usual_s)

    def counts_from(self, usual_s: float) -> float:
        """Return from when on idle GPUs count against the job, in a window of this length."""
        return max(self.since, self.stops_at(usual_s) - usual_s)


def standstill(
    progress: Progress | None, printed_at: float = -math.inf, moved_at: float = -math.inf
) -> Standstill | None:
    """Combine a job's counter with its other signs of life. None if it has no counter of real work."""
    if progress is None or not progress.work or progress.advanced_at is None:
        return None
    advanced_at, gap_s = progress.advanced_at, progress.gap_s or 0.0
    since = min(max(advanced_at, moved_at), advanced_at + SAVES_AT_MOST_S)
    excused_s = max(_gaps_s(EXCUSED_GAPS, gap_s), EXCUSED_PAUSES * progress.longest_pause_s, EXCUSED_AT_LEAST_S)
    return Standstill(since, max(since, printed_at), excused_s, _stalled_s(progress, gap_s))


def _stalled_s(progress: Progress, gap_s: float) -> float | None:
    """Return after how long the counter surely stands still; None if the next pause may be unlike those before."""
    is_over = progress.total is not None and progress.position is not None and progress.position >= progress.total
    if is_over or not (progress.pauses or progress.evaluated):
        return None
    at_least_s = STALLED_AT_LEAST_S * (2 if progress.pauses == 1 and not progress.evaluated else 1)
    return max(_gaps_s(STALLED_GAPS, gap_s), STALLED_PAUSES * progress.longest_pause_s, at_least_s)


def _gaps_s(times: float, gap_s: float) -> float:
    return max(min(times * gap_s, LONGEST_GAPS_S), 2 * gap_s)


def in_words(progress: Progress, since: str) -> str:
    """Return what was seen, like `step 700 since 01:12, usual step 0.4 s, longest pause before 95 s`."""
    unit, position = progress.unit or "step", progress.position
    where = f"{unit} {format_number(position)}" if position is not None else "its counter"
    usual = f", usual {unit} {_seconds(progress.step_s)}" if progress.step_s else ""
    pause = f"longest pause before {_seconds(progress.longest_pause_s)}" if progress.pauses else "no pause before"
    return f"{where} since {since}{usual}, {pause}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
