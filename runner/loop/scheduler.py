"""Starts queued jobs: claims those that may start now, preempts others for them, and hands them to the engine."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from runner import clock, rundir
from runner.engines import attempt_spec
from runner.engines.base import Order
from runner.errors import TransientError
from runner.model import Exit, Reason, Ref, State
from runner.schedule.choice import TRIALS_AHEAD, Plan, choose, is_full
from runner.schedule.request import request_in, request_of
from runner.step import Step
from runner.store.box import BoxKey, box_limits
from runner.store.scheduling_queries import cpu_of

if TYPE_CHECKING:
    from runner.loop.attempts import Attempts
    from runner.loop.placement import Placement
    from runner.loop.usage import Usage
    from runner.model import Job
    from runner.probing.probes import Probes
    from runner.schedule.choice import Preemption, Start, Waiting
    from runner.schedule.request import Request
    from runner.step import Context
    from runner.watchdogs.breaker import BreakerWatch

log = logging.getLogger(__name__)

PROBING_PERIOD_S, BUSY_PERIOD_S, IDLE_PERIOD_S = 0.5, 1.0, 2.0
LOOK_AT_CLOCK_S = 60.0
HOLD_AT_MOST_S = 30.0
PER_LANE = 1000  # jobs to look at in one tick


class ClaimedJob(NamedTuple):
    """A job that was claimed for a new attempt."""

    job: Job
    attempt: int
    gpus: tuple[str, ...]
    node: str | None  # as the engine knows it


class Scheduler(Step):
    """Fills free slots with queued jobs."""

    def __init__(
        self, context: Context, placement: Placement, breaker: BreakerWatch, usage: Usage, probes: Probes,
        attempts: Attempts,
    ) -> None:  # fmt: skip
        self._context, self._placement, self._breaker = context, placement, breaker
        self._usage, self._probes, self._attempts = usage, probes, attempts
        self._claims: list[ClaimedJob] = []
        self._never_ran = 0
        self._hold_until = 0.0
        self._begins_seen = 0.0
        self._trials_ahead = 0  # trials that were started since the last start of a job

    # -- in the transaction ------------------------------------------------------------------------

    def tick(self) -> None:
        """ClaimedJob the jobs that may start now, and preempt others for them."""
        self._claims = []
        if self._attempts.never_ran > self._never_ran:
            self._hold()
        self._never_ran = self._attempts.never_ran
        self._let_begin()
        trial, wanted = self._may_start()
        self._context.engine.set_period(self._period_s(bool(wanted)))
        if not wanted:
            return
        queued, plan = self._decide(trial, wanted)
        if trial:  # start only one of them
            plan = Plan(plan.starts[:1])
            self._breaker.tries(plan.starts[0].job_id if plan.starts else None)
        for preemption in plan.preemptions:
            self._preempt(preemption)
        asked = {waiting.id: waiting.request for waiting in queued}
        self._claims = [claim for start in plan.starts if (claim := self._claim(start, asked[start.job_id]))]
        for claim in self._claims:
            self._trials_ahead = self._trials_ahead + 1 if claim.job.untried else 0

    def _decide(self, trial: list[Waiting], wanted: list[Request]) -> tuple[list[Waiting], Plan]:
        context, placement = self._context, self._placement
        leases, running = context.line.leases(), context.line.running()
        rooms = placement.rooms(leases, {row.id for row in context.live() if row.probing})
        cpu_slots = placement.free_cpu_slots(leases)
        places = context.engine.can.places
        if is_full(rooms, cpu_slots if places or any(not request.gpus for request in wanted) else (), running):
            return [], Plan()
        queued = trial or context.line.waiting(min(placement.slots + placement.cpu_slots, PER_LANE))
        if not queued:
            return [], Plan()
        limits = box_limits(context.store, with_use=len({waiting.request.owner for waiting in queued}) > 1)
        ahead = TRIALS_AHEAD - self._trials_ahead
        return queued, choose(queued, rooms, cpu_slots, running, limits, explain=False, ahead=ahead, slots_only=places)

    def _may_start(self) -> tuple[list[Waiting], list[Request]]:
        """Return the jobs that may be tried if the queue is paused, and the resources that queued jobs ask for."""
        now = time.monotonic()
        if now < self._hold_until:
            self._context.waiter.tick_in(self._hold_until - now)
            return [], []
        if self._context.box.any(BoxKey.PAUSED, BoxKey.DRAINING):
            trial = self._breaker.candidates()
            return trial, [waiting.request for waiting in trial]
        return [], [request_in(lane) for lane in self._context.line.lanes()]

    def _let_begin(self) -> None:
        """Release jobs whose begin time has come. Look once a minute at least: the wall clock may be set meanwhile."""
        after_s = self._context.line.let_begin()
        now = time.monotonic()
        if after_s is not None and not now < self._begins_seen <= now + after_s:
            wait_s = min(after_s, LOOK_AT_CLOCK_S)
            self._begins_seen = now + wait_s
            self._context.waiter.tick_in(wait_s)

    def _preempt(self, preemption: Preemption) -> None:
        """Stop a job to make room. It has its grace period to save its state, and is queued again."""
        job = self._context.jobs.get(preemption.job_id)
        if job is not None and self._context.jobs.ask_to_stop(job, Reason.PREEMPTED, f"#{preemption.for_id}"):
            log.info("job %s is preempted for job %s", job.id, preemption.for_id)

    def _period_s(self, queued: bool) -> float:
        """Return how often to read the GPUs, in seconds: most often while a job is probed."""
        live = self._context.live()
        if any(row.probing for row in live):
            return PROBING_PERIOD_S
        return BUSY_PERIOD_S if live or queued else IDLE_PERIOD_S

    def _claim(self, start: Start, asked: Request) -> ClaimedJob | None:
        """ClaimedJob a job for a new attempt. Return None if it has left the queue or now asks for other resources."""
        jobs = self._context.jobs
        node = self._context.nodes()[start.node]
        leases = [(uuid or cpu_of(node.name), slot) for uuid, slot in start.slots]
        sums = self._usage.before(uuid for uuid, _ in start.slots)
        attempt = jobs.claim(
            start.job_id, leases, node.boot_id or "", json.dumps(sums.to_json()), start.memory_mib, asked
        )
        job = jobs.get(start.job_id)
        if attempt is None or job is None:
            return None
        self._usage.begin(job.id, attempt, job.gpus, sums)
        return ClaimedJob(job, attempt, job.gpus, node.name)

    def _hold(self) -> None:
        """Start nothing for a while, longer each time that attempts come back unexecuted."""
        self._hold_until = time.monotonic() + min(0.05 * 2 ** min(self._attempts.never_ran, 10), HOLD_AT_MOST_S)

    # -- after the commit --------------------------------------------------------------------------

    def committed(self) -> None:
        """Start what was claimed."""
        for claim in self._claims:
            self._start(claim)
        self._claims = []

    def _start(self, claim: ClaimedJob) -> None:
        job, started = claim.job, False
        ref = Ref(job.id, claim.attempt, job.run_id)
        try:
            self._context.engine.start(self._order(claim, ref))
            started = True
        except (OSError, TransientError) as error:
            log.warning("job %s could not be started now: %s", job.id, error)
            self._hold()
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            # what was submitted can never be started: fail this job and go on with the others
            log.exception("job %s cannot be started", job.id)
            self._context.jobs.ended(job, State.FAILED, Reason.SPAWN, _unstartable(error))
            self._context.waiter.tick_in(0)
            return
        self._attempts.add(ref, job.spec.time_limit_s, started=started)
        if not started:
            self._context.waiter.tick_in(0)

    def _order(self, claim: ClaimedJob, ref: Ref) -> Order:
        job, settings = claim.job, self._context.settings
        folder = rundir.folder_of(settings.run_root, ref.job_id, ref.attempt)
        variables = self._context.jobs.environment(job.spec.environment)
        probe = self._probes.order(job, ref.attempt, variables, self._usage.before_mib(job.id))
        spec, script = attempt_spec.order(job, ref.attempt, claim.gpus, variables, folder, settings, probe)
        return Order(ref, spec, script, claim.gpus, claim.node, request_of(job.spec), job.spec.slurm)


def _unstartable(error: Exception) -> Exit:
    why = str(error) if isinstance(error, ValueError) else f"what is stored of it makes no sense ({error!r})"
    at = clock.text(clock.now())
    return Exit(spawn_error=why, started_at=at, finished_at=at, duration_s=0.0)
