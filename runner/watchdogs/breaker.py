"""Pauses the queue when jobs fail one after another, and tries by itself whether it can go on.

`runner.watchdogs.failure_streak` decides what counts. The whole state is in the box's "paused" and "streak", so that
the next runner continues from it.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from runner import clock
from runner.model import State
from runner.notices import GoesOn, Paused
from runner.step import Step
from runner.store.box import BoxKey
from runner.store.breaker_trials import Trials
from runner.store.pause import BREAKER, Pause
from runner.watchdogs import failure_streak

if TYPE_CHECKING:
    from runner.model import Exit, Job
    from runner.schedule.choice import Waiting
    from runner.step import Context

log = logging.getLogger(__name__)

NO_ROOM_S = 15.0
SAYS_NOTHING = (State.QUEUED, State.CANCELLED, State.LOST)
HELD_BY = "the breaker, since jobs like it failed at once"


class BreakerWatch(Step):
    """Pauses and resumes the queue. Call every method in a transaction."""

    def __init__(self, context: Context) -> None:
        self._settings, self._jobs, self._waiter = context.settings, context.jobs, context.waiter
        self._notices, self._box = context.notices, context.box
        self._trials = Trials(context.store)
        self._no_room_until = -math.inf  # until then, send no notice that there is no room to try a job

    def on_end(self, job: Job, state: State | None, end: Exit | None, gone_at: float) -> None:  # noqa: ARG002
        """Count an attempt that has ended. Pause the queue if enough of them failed in a row."""
        if state is None or not self._settings.breaker or self._box.any(BoxKey.PAUSED):
            return
        if job.spec.terminal:
            return  # a person ended it: that says nothing about the box
        before = failure_streak.Streak(*self._box.get(BoxKey.STREAK, failure_streak.Streak()))
        streak = failure_streak.after(before, job.id, state, end, self._settings.breaker_within)
        if streak != before:
            self._box.set(BoxKey.STREAK, streak)
        if len(streak.jobs) >= self._settings.breaker:
            self._pause(streak)

    def _pause(self, streak: failure_streak.Streak) -> None:
        why, again = streak.words, self._settings.breaker_again > 0
        at_once = again and bool(self._trials.unlike(streak.jobs))
        try_at = self._try_at(0) if again and not at_once else None
        pause = Pause(
            by=BREAKER, why=why, error=streak.error, jobs=tuple(streak.jobs), again=again, try_at=try_at
        )  # fmt: skip
        self._box.set(BoxKey.STREAK, None)
        self._jobs.note(None, None, "paused", {"by": BREAKER, "why": why, "jobs": streak.jobs})
        self._store_pause(pause)
        if not at_once:
            self._tell(pause)
        log.warning("queue paused: %s", why)

    def _store_pause(self, pause: Pause) -> None:
        self._box.set(BoxKey.PAUSED, pause.to_json())

    def _tell(self, pause: Pause) -> None:
        if not pause.told:
            self._notices.add(Paused.from_json(pause.to_json()))
            self._store_pause(replace(pause, told=True))

    # -- trying a paused queue -----------------------------------------------------------------------------------------

    def candidates(self) -> list[Waiting]:
        """Return the jobs that may be started now to try a paused queue. Only one of them is started."""
        pause = self._box.pause()
        if pause is None or pause.by_person or pause.jobs is None:
            return []
        pause = self._by_settings(pause)
        if not pause.again:
            self._tell(pause)
            return []
        if self._box.any(BoxKey.DRAINING):
            return []
        if pause.trial is not None:
            self._see(pause, pause.trial)
            return []
        left_s = self._left_s(pause)
        if left_s > 0:
            self._waiter.tick_within(left_s)
        jobs = self._trials.now(pause)
        if not jobs and left_s <= 0:
            self._tell(pause)
        return jobs

    def _by_settings(self, pause: Pause) -> Pause:
        """Adapt the pause to the current settings. The runner before may have had other ones."""
        again = self._settings.breaker_again > 0
        if pause.again is not again:
            pause = replace(pause, again=again, try_at=pause.try_at if again else None)
            self._store_pause(pause)
        return pause

    def _left_s(self, pause: Pause) -> float:
        """Return the seconds until the next try, at most the usual wait: the wall clock may have been set back."""
        due = clock.moment(pause.try_at)
        longest_s = failure_streak.wait_s(max(0, pause.tries - 1), self._settings.breaker_again)
        if due is not None and (due - clock.now()).total_seconds() > longest_s + 1:
            due = clock.now() + timedelta(seconds=longest_s)
            self._store_pause(replace(pause, try_at=clock.text(due)))
        return 0.0 if due is None else (due - clock.now()).total_seconds()

    def tries(self, job_id: int | None) -> None:
        """Record that this job was started as a trial. None: there was no room for one."""
        pause = self._box.pause()
        assert pause is not None
        if job_id is not None:
            log.info("job %s shows whether the queue may go on", job_id)
            self._store_pause(replace(pause, trial=job_id))
            self._waiter.tick_within(self._settings.breaker_within)
        elif (left_s := self._patience_s()) > 0:
            self._waiter.tick_within(left_s)
        else:
            self._tell(pause)

    def _patience_s(self) -> float:
        """Return how many more seconds to wait for room before the notice: failed jobs free their memory soon."""
        now = time.monotonic()
        if now > self._no_room_until + NO_ROOM_S:
            self._no_room_until = now + NO_ROOM_S
        return self._no_room_until - now

    def _see(self, pause: Pause, trial: int) -> None:
        """Check the job that was tried: wait, pause for longer, or let the queue go on."""
        job = self._jobs.get(trial)
        if job is None or (state := self._trials.state(job)) in SAYS_NOTHING:
            self._store_pause(replace(pause, trial=None))
            self._waiter.tick_in(0)
        elif (left_s := self._settings.breaker_within - self._trials.ran_s(job)) > 0 and not state.final:
            self._waiter.tick_within(left_s)
        elif state is State.FAILED and left_s >= 0:
            self._fails_again(pause, trial)
        else:
            self._go_on(pause, job)

    def _fails_again(self, pause: Pause, trial: int) -> None:
        failed, try_at = (*(pause.jobs or ()), trial), self._try_at(pause.tries)
        pause = replace(pause, jobs=failed, tries=pause.tries + 1, trial=None, try_at=try_at)
        self._store_pause(pause)
        self._tell(pause)
        self._waiter.tick_within(self._left_s(pause))

    def _go_on(self, pause: Pause, job: Job) -> None:
        """Resume the queue. Hold jobs of the kinds that failed, until somebody has looked at them."""
        to_blame = failure_streak.broken(self._trials.shapes(pause.jobs or ()))
        fine = self._trials.shapes([job.id])
        held = self._trials.hold(to_blame, HELD_BY) if to_blame and not set(fine) & set(to_blame) else []
        for key in (BoxKey.PAUSED, BoxKey.STREAK):
            self._box.set(key, None)
        self._jobs.note(None, None, "resumed", {"by": BREAKER, "trial": job.id, "held": len(held)})
        if held or pause.told:
            self._notices.add(
                GoesOn(why=pause.why or "", error=pause.error, jobs=pause.jobs or (), trial=job.id, held=tuple(held))
            )
        self._waiter.tick_in(0)
        log.info("the queue goes on, since job %s runs; %s jobs are held", job.id, len(held))

    def _try_at(self, tries: int) -> str:
        return clock.text(clock.now() + timedelta(seconds=failure_streak.wait_s(tries, self._settings.breaker_again)))
