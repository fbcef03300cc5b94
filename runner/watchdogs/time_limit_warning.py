"""Warns about jobs that are close to their time limit, or will not make it. Their supervisors enforce the limit."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from runner import clock
from runner.notices import TimeWarning
from runner.step import Step
from runner.store.spec_changes import TimeLimits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from runner.progress.pace import Progress
    from runner.step import Context
    from runner.store.scheduling_queries import UnderWay

log = logging.getLogger(__name__)

SHARE, LONGEST_S, SHORTEST_S = 0.1, 3600.0, 30.0
LOOK_AT_CLOCK_S = 60.0  # the wall clock may be set meanwhile
SEEN_SHARE, SEEN_S = 0.1, 600.0  # of a run, before its progress is believed
CONFIRM_SHARE, CONFIRM_S = 0.05, 300.0  # of a limit; first steps are slow, so one look is not enough


def lead_s(limit_s: float, setting_s: float | None) -> float | None:
    """Return how many seconds before its end to warn about a job, or None for never.

    Without a setting: a tenth of the limit, at most an hour, and never if that is too short for anybody to act.
    """
    if setting_s is not None:
        return min(setting_s, limit_s / 2) if setting_s > 0 else None
    usual_s = min(SHARE * limit_s, LONGEST_S)
    return usual_s if usual_s >= SHORTEST_S else None


def needs_too_long_s(progress: Progress | None, ran_s: float, left_s: float, now: float) -> float | None:
    """Return about how long a job still needs if even the shortest estimate is longer than it may run, else None."""
    if progress is None or progress.eta_s is None or progress.eta_low_s is None or progress.at is None:
        return None
    passed_s = max(0.0, now - progress.at)
    needs_s = progress.eta_s - passed_s
    is_seen = ran_s >= min(SEEN_S, SEEN_SHARE * (ran_s + needs_s))
    return needs_s if is_seen and progress.eta_low_s - passed_s > left_s else None


class TimeWatch(Step):
    """Sends at most two warnings for each time limit of each attempt: it will not make it, and it is close."""

    def __init__(self, context: Context) -> None:
        self._context, self._settings, self._jobs = context, context.settings, context.jobs
        self._notices, self._waiter = context.notices, context.waiter
        self._limits = TimeLimits(context.store)
        self._too_long_since: dict[tuple[int, str], float] = {}  # jobs and limits, on the monotonic clock

    def tick(self) -> None:
        """Warn about the jobs that are close to their limit or will not make it."""
        now, before, self._too_long_since = clock.now(), self._too_long_since, {}
        for row in self._context.live():
            began = clock.moment(row.started_at)
            if row.limit_s is None or row.untried or began is None or row.stop_reason:
                continue
            if row.time_warning == _mark(row):
                continue
            lead = lead_s(row.limit_s, self._settings.time_warning)
            ran_s = (now - began).total_seconds()
            left_s = row.limit_s - ran_s
            if lead is None or left_s <= 0:
                continue
            stops_at = began + timedelta(seconds=row.limit_s)
            if left_s <= lead:
                self._warn(row, stops_at)
                continue
            self._waiter.tick_within(min(left_s - lead, LOOK_AT_CLOCK_S))
            if needs_s := self._needs_too_long_s(row, ran_s, left_s, before):
                self._warn(row, stops_at, needs_s, left_s)

    def _needs_too_long_s(
        self, row: UnderWay, ran_s: float, left_s: float, before: Mapping[tuple[int, str], float]
    ) -> float | None:
        """Return how long a job needs that has looked too slow for its limit for a while and was not warned about."""
        assert row.limit_s is not None
        if row.probing or row.time_warning == _early_mark(row):
            return None
        now, key = clock.monotonic(), (row.id, _mark(row))
        needs_s = needs_too_long_s(self._context.progress(row.id), ran_s, left_s, now)
        if needs_s is None:
            return None
        since = self._too_long_since[key] = before.get(key, now)
        return needs_s if now - since >= min(CONFIRM_SHARE * row.limit_s, CONFIRM_S) else None

    def _warn(
        self, row: UnderWay, stops_at: datetime, needs_s: float | None = None, left_s: float | None = None
    ) -> None:
        assert row.limit_s is not None
        longest_s = self._settings.time_max
        more_s = None if longest_s is None else max(0.0, longest_s - row.limit_s)
        due_at, is_early = clock.text(stops_at), needs_s is not None
        warning = TimeWarning(
            stops_at=due_at, limit_s=row.limit_s, more_s=more_s, attempt=row.attempt, needs_s=needs_s, left_s=left_s
        )
        self._notices.add(warning, row.id)
        self._jobs.note(row.id, row.attempt, "limit too short" if is_early else "time warning", {"stops_at": due_at})
        self._limits.warned(row.id, _early_mark(row) if is_early else _mark(row))
        log.info("job %s is stopped at %s unless it is extended", row.id, due_at)


def _mark(row: UnderWay) -> str:
    return f"{row.attempt} {row.limit_s}"


def _early_mark(row: UnderWay) -> str:
    return f"{_mark(row)} will not make it"
