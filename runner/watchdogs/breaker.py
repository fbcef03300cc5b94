"""Pauses the queue when jobs fail one after another, and tries by itself whether it can go on.

`runner.watchdogs.failure_streak` decides what counts. The whole state is in the box's "paused" and "streak", so that
the next runner continues from it.
"""

from __future__ import annotations

import logging
import math
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.model import State
from runner.store.breaker_trials import Trials
from runner.watchdogs import failure_streak

if TYPE_CHECKING:
    from runner.config.settings import Settings
    from runner.model import Exit, Job
    from runner.processes.waiter import Waiter
    from runner.schedule.choice import Waiting
    from runner.store.box import Box
    from runner.store.connection import Store
    from runner.store.jobs import Jobs
    from runner.store.notices import Outbox

log = logging.getLogger(__name__)

BY = "breaker"
NO_ROOM_S = 15.0
SAYS_NOTHING = (State.QUEUED, State.CANCELLED, State.LOST)
HELD_BY = "the breaker, since jobs like it failed at once"


class BreakerWatch:
    """Pauses and resumes the queue. Call every method in a transaction."""

    def __init__(self, settings: Settings, store: Store, jobs: Jobs, outbox: Outbox, box: Box, waiter: Waiter) -> None:
        self._settings, self._jobs, self._outbox, self._box, self._waiter = settings, jobs, outbox, box, waiter
        self._trials = Trials(store)
        self._looks_at = 0.0  # monotonic clock
        self._no_room_until = -math.inf  # until then, send no notice that there is no room to try a job

    def on_end(self, job_id: int, state: State, end: Exit | None) -> None:
        """Count an attempt that has ended. Pause the queue if enough of them failed in a row."""
        if not self._settings.breaker or self._box.get("paused"):
            return
        before = failure_streak.Streak(*self._box.get("streak", failure_streak.Streak()))
        streak = failure_streak.after(before, job_id, state, end, self._settings.breaker_within)
        if streak != before:
            self._box.set("streak", streak)
        if len(streak.jobs) >= self._settings.breaker:
            self._pause(streak)

    def _pause(self, streak: failure_streak.Streak) -> None:
        why, again = streak.words, self._settings.breaker_again > 0
        at_once = again and bool(self._trials.unlike(streak.jobs))
        try_at = self._try_at(0) if again and not at_once else None
        paused = {
            "by": BY,
            "why": why,
            "jobs": streak.jobs,
            "again": again,  # whether jobs are tried at all
            "tries": 0,
            "trial": None,
            "try_at": try_at,
            "told": False,
        }
        self._box.set("streak", None)
        self._jobs.note(None, None, "paused", {"by": BY, "why": why, "jobs": streak.jobs})
        self._box.set("paused", paused)
        if not at_once:
            self._tell(paused)
        log.warning("queue paused: %s", why)

    def _tell(self, paused: dict[str, Any]) -> None:
        if not paused.get("told"):
            told = ("why", "jobs", "again", "tries", "try_at")
            self._outbox.add("paused", {name: paused.get(name) for name in told})
            self._box.set("paused", {**paused, "told": True})

    # -- trying a paused queue -----------------------------------------------------------------------------------------

    def candidates(self) -> list[Waiting]:
        """Return the jobs that may be started now to try a paused queue. Only one of them is started."""
        paused = self._box.get("paused")
        if not paused or paused["by"] != BY or "jobs" not in paused:
            return []
        paused = self._by_settings(paused)
        if not paused["again"]:
            self._tell(paused)
            return []
        if self._box.get("draining"):
            return []
        if paused["trial"] is not None:
            self._see(paused)
            return []
        left_s = self._left_s(paused)
        if left_s > 0:
            self._look_in(left_s)
        found = self._trials.now(paused)
        if not found and left_s <= 0:
            self._tell(paused)
        return found

    def _by_settings(self, paused: dict[str, Any]) -> dict[str, Any]:
        """Adapt the pause to the current settings. The runner before may have had other ones."""
        again = self._settings.breaker_again > 0
        if paused.get("again") is not again:
            paused = {**paused, "again": again, "try_at": paused["try_at"] if again else None}
            self._box.set("paused", paused)
        return paused

    def _left_s(self, paused: dict[str, Any]) -> float:
        """Return the seconds until the next try, at most the usual wait: the wall clock may have been set back."""
        due = clock.moment(paused["try_at"])
        longest_s = failure_streak.wait_s(max(0, paused["tries"] - 1), self._settings.breaker_again)
        if due is not None and (due - clock.now()).total_seconds() > longest_s + 1:
            due = clock.now() + timedelta(seconds=longest_s)
            self._box.set("paused", {**paused, "try_at": clock.text(due)})
        return 0.0 if due is None else (due - clock.now()).total_seconds()

    def tries(self, job_id: int | None) -> None:
        """Record that this job was started as a trial. None: there was no room for one."""
        paused = self._box.get("paused")
        if job_id is not None:
            log.info("job %s shows whether the queue may go on", job_id)
            self._box.set("paused", {**paused, "trial": job_id})
            self._look_in(self._settings.breaker_within)
        elif (left_s := self._patience_s()) > 0:
            self._look_in(left_s)
        else:
            self._tell(paused)

    def _patience_s(self) -> float:
        """Return how many more seconds to wait for room before the notice: failed jobs free their memory soon."""
        now = time.monotonic()
        if now > self._no_room_until + NO_ROOM_S:
            self._no_room_until = now + NO_ROOM_S
        return self._no_room_until - now

    def _see(self, paused: dict[str, Any]) -> None:
        """Check the job that was tried: wait, pause for longer, or let the queue go on."""
        job = self._jobs.get(paused["trial"])
        if job is None or (state := self._trials.state(job)) in SAYS_NOTHING:
            self._box.set("paused", {**paused, "trial": None})
            self._waiter.after(0, lambda: None)
        elif (left_s := self._settings.breaker_within - self._trials.ran_s(job)) > 0 and not state.final:
            self._look_in(left_s)
        elif state is State.FAILED and left_s >= 0:
            self._fails_again(paused)
        else:
            self._go_on(paused, job)

    def _fails_again(self, paused: dict[str, Any]) -> None:
        tries = paused["tries"] + 1
        failed = [*paused["jobs"], paused["trial"]]
        paused = {**paused, "jobs": failed, "tries": tries, "trial": None, "try_at": self._try_at(tries - 1)}
        self._box.set("paused", paused)
        self._tell(paused)
        self._look_in(failure_streak.wait_s(tries - 1, self._settings.breaker_again))

    def _go_on(self, paused: dict[str, Any], job: Job) -> None:
        """Resume the queue. Hold jobs of the kinds that failed, until somebody has looked at them."""
        to_blame = failure_streak.broken(self._trials.shapes(paused["jobs"]))
        fine = self._trials.shapes([job.id])
        held = self._trials.hold(to_blame, HELD_BY) if to_blame and not set(fine) & set(to_blame) else []
        for name in ("paused", "streak"):
            self._box.set(name, None)
        said = {"why": paused["why"], "jobs": paused["jobs"], "trial": job.id, "held": held}
        self._jobs.note(None, None, "resumed", {"by": BY, "trial": job.id, "held": len(held)})
        if held or paused.get("told"):
            self._outbox.add("goes on", said)
        self._waiter.after(0, lambda: None)
        log.info("the queue goes on, since job %s runs; %s jobs are held", job.id, len(held))

    def _try_at(self, tries: int) -> str:
        return clock.text(clock.now() + timedelta(seconds=failure_streak.wait_s(tries, self._settings.breaker_again)))

    def _look_in(self, seconds: float) -> None:
        """Look again after this time. Several requests share one timer."""
        now = time.monotonic()
        if not now < self._looks_at <= now + seconds + 1:
            self._looks_at = now + seconds
            self._waiter.after(seconds, lambda: None)
