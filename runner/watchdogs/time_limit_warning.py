"""Warns about jobs that are close to their time limit, or will not be done by then. Supervisors enforce the limit."""

from __future__ import annotations

import logging
import time
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
SEEN_SHARE, SEEN_S = 0.1, 600.0  # how much of a job must be seen before its progress counts
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
    """Sends one warning for each time limit of each attempt, and an early one if its progress falls short of it."""

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
            elif (needs_s := self._falls_short(row, left_s)) is not None:
                self._warn(row, began + timedelta(seconds=row.limit_s), needs_s)
            else:
                self._waiter.tick_within(min(left_s - lead, LOOK_AT_CLOCK_S))

    def _falls_short(self, row: UnderWay, left_s: float) -> float | None:
        """Return how long a job still takes if that is surely too long, and nobody was told yet."""
        progress = self._context.progress(row.id)
        if row.time_warning == _early_mark(row) or progress is None or not progress.work:
            return None
        eta_s, low_s, position, total = progress.eta_s, progress.eta_low_s, progress.position, progress.total
        if eta_s is None or low_s is None or not position or not total or progress.at is None:
            return None
        ran_s = (row.limit_s or 0.0) - left_s
        is_sure = position >= SEEN_SHARE * total or ran_s >= SEEN_S
        return eta_s if is_sure and low_s - (time.monotonic() - progress.at) > left_s else None

    def _warn(self, row: UnderWay, stops_at: datetime, needs_s: float | None = None) -> None:
        assert row.limit_s is not None
        longest_s = self._settings.time_max
        more_s = None if longest_s is None else max(0.0, longest_s - row.limit_s)
        due_at = clock.text(stops_at)
        warning = TimeWarning(stops_at=due_at, limit_s=row.limit_s, more_s=more_s, needs_s=needs_s, attempt=row.attempt)
        self._notices.add(warning, row.id)
        self._jobs.note(row.id, row.attempt, "time warning", {"stops_at": due_at})
        self._limits.warned(row.id, _mark(row) if needs_s is None else _early_mark(row))
        log.info("job %s is stopped at %s unless it is extended", row.id, due_at)


def _mark(row: UnderWay) -> str:
    return f"{row.attempt} {row.limit_s}"


def _early_mark(row: UnderWay) -> str:
    return f"{_mark(row)} needs more"
