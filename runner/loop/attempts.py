"""The running attempts: adopts them, notices when they end, and records the outcome.

A runner that has just started finds live jobs without a watch. A runner that has been up for a week finds watches that
have reported something. Both cases go through `collect`, so recovery happens at every tick.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runner import clock, rundir
from runner.batch import Run, oom
from runner.gpu.usage_meter import Live
from runner.lifecycle import Recovery, lost, outcome, recover
from runner.model import Exit, Job, Phase, Reason, State
from runner.processes import linux
from runner.schedule import backoff
from runner.supervisor import cgroup
from runner.supervisor.log_reader import Log
from runner.supervisor.probe_records import read_report
from runner.supervisor.strays import end_strays
from runner.supervisor.supervise import ENDED, GONE, PROBED, STARTED, TROUBLE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    OnEnd = Callable[[Job, State | None, Exit | None, float], None]

    from runner.gpu.telemetry import Telemetry
    from runner.gpu.usage_meter import Usage
    from runner.probing.probes import Probes
    from runner.processes.waiter import Waiter
    from runner.rundir import StartRecord
    from runner.store.jobs import Jobs
    from runner.store.scheduling_queries import UnderWay

log = logging.getLogger(__name__)

SOON_S = 0.02
PATIENCE_S = 0.003
LOOK_AGAIN_S = 0.01
TROUBLED_S = 5.0
PROBING_S = 0.5
TAIL_BYTES = 1 << 16
SWEEP_AGAIN_S = 0.02
UNSTOPPABLE_AFTER_S = 60.0
BOX_RETRIES = 3  # per job, for the reasons in the box's retry setting


@dataclass(slots=True)
class WatchedAttempt:
    """How we learn about the end of one attempt."""

    attempt: int
    leash: int | None = None  # pipe from a supervisor that we started
    pidfd: int | None = None  # of the supervisor: to send it signals, and to see the end of an adopted one
    supervisor: int = 0  # its pid
    spoke: bool = True  # something changed: look at the run directory
    stop_passed_on: bool = False
    swept_since: float | None = None
    gpus: tuple[str, ...] = ()
    gone_at: float | None = None  # when its processes were gone, monotonic clock
    probed: bool = False  # its batch is known and recorded
    trouble: str | None = None  # why the supervisor could not start the job, in its own words
    limit_s: float | None = None  # the limit that the supervisor has ...
    knows_limit: bool = False  # ... if we know it


class Attempts:
    """All running attempts, and what to do when one of them reports."""

    def __init__(
        self, home: str, jobs: Jobs, waiter: Waiter, on_end: OnEnd, telemetry: Telemetry, usage: Usage, probes: Probes,
        retry_on: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._retry_on = retry_on
        self._home, self._jobs, self._waiter, self._probes = home, jobs, waiter, probes
        self._on_end, self._telemetry, self._usage = on_end, telemetry, usage
        self._boot_id = linux.boot_id()
        self._watches: dict[int, WatchedAttempt] = {}
        self.never_ran = 0  # attempts in a row that came back without being executed

    def add(
        self, job_id: int, attempt: int, gpus: tuple[str, ...], leash: int | None, limit_s: float | None = None
    ) -> None:
        """Watch an attempt that the engine got. Without a leash, look at its run directory at the next tick."""
        watch = WatchedAttempt(
            attempt=attempt, gpus=gpus, leash=leash, spoke=leash is None, limit_s=limit_s, knows_limit=True
        )
        self._watches[job_id] = watch
        if leash is not None:
            self._waiter.add(leash, lambda: self._hear(watch))

    def collect(self, under_way: list[UnderWay]) -> None:
        """Look at every live job that has no watch yet, or whose watch has reported something."""
        for row in under_way:
            watch = self._watches.get(row.id)
            if watch is None or watch.attempt != row.attempt:
                self._forget(row.id)
                watch = self._watches[row.id] = WatchedAttempt(attempt=row.attempt)
            if watch.spoke:
                watch.spoke = False
                job = self._jobs.get(row.id)
                assert job is not None
                try:
                    self._look(job, watch)
                except (OSError, KeyError, TypeError, ValueError):
                    # too few file descriptors, or somebody changed the run directory: the other jobs go on
                    log.exception("job %s attempt %s cannot be looked at now", job.id, job.attempt)
                    self._look_again(watch, TROUBLED_S)

    def pass_on_stops(self, under_way: list[UnderWay]) -> None:
        """Send SIGTERM to the supervisors of jobs that are to stop. A second signal would do no harm."""
        for row in under_way:
            watch = self._watches.get(row.id)
            if not row.stop_reason or watch is None or watch.stop_passed_on or watch.pidfd is None:
                continue
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(watch.pidfd, signal.SIGTERM)
            watch.stop_passed_on = True
            self._jobs.stopping(row.id)

    def pass_on_limits(self, under_way: list[UnderWay]) -> None:
        """Write new time limits where supervisors read them, in case the process that set one died before it did so."""
        for row in under_way:
            watch = self._watches.get(row.id)
            if row.limit_s is None or watch is None or (watch.knows_limit and watch.limit_s == row.limit_s):
                continue
            job = self._jobs.get(row.id)
            assert job is not None
            try:
                rundir.extend_limit(self._home, job)
            except OSError as error:
                log.warning("job %s cannot be told of its new time limit now: %s", row.id, error)
                self._waiter.tick_in(TROUBLED_S)
            else:
                watch.limit_s, watch.knows_limit = row.limit_s, True

    def release_ended(self) -> None:
        """Stop watching attempts that have ended. Call it after the commit."""
        for job_id in [job_id for job_id, watch in self._watches.items() if watch.attempt < 0]:
            self._forget(job_id)

    def reconsider(self) -> None:
        """Look at everything again. Call it after a failed commit."""
        for watch in self._watches.values():
            watch.attempt = abs(watch.attempt)
            watch.spoke = True
            watch.probed = False
            watch.stop_passed_on = False

    def close(self) -> None:
        """Stop watching. Jobs keep running."""
        for job_id in list(self._watches):
            self._forget(job_id)

    def _hear(self, watch: WatchedAttempt) -> bool:
        assert watch.leash is not None
        said = os.read(watch.leash, 4096)
        if said == STARTED:
            self._look_again(watch, SOON_S)  # by then its end is often known as well
            return False
        if said and not said.strip(STARTED + PROBED):
            watch.spoke = True
            return True
        if said.startswith(TROUBLE):
            watch.trouble = said[1:].decode(errors="replace")
        elif GONE in said and watch.gpus:
            watch.gone_at = time.monotonic()
            self._telemetry.ask()  # the next sample shows whether its memory is free again
            if ENDED not in said:
                return False
        self._drop_leash(watch)
        watch.spoke = True
        if watch.gpus and self._telemetry.is_asked:
            # then the end and the next start need one transaction, not two
            self._waiter.tick_in(PATIENCE_S)
            return False
        return True

    def _look(self, job: Job, watch: WatchedAttempt) -> None:
        folder = rundir.folder_of(self._home, job.id, job.attempt)
        facts = rundir.facts(folder, job.run_id)
        step = recover(
            held=facts.held,
            has_exit=facts.exit is not None,
            has_started=facts.started is not None,
            was_running=job.state is State.RUNNING,
        )
        if facts.started is not None and job.state is State.STARTING:
            phase = Phase.PROBING if job.spec.probe is not None else Phase.RUNNING
            self._jobs.started(job, facts.started.at, phase)
            job = replace(job, state=State.RUNNING, phase=phase)
        if job.spec.probe is not None and job.state is State.RUNNING:
            job = self._follow_probe(job, watch, folder)
        if step is Recovery.ADOPT:
            self._adopt(watch, folder, facts.started)
        elif step is Recovery.LOOK_AGAIN:
            self._look_again(watch, LOOK_AGAIN_S)
        elif step is Recovery.FINISHED:
            assert facts.exit is not None
            self._finish(job, watch, facts.exit)
        elif step is Recovery.GONE:
            self._sweep_and_lose(job, watch, facts.started)
        else:
            self._give_back(job, watch)

    def _follow_probe(self, job: Job, watch: WatchedAttempt, folder: str) -> Job:
        """Record how far the batch search is. An adopted supervisor does not report its end, so poll for it."""
        report = read_report(folder)
        if report is None or report.run_id != job.run_id or watch.probed:
            return job
        if not isinstance(report.plan.step, Run):
            self._jobs.keep_probe(job, report)
            if watch.leash is None:
                self._look_again(watch, PROBING_S)
            return job
        watch.probed = True
        if self._jobs.is_told(job):
            return job
        self._probes.begun(job, report)
        self._usage.restart(job)
        return self._jobs.get(job.id) or job

    def _finish(self, job: Job, watch: WatchedAttempt, end: Exit) -> None:
        self.never_ran = 0
        state, reason = outcome(end, job.stop, preempted=job.stop is not None and self._jobs.was_preempted(job))
        if state is State.LOST:
            self._end(job, watch, state, reason, None)
        elif state is State.FAILED and (found := self._out_of_memory(job, end)):
            self._end_for_memory(job, watch, end, found)
        elif reason is Reason.PREEMPTED:
            self._requeue_preempted(job, watch, end)
        else:
            self._end(job, watch, state, reason, end)

    def _requeue_preempted(self, job: Job, watch: WatchedAttempt, end: Exit | None) -> None:
        """Queue a preempted job again, no matter how it ended."""
        assert job.stop is not None
        why = f"it made room for {job.stop.by}"
        self._try_again(job, watch, (State.CANCELLED, Reason.PREEMPTED), why, end)

    def _out_of_memory(self, job: Job, end: Exit) -> oom.MemoryShortage | None:
        """Return which memory the attempt ran out of, or None if that is not why it failed."""
        if end.spawn_error is not None:
            return None
        tail = Log(rundir.folder_of(self._home, job.id, job.attempt)).tail(TAIL_BYTES).decode(errors="replace")
        killed = end.host_kills > 0
        return oom.recognise(tail, exit_code=end.exit_code, signal=end.signal, host_kill=killed)

    def _end_for_memory(self, job: Job, watch: WatchedAttempt, end: Exit, found: oom.MemoryShortage) -> None:
        """Record a failure for lack of memory. If we chose the batch, retry with a smaller one."""
        usage = self._usage.report(job)
        again = self._probes.out_of_memory(job, end, found, usage) if job.stop is None else None
        if again is None:
            self._end(job, watch, State.FAILED, Reason.OOM, end)
            return
        why = f"{again.why}; again at batch {again.batch}"
        self._try_again(job, watch, (State.FAILED, Reason.OOM), why, end)

    def _adopt(self, watch: WatchedAttempt, folder: str, started: StartRecord | None) -> None:
        if started is None:
            if watch.leash is None:
                self._look_again(watch, LOOK_AGAIN_S)  # it is about to write it
            return
        self.never_ran = 0
        watch.supervisor = started.pid
        if watch.pidfd is None:
            try:
                watch.pidfd = os.pidfd_open(started.pid)
            except ProcessLookupError:
                self._look_again(watch, LOOK_AGAIN_S)
                return
            if not rundir.lock_is_held(folder):  # then the pid may belong to another process by now
                os.close(watch.pidfd)
                watch.pidfd, watch.spoke = None, True
                self._look_again(watch, 0)
                return
        if watch.leash is None:
            self._waiter.add(watch.pidfd, lambda: self._ended_unheard(watch))

    def _ended_unheard(self, watch: WatchedAttempt) -> None:
        """Note that an adopted supervisor is gone: its pidfd is readable."""
        assert watch.pidfd is not None
        self._waiter.remove(watch.pidfd)
        watch.spoke = True

    def _end(self, job: Job, watch: WatchedAttempt, state: State, reason: Reason, end: Exit | None) -> None:
        """Record the end, or retry if that is due."""
        if (retry := self._retry(job, state, reason, end)) is not None:
            self._try_again(job, watch, (state, reason), retry.words, end, retry)
            return
        usage = self._usage.report(job)
        self._jobs.ended(job, state, reason, end, usage)
        if job.spec.probe is not None:
            self._probes.ended(job, state, usage, (end.run_s or end.duration_s) if end else 0.0)
        self._on_end(job, state, end, watch.gone_at or time.monotonic())
        watch.attempt = -watch.attempt  # marks it as ended; it is forgotten after the commit
        log.info("job %s attempt %s: %s %s", job.id, job.attempt, state.value, reason.value)

    def _retry(self, job: Job, state: State, reason: Reason, end: Exit | None) -> backoff.Retry | None:
        """Use up a retry, by the box's setting or the job's own count. Return None if no retry is due."""
        if state is State.SUCCEEDED or (job.stop is not None and job.stop.reason is Reason.USER):
            return None
        if reason.value in self._retry_on and job.attempt <= BOX_RETRIES:
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
        self, job: Job, watch: WatchedAttempt, after: tuple[State, Reason], why: str, end: Exit | None,
        retry: backoff.Retry | None = None,
    ) -> None:  # fmt: skip
        """Queue the job for a new attempt with the same run id. The breaker counts only retries."""
        log.info("job %s attempt %s: %s, %s", job.id, job.attempt, after[1].value, why)
        self._jobs.back_to_queue(job, why, after, self._usage.report(job), end, retry)
        self._on_end(job, after[0] if retry else None, end, watch.gone_at or time.monotonic())
        watch.attempt = -watch.attempt  # marks it as ended; it is forgotten after the commit

    def _sweep_and_lose(self, job: Job, watch: WatchedAttempt, started: StartRecord | None) -> None:
        """Record a lost attempt once all its processes are gone, or cannot be killed: until then it keeps its GPUs."""
        boot_then = started.boot_id if started else self._jobs.boot_id(job)
        now = time.monotonic()
        watch.swept_since = watch.swept_since or now
        if boot_then == self._boot_id and self._strays(job, started):
            if now - watch.swept_since < UNSTOPPABLE_AFTER_S:
                self._look_again(watch, SWEEP_AGAIN_S)
                return
            log.error("job %s: processes that cannot be killed are left behind", job.id)
        folder = rundir.folder_of(self._home, job.id, job.attempt)
        shutil.rmtree(os.path.join(folder, rundir.SCRATCH), ignore_errors=True)  # left by a probe
        if job.spec.cpus or job.spec.ram_mib:
            cgroup.remove_leftover(job)
        if _is_being_preempted(job):
            self._requeue_preempted(job, watch, None)
        else:
            self._end(job, watch, *lost(boot_then, self._boot_id), None)

    def _strays(self, job: Job, started: StartRecord | None) -> bool:
        return bool(end_strays(job, started.pipe if started else None))

    def _give_back(self, job: Job, watch: WatchedAttempt) -> None:
        why = watch.trouble or "its supervisor ended before executing it"
        if job.stop is not None and not _is_being_preempted(job):
            self._end(job, watch, State.CANCELLED, job.stop.reason, None)
            return
        log.warning("job %s attempt %s never ran (%s); queued again", job.id, job.attempt, why)
        self._jobs.back_to_queue(job, why)
        watch.attempt = -watch.attempt
        self.never_ran += 1

    def _look_again(self, watch: WatchedAttempt, after_s: float) -> None:
        def look() -> bool:
            watch.spoke |= watch.attempt > 0  # it may have ended meanwhile
            return watch.spoke

        self._waiter.after(after_s, look)

    def _drop_leash(self, watch: WatchedAttempt) -> None:
        if watch.leash is not None:
            self._waiter.remove(watch.leash)
            os.close(watch.leash)
            watch.leash = None

    def _forget(self, job_id: int) -> None:
        watch = self._watches.pop(job_id, None)
        if watch is None:
            return
        self._drop_leash(watch)
        if watch.pidfd is not None:
            self._waiter.remove(watch.pidfd)
            os.close(watch.pidfd)

    def supervisor_pids(self) -> list[int]:
        """Return the supervisor pids of all attempts that we have seen running."""
        return [watch.supervisor for watch in self._watches.values() if watch.supervisor]

    def live(self) -> list[Live]:
        """Return the attempts with a known supervisor, except those that have ended or whose processes are gone."""
        return [
            Live(job_id, watch.attempt, watch.supervisor)
            for job_id, watch in self._watches.items()
            if watch.supervisor and watch.attempt > 0 and watch.gone_at is None
        ]


def _ran_s(job: Job, end: Exit | None) -> float:
    if end is not None:
        return end.duration_s
    return (clock.now() - job.started_at).total_seconds() if job.started_at else 0.0


def _is_being_preempted(job: Job) -> bool:
    return job.stop is not None and job.stop.reason is Reason.PREEMPTED
