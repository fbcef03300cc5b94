"""Warns about jobs that are close to their time limit. Their supervisors enforce the limit."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from runner import clock
from runner.notices import TimeWarning
from runner.step import Step
from runner.store.spec_changes import TimeLimits

if TYPE_CHECKING:
    from datetime import datetime

    from runner.step import Context
    from runner.store.scheduling_queries import UnderWay

log = logging.getLogger(__name__)

SHARE, LONGEST_S, SHORTEST_S = 0.1, 3600.0, 30.0
LOOK_AT_CLOCK_S = 60.0  # the wall clock may be set meanwhile


def lead_s(limit_s: float, setting_s: float | None) -> float | None:
    """Return how many seconds before its end to warn about a job, or None for never.

    Without a setting: a tenth of the limit, at most an hour, and never if that is too short for anybody to act.
    """
    if setting_s is not None:
        return min(setting_s, limit_s / 2) if setting_s > 0 else None
    usual_s = min(SHARE * limit_s, LONGEST_S)
    return usual_s if usual_s >= SHORTEST_S else None


class TimeWatch(Step):
    """Sends one warning for each time limit of each attempt."""

    def __init__(self, context: Context) -> None:
        self._context, self._settings, self._jobs = context, context.settings, context.jobs
        self._notices, self._waiter = context.notices, context.waiter
        self._limits = TimeLimits(context.store)

    def tick(self) -> None:
        """Warn about the jobs that are close to their limit."""
        now = clock.now()
        for row in self._context.live():
            began = clock.moment(row.started_at)
            if row.limit_s is None or began is None or row.stop_reason or row.time_warning == _mark(row):
                continue
            lead = lead_s(row.limit_s, self._settings.time_warning)
            left_s = row.limit_s - (now - began).total_seconds()
            if lead is None or left_s <= 0:
                continue
            if left_s <= lead:
                self._warn(row, began + timedelta(seconds=row.limit_s))
            else:
                self._waiter.tick_within(min(left_s - lead, LOOK_AT_CLOCK_S))

    def _warn(self, row: UnderWay, stops_at: datetime) -> None:
        assert row.limit_s is not None
        longest_s = self._settings.time_max
        more_s = None if longest_s is None else max(0.0, longest_s - row.limit_s)
        due_at = clock.text(stops_at)
        warning = TimeWarning(stops_at=due_at, limit_s=row.limit_s, more_s=more_s, attempt=row.attempt)
        self._notices.add(warning, row.id)
        self._jobs.note(row.id, row.attempt, "time warning", {"stops_at": due_at})
        self._limits.warned(row.id, _mark(row))
        log.info("job %s is stopped at %s unless it is extended", row.id, due_at)


def _mark(row: UnderWay) -> str:
    return f"{row.attempt} {row.limit_s}"
