"""The runner: one loop, with the steps of a tick in order.

It holds nothing that cannot be read again from the database and the run directories. So it may die at any
moment: jobs keep running, and the next runner continues where this one stopped.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import signal
import sys
import time
from typing import TYPE_CHECKING

from runner import clock, rundir
from runner.config import home
from runner.engines import attempt_spec
from runner.engines.local import LocalEngine
from runner.errors import OperatorError, TransientError
from runner.gpu.telemetry import Telemetry
from runner.gpu.usage_meter import Usage
from runner.loop.attempts import Attempts
from runner.loop.placement import Placement
from runner.loop.upkeep import Upkeep
from runner.model import Exit, Reason, State
from runner.notices import Drained
from runner.probing.probes import Probes
from runner.processes import doorbell, linux, process_lock
from runner.processes.doorbell import Doorbell
from runner.processes.interpreter import install_command
from runner.processes.waiter import Waiter
from runner.schedule.choice import Plan, choose, is_full
from runner.schedule.request import request_in
from runner.store import restoring
from runner.store.backup import Backup
from runner.store.box import Box, BoxKey, box_limits, keep_limits
from runner.store.connection import DATABASE, QueueLostError, StoreError, open_store
from runner.store.jobs import Jobs
from runner.store.measurements import Used
from runner.store.notices import Notices
from runner.store.scheduling_queries import CPU, Line
from runner.watchdogs.backup import BackupWatch
from runner.watchdogs.breaker import BreakerWatch
from runner.watchdogs.disk import DiskWatch
from runner.watchdogs.empty_queue import WhenEmpty
from runner.watchdogs.idle import IdleWatch
from runner.watchdogs.time_limit import TimeWatch

if TYPE_CHECKING:
    from runner.config.settings import Settings
    from runner.model import Job
    from runner.schedule.choice import Preemption, Start, Waiting
    from runner.schedule.request import Request

log = logging.getLogger(__name__)

PROBING_PERIOD_S, BUSY_PERIOD_S, IDLE_PERIOD_S = 0.5, 1.0, 2.0
TRY_AGAIN_S = 1.0
LOOK_AT_CLOCK_S = 60.0
LOOK_AT_FILE_S = 1.0
HOLD_AT_MOST_S = 30.0


class Runner:
    """Starts queued jobs on free GPUs and records how they end."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._leaving = False
        self._hold_until = 0.0
        self._sampler_checks = 0
        self._begins_seen = 0.0
        self._boot_id = linux.boot_id()

    def run(self) -> None:
        """Run until a signal says to leave."""
        with contextlib.ExitStack() as stack:
            self._open(stack)
            log.info("runner pid %s up: state in %s", os.getpid(), self._settings.home)
            try:
                self._serve()
            except QueueLostError:
                restoring.rescue(self._store)
                raise
            self._leave_usage()
            log.info("runner leaves; running jobs go on")

    def _serve(self) -> None:
        due = True
        while not self._leaving:
            if due:
                self.tick()
            due = self._waiter.wait()

    def tick(self) -> None:
        """Do everything that is due, in one transaction. Then start the claimed jobs and wake the others."""
        if os.fstat(self._lock).st_nlink == 0:
            raise OperatorError(f"The state folder {self._settings.home} was removed under the runner.")
        try:
            with self._store.transaction():
                self._recover_and_collect()
                self._idle_watch.judge()
                self._time_watch.judge(self._under_way)
                self._pass_on_stops()
                starts = self._schedule()
                self._see_what_is_over()
        except QueueLostError:
            raise
        except StoreError as error:
            log.error("%s", error)
            self._attempts.reconsider()
            self._idle_watch.reconsider()
            self._waiter.tick_in(TRY_AGAIN_S)
            return
        self._attempts.release_ended()
        for job, attempt, gpus in starts:
            self._start(job, attempt, gpus)
        self._when_empty.act()
        self._report()

    def _leave_usage(self) -> None:
        """Save GPU usage and idle state for the next runner."""
        try:
            with self._store.transaction():
                self._usage.save(now=True)
                self._idle_watch.save()
        except StoreError as error:
            log.error("%s", error)

    def leave(self) -> None:
        """End the loop. Start nothing more and let jobs run."""
        self._leaving = True

    # -- the steps of a tick -----------------------------------------------------------------------

    def _recover_and_collect(self) -> None:
        self._under_way = self._jobs.under_way()
        self._usage.follow(self._under_way)
        self._idle_watch.follow(self._under_way)
        unexecuted = self._attempts.never_ran
        self._attempts.collect(self._under_way)
        if self._attempts.never_ran > unexecuted:
            self._hold()
        self._placement.watch_health()

    def _pass_on_stops(self) -> None:
        self._attempts.pass_on_stops(self._under_way)
        self._attempts.pass_on_limits(self._under_way)

    def _schedule(self) -> list[tuple[Job, int, tuple[str, ...]]]:
        """Claim the jobs that may start now, and preempt others for them. Return job, attempt and GPUs of each."""
        self._let_begin()
        trial, wanted = self._may_start()
        self._telemetry.set_period(self._period_s(bool(wanted)))
        if not wanted:
            return []
        leases, running = self._line.leases(), self._line.running()
        rooms = self._placement.rooms(leases, {row.id for row in self._under_way if row.probing})
        cpu_slots = self._placement.free_cpu_slots(leases)
        full = is_full(rooms, cpu_slots if any(not request.gpus for request in wanted) else (), running)
        queued = [] if full else trial or self._line.waiting(self._placement.slots + self._settings.cpu_slots)
        plan = choose(queued, rooms, cpu_slots, running, box_limits(self._store), explain=False) if queued else Plan()
        if trial:  # start only one of them
            plan = Plan(plan.starts[:1])
            self._breaker.tries(plan.starts[0].job_id if plan.starts else None)
        for preemption in plan.preemptions:
            self._preempt(preemption)
        asked = {waiting.id: waiting.request for waiting in queued}
        return [claimed for start in plan.starts if (claimed := self._claim(start, asked[start.job_id]))]

    def _may_start(self) -> tuple[list[Waiting], list[Request]]:
        """Return the jobs that may be tried if the queue is paused, and the resources that queued jobs ask for."""
        now = time.monotonic()
        if now < self._hold_until:
            self._waiter.tick_in(self._hold_until - now)
            return [], []
        if self._box.any(BoxKey.PAUSED, BoxKey.DRAINING):
            trial = self._breaker.candidates()
            return trial, [one.request for one in trial]
        return [], [request_in(lane) for lane in self._line.lanes()]

    def _let_begin(self) -> None:
        """Release jobs whose begin time has come. Look once a minute at least: the wall clock may be set meanwhile."""
        after_s = self._line.let_begin()
        now = time.monotonic()
        if after_s is not None and not now < self._begins_seen <= now + after_s:
            wait_s = min(after_s, LOOK_AT_CLOCK_S)
            self._begins_seen = now + wait_s
            self._waiter.tick_in(wait_s)

    def _preempt(self, preemption: Preemption) -> None:
        """Stop a job to make room. It has its grace period to save its state, and is queued again."""
        job = self._jobs.get(preemption.job_id)
        if job is not None and self._jobs.ask_to_stop(job, Reason.PREEMPTED, f"#{preemption.for_id}"):
            log.info("job %s is preempted for job %s", job.id, preemption.for_id)
            self._waiter.tick_in(0)

    def _period_s(self, queued: bool) -> float:
        """Return how often to read the GPUs, in seconds: most often while a job is probed."""
        if any(row.probing for row in self._under_way):
            return PROBING_PERIOD_S
        return BUSY_PERIOD_S if self._under_way or queued else IDLE_PERIOD_S

    def _see_what_is_over(self) -> None:
        """Save usage, and check for an empty queue, a full disk, a failing backup and the end of a drain."""
        self._usage.save()
        self._when_empty.look()
        self._disk_watch.look()
        self._backup_watch.look()
        self._tell_if_drained()

    def _tell_if_drained(self) -> None:
        draining = self._box.get(BoxKey.DRAINING)
        if draining and not draining.get("told") and not self._jobs.under_way():
            self._box.set(BoxKey.DRAINING, {**draining, "told": True})
            self._notices.add(Drained(by=draining["by"], since=draining["at"]))

    def _claim(self, start: Start, asked: Request) -> tuple[Job, int, tuple[str, ...]] | None:
        """Claim a job for a new attempt. Return None if it has left the queue or now asks for other resources."""
        leases = [(uuid or CPU, slot) for uuid, slot in start.slots]
        sums = self._usage.before(uuid for uuid, _ in start.slots)
        sums_kept = json.dumps(sums.to_json())
        attempt = self._jobs.claim(start.job_id, leases, self._boot_id, sums_kept, start.memory_mib, asked)
        job = self._jobs.get(start.job_id)
        if attempt is None or job is None:
            return None
        self._usage.begin(job.id, attempt, job.gpus, sums)
        return job, attempt, job.gpus

    def _start(self, job: Job, attempt: int, gpus: tuple[str, ...]) -> None:
        leash = None
        try:
            folder = rundir.folder_of(self._settings.home, job.id, attempt)
            variables = self._jobs.environment(job.spec.environment)
            probe = self._probes.order(job, attempt, variables, self._usage.before_mib(job.id))
            spec, script = attempt_spec.order(job, attempt, gpus, variables, folder, self._settings, probe)
            leash = self._engine.start(folder, rundir.create(folder, spec, script))
        except (OSError, TransientError) as error:
            log.warning("job %s could not be started now: %s", job.id, error)
            self._hold()
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            # what was submitted can never be started: fail this job and go on with the others
            log.exception("job %s cannot be started", job.id)
            self._jobs.ended(job, State.FAILED, Reason.SPAWN, _unstartable(error))
            self._waiter.tick_in(0)
            return
        self._attempts.add(job.id, attempt, gpus, leash, job.spec.time_limit_s)
        if leash is None:
            self._waiter.tick_in(0)

    def _report(self) -> None:
        """Wake the bot and the backup thread."""
        doorbell.ring(self._settings.home, home.BOT_BELL)
        self._backup.changed()

    # -- helpers of the steps ----------------------------------------------------------------------

    def _hold(self) -> None:
        """Start nothing for a while, longer each time that attempts come back unexecuted."""
        self._hold_until = time.monotonic() + min(0.05 * 2 ** min(self._attempts.never_ran, 10), HOLD_AT_MOST_S)

    def _on_end(self, job: Job, state: State | None, end: Exit | None, ended_at: float) -> None:
        """Free the GPUs of an ended attempt and count it for the breaker, in the transaction that records the end."""
        self._placement.released(job.gpus, ended_at)
        if state is not None:
            self._breaker.on_end(job.id, state, end)

    # -- starting up -------------------------------------------------------------------------------

    def _open(self, stack: contextlib.ExitStack) -> None:
        settings = self._settings
        os.umask(0o077)
        self._store = open_store(settings.home, backup_dir=settings.backup_dir)
        stack.callback(self._store.close)
        self._lock = stack.enter_context(process_lock.held(settings.home, home.RUNNER_LOCK))
        restoring.forget_rescued(os.path.join(settings.home, DATABASE))
        self._jobs, self._notices, self._box = Jobs(self._store), Notices(self._store), Box(self._store)
        self._line = Line(self._store)
        self._waiter = Waiter()
        self._telemetry = Telemetry(settings.home, settings.gpus, on_restart=self._listen_to_sampler)
        stack.callback(self._telemetry.close)
        self._placement = Placement(
            settings, self._telemetry, self._waiter, self._notices, self._box, self._attempt_pids
        )
        self._usage = Usage(Used(self._store), self._telemetry)
        self._idle_watch = IdleWatch(settings, self._store, self._jobs, self._notices, self._box, self._telemetry)
        self._time_watch = TimeWatch(settings, self._store, self._jobs, self._notices, self._waiter)
        self._breaker = BreakerWatch(settings, self._store, self._jobs, self._notices, self._box, self._waiter)
        self._probes = Probes(settings, self._store, self._jobs, self._telemetry)
        self._attempts = Attempts(
            settings.home,
            self._jobs,
            self._waiter,
            self._on_end,
            self._telemetry,
            self._usage,
            self._probes,
            settings.retry_on,
        )
        stack.callback(self._attempts.close)
        self._engine = LocalEngine(settings.home, _open_more_files())
        stack.callback(self._engine.close)
        self._backup = Backup(self._store, settings.backup_dir)
        stack.callback(self._backup.close)
        self._when_empty = WhenEmpty(
            settings, self._store, self._jobs, self._notices, self._box, self._waiter, self._backup
        )
        self._upkeep = Upkeep(settings, self._waiter)
        self._disk_watch = DiskWatch(settings, self._box, self._notices, self._waiter)
        self._backup_watch = BackupWatch(self._backup, self._box, self._notices, self._waiter)
        self._bell = Doorbell(settings.home, home.RUNNER_BELL)
        stack.callback(self._bell.close)
        install_command(settings.home)
        with self._store.transaction():  # values that clients need
            self._box.set(BoxKey.SLOTS, settings.slots_per_gpu)
            self._box.set(BoxKey.CPU_SLOTS, settings.cpu_slots)
            shares = {"max_utilization": settings.free_utilization, "max_foreign_percent": settings.free_memory}
            self._box.set(BoxKey.FREE, shares)
            keep_limits(self._box, settings)
        self._listen()

    def _listen(self) -> None:
        self._waiter.add(self._bell.fileno(), self._bell.clear)
        self._waiter.add(self._engine.pidfd, self._replace_zygote)
        self._listen_to_sampler()
        self._look_at_file()
        hear, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
        self._waiter.add(hear, lambda: _discard(hear))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self.leave())

    def _listen_to_sampler(self) -> None:
        descriptor = self._telemetry.fileno()
        if descriptor is not None:
            self._waiter.add(descriptor, lambda: self._hear_sampler(descriptor))
        self._keep_sampler_alive()

    def _look_at_file(self) -> bool:
        """Raise if the database file is gone. Checked every second, even while nothing happens."""
        self._store.refuse_lost()
        self._waiter.after(LOOK_AT_FILE_S, self._look_at_file)
        return False

    def _hear_sampler(self, descriptor: int) -> None:
        self._telemetry.read()
        live = self._attempts.live()
        self._usage.read(live)
        self._idle_watch.read(live)
        if self._telemetry.fileno() is None:
            self._waiter.remove(descriptor)
            self._keep_sampler_alive()

    def _keep_sampler_alive(self) -> bool:
        self._sampler_checks += 1
        latest = self._sampler_checks  # a newer timer makes earlier ones void
        if (after_s := self._telemetry.keep_alive()) is not None and latest == self._sampler_checks:
            self._waiter.after(after_s, lambda: latest == self._sampler_checks and self._keep_sampler_alive())
        return False

    def _replace_zygote(self) -> bool:
        self._waiter.remove(self._engine.pidfd)
        self._waiter.after(self._engine.clean_up(), self._revive_zygote)
        return False

    def _revive_zygote(self) -> bool:
        try:
            self._engine.start_zygote()
        except OSError as error:
            log.error("no zygote can be started: %s", error)
            self._waiter.after(TRY_AGAIN_S, self._revive_zygote)
        else:
            self._waiter.add(self._engine.pidfd, self._replace_zygote)
        return False

    def _attempt_pids(self) -> list[int]:
        return self._attempts.supervisor_pids()


def _open_more_files() -> tuple[int, int]:
    """Raise our limit of open files, since each live job takes two. Return the old limit, which jobs get."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    return before


def _unstartable(error: Exception) -> Exit:
    why = str(error) if isinstance(error, ValueError) else f"what is stored of it makes no sense ({error!r})"
    at = clock.text(clock.now())
    return Exit(spawn_error=why, started_at=at, finished_at=at, duration_s=0.0)


def _discard(descriptor: int) -> None:
    os.read(descriptor, 64)


def main(settings: Settings) -> None:
    """Run the runner in this process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.raiseExceptions = False
    try:
        Runner(settings).run()
    finally:
        _let_go_of_a_closed_terminal()


def _let_go_of_a_closed_terminal() -> None:
    """Ignore a closed terminal: after a hang-up nobody can read our output, and that is no failure."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
