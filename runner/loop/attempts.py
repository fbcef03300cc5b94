"""What becomes of the running attempts: notices when they start and end, and records the outcome.

A runner that has just started finds live jobs that it does not follow. A runner that has been up for a week hears from
the engine that something changed. Both cases go through `tick`, so recovery happens at every tick.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runner import clock, rundir
from runner.batch import Run, oom
from runner.lifecycle import Recovery, lost, outcome, recover
from runner.model import Exit, Job, Memory, Phase, Reason, Ref, State
from runner.schedule import backoff
from runner.step import Step
from runner.supervisor.log_reader import Log
from runner.supervisor.probe_records import read_report
from runner.text.failures import error_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.engines.base import Facts
    from runner.loop.usage import Usage
    from runner.probing.probes import Probes
    from runner.step import Context

    OnEnd = Callable[[Job, State | None, Exit | None, float], None]

log = logging.getLogger(__name__)

TROUBLED_S = 5.0
PROBING_S = 0.5
SWEEP_AGAIN_S = 0.02
UNSTOPPABLE_AFTER_S = 60.0
TAIL_BYTES = 1 << 16
LONGEST_ERROR = 1000  # characters of an error line to store
HELD_BY = "its trial, which failed"
BOX_RETRIES = 3  # per job, for the reasons in the box's retry setting


@dataclass(slots=True)
class Followed:
    """What we know of one attempt."""

    ref: Ref
    due: bool = True  # look at it in the next tick
    will_look: bool = False  # a timer is set for another look
    gone_at: float | None = None  # when its processes were gone, monotonic clock
    ended: bool = False  # its end is recorded; it is forgotten after the commit
    probed: bool = False  # its batch is known and recorded
    stop_sent: bool = False
    limit_s: float | None = None  # the limit that the engine has, if we know it
    sweeping_since: float | None = None


class Attempts(Step):
    """All running attempts, and what to do when one of them has changed."""

    def __init__(self, context: Context, usage: Usage, probes: Probes, on_end: OnEnd) -> None:
        self._context, self._jobs, self._engine = context, context.jobs, context.engine
        self._usage, self._probes, self._on_end = usage, probes, on_end
        self._followed: dict[int, Followed] = {}  # by job
        self.never_ran = 0  # attempts in a row that came back without being executed

    def add(self, ref: Ref, limit_s: float | None, *, started: bool) -> None:
        """Follow an attempt that was just claimed. If the engine did not take it, look at it in the next tick."""
        self._followed[ref.job_id] = Followed(ref, due=not started, limit_s=limit_s)

    # -- the step ----------------------------------------------------------------------------------

    def read(self) -> None:
        """Take in which attempts have changed. Until the next look nobody knows whether they are still running."""
        changed = self._engine.news()
        self._context.running.difference_update(changed)
        for ref in changed:
            if (followed := self._followed.get(ref.job_id)) is not None and followed.ref == ref:
                followed.due = True

    def tick(self) -> None:
        """Look at every live job that we do not follow yet, or that may have changed."""
        due = []
        for row in self._context.live():
            ref, followed = Ref(row.id, row.attempt, row.run_id), self._followed.get(row.id)
            if followed is None or followed.ref != ref:
                self._forget(row.id)
                followed = self._followed[row.id] = Followed(ref)
            if followed.due:
                followed.due = False
                due.append(followed)
        facts = self._engine.look([followed.ref for followed in due])
        for followed in due:
            self._take(followed, facts[followed.ref])

    def committed(self) -> None:
        """Let go of the attempts that have ended."""
        for job_id in [job_id for job_id, followed in self._followed.items() if followed.ended]:
            self._forget(job_id)

    def rolled_back(self) -> None:
        """Look at everything again."""
        for followed in self._followed.values():
            followed.due, followed.ended, followed.probed, followed.stop_sent = True, False, False, False

    def _take(self, followed: Followed, facts: Facts) -> None:
        job = self._jobs.get(followed.ref.job_id)
        assert job is not None
        try:
            self._judge(job, followed, facts)
        except (OSError, KeyError, TypeError, ValueError):
            # somebody changed the run directory, or its disk does not answer: the other jobs go on
            log.exception("job %s attempt %s cannot be looked at now", job.id, job.attempt)
            self._look_again(followed, TROUBLED_S)

    def _judge(self, job: Job, followed: Followed, facts: Facts) -> None:
        step = recover(
            held=facts.held,
            has_exit=facts.exit is not None,
            has_started=facts.started is not None,
            was_running=job.state is State.RUNNING,
        )
        if facts.started is not None and job.state is State.STARTING:
            phase = Phase.PROBING if job.spec.probe is not None else Phase.RUNNING
            phase = Phase.TRYING if job.untried else phase
            if self._engine.can.places:
                job = self._take_place(job, facts.started)
            has_ended = step is Recovery.FINISHED and phase is Phase.RUNNING
            self._jobs.started(job, facts.started.at, phase, has_ended=has_ended)
            if not has_ended:
                job = replace(job, state=State.RUNNING, phase=phase)
        if job.spec.probe is not None and job.state is State.RUNNING:
            job = self._follow_probe(job, followed)
        followed.gone_at = facts.gone_at
        if facts.started is not None and facts.held and facts.gone_at is None:
            self._context.running.add(followed.ref)
        if step is Recovery.ADOPT and facts.started is not None:
            self.never_ran = 0
        elif step is Recovery.FINISHED:
            assert facts.exit is not None
            self._finish(job, followed, facts.exit, facts.said)
        elif step is Recovery.GONE:
            self._sweep_and_lose(job, followed, facts)
        elif step is Recovery.NEVER_RAN:
            self._give_back(job, followed, facts.said)

    def _take_place(self, job: Job, started: rundir.StartRecord) -> Job:
        """Take in which GPUs an attempt got that waited in the engine's own queue. Its place there is free again."""
        self._jobs.take_place(job, started.node or "", started.gpus)
        self._usage.begin(job.id, job.attempt, started.gpus, self._usage.before(()))
        return replace(job, gpus=started.gpus)

    def _follow_probe(self, job: Job, followed: Followed) -> Job:
        """Record how far the batch search is. Not every supervisor reports its end, so look from time to time."""
        report = read_report(self._folder(job))
        if report is None or report.run_id != job.run_id or followed.probed:
            return job
        if not isinstance(report.plan.step, Run):
            if report != self._jobs.probe(job.id, job.attempt):
                self._jobs.keep_probe(job, report)
            self._look_again(followed, PROBING_S)
            return job
        followed.probed = True
        if self._jobs.is_told(job):
            return job
        self._probes.begun(job, report)
        self._usage.restart(job)
        return self._jobs.get(job.id) or job

    # -- ends --------------------------------------------------------------------------------------

    def _finish(self, job: Job, followed: Followed, end: Exit, said: str | None) -> None:
        self.never_ran = 0
        if job.untried and self._finish_trial(job, followed, end):
            return
        state, reason = outcome(end, job.stop, preempted=job.stop is not None and self._jobs.was_preempted(job))
        if state is State.LOST:
            self._end(job, followed, state, reason, None, said)
        elif state is State.FAILED and end.spawn_error is None:
            self._fail(job, followed, end, reason)
        elif reason is Reason.PREEMPTED:
            self._requeue_preempted(job, followed, end)
        else:
            self._end(job, followed, state, reason, end)

    def _finish_trial(self, job: Job, followed: Followed, end: Exit) -> bool:
        """Record the end of a trial. Return False if it failed by itself: then it ends like any attempt.

        A trial is never the run: exit code 0 is not success of the job, because a program may do less in a trial.
        """
        if job.stop is not None and not _is_being_preempted(job):
            self._end(job, followed, State.CANCELLED, job.stop.reason, end)
        elif end.timed_out or (end.exit_code == 0 and not end.stopped):
            self._pass_trial(job, followed, end)
        elif not end.stopped:
            return False
        elif job.stop is not None:
            self._requeue_preempted(job, followed, end)
        else:  # the host is going down
            self._end(job, followed, State.LOST, Reason.SUPERVISOR, None)
        return True

    def _pass_trial(self, job: Job, followed: Followed, end: Exit) -> None:
        log.info("job %s attempt %s: its trial passed", job.id, job.attempt)
        self._jobs.passed(job, "its trial passed", self._usage.report(job), end)
        self._on_end(job, None, end, followed.gone_at or time.monotonic())
        followed.ended = True

    def _requeue_preempted(self, job: Job, followed: Followed, end: Exit | None) -> None:
        """Queue a preempted job again, no matter how it ended."""
        assert job.stop is not None
        why = f"it made room for {job.stop.by}"
        self._try_again(job, followed, (State.CANCELLED, Reason.PREEMPTED), why, end)

    def _fail(self, job: Job, followed: Followed, end: Exit, reason: Reason) -> None:
        """Record a failure, with what the end of its output says about it."""
        tail = Log(self._folder(job)).tail(TAIL_BYTES).decode(errors="replace")
        end = replace(end, error=(error_line(tail) or "")[:LONGEST_ERROR] or None)
        shortage = oom.recognise(tail, exit_code=end.exit_code, signal=end.signal, host_kill=end.host_kills > 0)
        if shortage is not None:
            self._end_for_memory(job, followed, end, shortage)
        else:
            self._end(job, followed, State.FAILED, reason, end)

    def _end_for_memory(self, job: Job, followed: Followed, end: Exit, shortage: oom.MemoryShortage) -> None:
        """Record a failure for lack of memory. If we chose the batch, retry with a smaller one."""
        if job.untried and job.spec.probe is not None and shortage.where is Memory.GPU:
            self._pass_trial(job, followed, end)  # the batch search finds a smaller one
            return
        end = replace(end, memory=shortage.where.value)
        usage = self._usage.report(job)
        smaller = self._probes.out_of_memory(job, end, shortage, usage) if job.stop is None else None
        if smaller is None:
            self._end(job, followed, State.FAILED, Reason.OOM, end)
        else:
            why = f"{smaller.why}; again at batch {smaller.batch}"
            self._try_again(job, followed, (State.FAILED, Reason.OOM), why, end)

    def _end(
        self, job: Job, followed: Followed, state: State, reason: Reason, end: Exit | None, said: str | None = None
    ) -> None:
        """Record the end, or retry if that is due. `said`: what the engine says about it."""
        if (retry := self._retry(job, state, reason, end)) is not None:
            why = f"{said}; {retry.words}" if said else retry.words
            self._try_again(job, followed, (state, reason), why, end, retry)
            return
        if job.untried and (job.stop is None or _is_being_preempted(job)):
            why = (end.spawn_error if end else None) or "its trial failed"
            self._try_again(job, followed, (state, reason), why, end, held_by=HELD_BY)
            return
        usage = self._usage.report(job)
        self._jobs.ended(job, state, reason, end, usage, said)
        if job.spec.probe is not None:
            self._probes.ended(job, state, usage, (end.run_s or end.duration_s) if end else 0.0)
        self._on_end(job, state, end, followed.gone_at or time.monotonic())
        followed.ended = True
        log.info("job %s attempt %s: %s %s", job.id, job.attempt, state.value, reason.value)

    def _retry(self, job: Job, state: State, reason: Reason, end: Exit | None) -> backoff.Retry | None:
        """Use up a retry, by the box's setting or the job's own count. Return None if no retry is due."""
        if state is State.SUCCEEDED or (job.stop is not None and job.stop.reason is Reason.USER):
            return None
        if job.untried and state is not State.LOST:  # a trial is to tell of a failure at once
            return None
        if reason.value in self._context.settings.retry_on and job.attempt <= BOX_RETRIES:
            number, of = job.attempt, BOX_RETRIES
        else:
            wanted = reason.value in job.spec.retry_on or (not job.spec.retry_on and state is State.LOST)
            if not wanted or not self._jobs.use_retry(job):
                return None
            number, of = job.spec.retries - job.retries_left + 1, job.spec.retries
        before_s, ran_s = self._jobs.pause_before_s(job), _ran_s(job, end)
        return backoff.Retry(
            number, of, backoff.pause_s(before_s, state, reason, ran_s), backoff.is_news(before_s, ran_s)
        )

    def _try_again(
        self, job: Job, followed: Followed, after: tuple[State, Reason], why: str, end: Exit | None,
        retry: backoff.Retry | None = None, held_by: str | None = None,
    ) -> None:  # fmt: skip
        """Queue the job for a new attempt with the same run id. The breaker counts only retries and failed trials."""
        log.info("job %s attempt %s: %s, %s", job.id, job.attempt, after[1].value, why)
        self._jobs.back_to_queue(job, why, after, self._usage.report(job), end, retry, held_by)
        self._on_end(job, after[0] if retry or held_by else None, end, followed.gone_at or time.monotonic())
        followed.ended = True

    def _sweep_and_lose(self, job: Job, followed: Followed, facts: Facts) -> None:
        """Record a lost attempt once all its processes are gone, or cannot be killed: until then it keeps its GPUs."""
        now = time.monotonic()
        followed.sweeping_since = followed.sweeping_since or now
        if not self._engine.sweep(followed.ref):
            if now - followed.sweeping_since < UNSTOPPABLE_AFTER_S:
                self._look_again(followed, SWEEP_AGAIN_S)
                return
            log.error("job %s: processes that cannot be killed are left behind", job.id)
        if _is_being_preempted(job):
            self._requeue_preempted(job, followed, None)
        else:
            boot_then = facts.started.boot_id if facts.started else self._jobs.boot_id(job)
            state, reason = (State.LOST, facts.lost) if facts.lost else lost(boot_then, self._boot_now())
            self._end(job, followed, state, reason, None, facts.said if facts.lost else None)

    def _boot_now(self) -> str:
        return self._engine.nodes()[0].boot_id or ""

    def _give_back(self, job: Job, followed: Followed, why: str | None) -> None:
        if job.stop is not None and not _is_being_preempted(job):
            self._end(job, followed, State.CANCELLED, job.stop.reason, None)
            return
        why = why or "its supervisor ended before executing it"
        log.warning("job %s attempt %s never ran (%s); queued again", job.id, job.attempt, why)
        self._jobs.back_to_queue(job, why)
        followed.ended = True
        self.never_ran += 1

    # -- stops and limits --------------------------------------------------------------------------

    def pass_on(self) -> list[Ref]:
        """Record which jobs are being stopped, and write new time limits. Return the attempts to stop."""
        to_stop = []
        for row in self._context.live():
            followed = self._followed.get(row.id)
            if followed is None or followed.ended:
                continue
            may_stop = followed.ref in self._context.running or self._engine.can.places
            if row.stop_reason and may_stop and not followed.stop_sent:
                followed.stop_sent = True
                self._jobs.stopping(row.id)
                to_stop.append(followed.ref)
            if self._engine.can.extends and row.limit_s is not None and followed.limit_s != row.limit_s:
                self._pass_on_limit(followed, row.limit_s)
        return to_stop

    def _pass_on_limit(self, followed: Followed, limit_s: float) -> None:
        """Tell a supervisor its new limit, in case the process that set it died before it did so."""
        try:
            self._engine.extend(followed.ref, limit_s)
        except OSError as error:
            log.warning("job %s cannot be told of its new time limit now: %s", followed.ref.job_id, error)
            self._context.waiter.tick_in(TROUBLED_S)
        else:
            followed.limit_s = limit_s

    # -- helpers -----------------------------------------------------------------------------------

    def _folder(self, job: Job) -> str:
        return rundir.folder_of(self._context.settings.home, job.id, job.attempt)

    def _look_again(self, followed: Followed, after_s: float) -> None:
        """Look at an attempt once more after this many seconds. Each has one timer at most."""
        if followed.will_look:
            return
        followed.will_look = True

        def look() -> bool:
            followed.will_look = False
            followed.due |= not followed.ended
            return followed.due

        self._context.waiter.after(after_s, look)

    def _forget(self, job_id: int) -> None:
        if (followed := self._followed.pop(job_id, None)) is not None:
            self._context.running.discard(followed.ref)
            self._engine.forget(followed.ref)


class Stops(Step):
    """Passes stop requests and new time limits on to the engine. It comes after all steps that make them."""

    def __init__(self, context: Context, attempts: Attempts) -> None:
        self._engine, self._attempts = context.engine, attempts
        self._to_stop: list[Ref] = []

    def tick(self) -> None:
        """Find the attempts to stop."""
        self._to_stop = self._attempts.pass_on()

    def committed(self) -> None:
        """Stop them."""
        for ref in self._to_stop:
            self._engine.stop(ref)
        self._to_stop = []


def _ran_s(job: Job, end: Exit | None) -> float:
    if end is not None:
        return end.duration_s
    return (clock.now() - job.started_at).total_seconds() if job.started_at else 0.0


def _is_being_preempted(job: Job) -> bool:
    return job.stop is not None and job.stop.reason is Reason.PREEMPTED
