"""Say why jobs wait, in words. Asks the scheduler itself, so the answer is what the runner does."""

from __future__ import annotations

from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from runner import clock
from runner.api.pause_words import why_paused
from runner.gpu.availability import current_gpu_states, gpu_trouble
from runner.model import State
from runner.processes import process_lock
from runner.schedule.choice import Waiting, choose
from runner.schedule.request import request_in, request_of
from runner.schedule.room import CpuSlot
from runner.store.box import Box, BoxKey, box_limits
from runner.store.breaker_trials import Trials
from runner.store.dependencies import Dependencies
from runner.store.jobs import job_of
from runner.store.listing import Listing
from runner.store.scheduling_queries import CPU, Line
from runner.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from runner.model import Job
    from runner.schedule.choice import Plan
    from runner.store.connection import Store
    from runner.store.dependencies import Blocker

STARTS_NEXT = "starts next"
TRIED = f"{STARTS_NEXT}, and shows whether the paused queue may go on"
NAMED = 5  # held jobs listed in one sentence
NEXT_TIME_OF_YEAR = timedelta(days=300)  # within this time, day and month are clear without the year


class QueuedJob(NamedTuple):
    """A queued job, with what is needed to say why it waits."""

    job: Waiting
    held_by: str | None
    begin_at: datetime | None
    retry: str = ""  # the retry that it waits for until then


class WaitingReasons:
    """Why jobs of one state folder wait, and why the whole queue does. `typed` shows a command as one types it."""

    def __init__(self, folder: str, store: Store, typed: Callable[[str], str]) -> None:
        self._home, self._store, self._typed = folder, store, typed
        self._box, self._line = Box(store), Line(store)

    def of(self, jobs: Iterable[Job]) -> dict[int, str]:
        """Return why each queued job among these waits, also in the queue of another engine."""
        jobs = list(jobs)
        elsewhere = self._elsewhere([job.id for job in jobs if job.state is State.STARTING])
        return self._of([queued_job(job) for job in jobs if job.state is State.QUEUED]) | elsewhere

    def of_rows(self, rows: Iterable[Any]) -> dict[int, str]:
        """Return the same from the rows of jobs: faster for long lists."""
        rows = list(rows)
        elsewhere = self._elsewhere([row["id"] for row in rows if row["state"] == State.STARTING.value])
        return self._of([_queued_job_in(row) for row in rows if row["state"] == State.QUEUED.value]) | elsewhere

    def _elsewhere(self, starting: Collection[int]) -> dict[int, str]:
        """Return what another engine says about jobs that it has not started yet."""
        said = ((self._box.get(BoxKey.ENGINE) or {}).get("said") or {}) if starting else {}
        return {job_id: said[str(job_id)] for job_id in starting if str(job_id) in said}

    def _of(self, queued: Sequence[QueuedJob]) -> dict[int, str]:
        if not queued:
            return {}
        blockers = Dependencies(self._store).of(entry.job.id for entry in queued)
        whys = {entry.job.id: self._why_not_ready(entry, blockers.get(entry.job.id, [])) for entry in queued}
        reasons = {job_id: why for job_id, why in whys.items() if why}
        ready = [entry.job for entry in queued if entry.job.id not in reasons]
        general = self.why_nothing_starts()
        if general or not ready:
            trial = self.trial_job() if general else None
            return reasons | {job.id: TRIED if job.id == trial else general or "" for job in ready}
        plan, trouble = self._plan(ready), gpu_trouble(self._home)
        return reasons | {
            job.id: trouble if trouble and job.request.gpus else plan.waiting.get(job.id, STARTS_NEXT) for job in ready
        }

    def trial_job(self) -> int | None:
        """Return the job that tries, or is about to try, a queue that the breaker paused; None if there is none."""
        if not self._box.any(BoxKey.PAUSED) or not process_lock.runner_is_up(self._home):
            return None
        with self._store.transaction():  # otherwise the runner could claim the job between two reads
            pause = self._box.pause()
            if pause is None or pause.jobs is None or self._box.any(BoxKey.DRAINING):
                return None
            if pause.trial is not None:
                return pause.trial
            waiting = Trials(self._store).now(pause)
            starts = self._plan(waiting, alone=True).starts if waiting else ()
            return starts[0].job_id if starts else None

    def _plan(self, jobs: Sequence[Waiting], *, alone: bool = False) -> Plan:
        """Return what the scheduler would do with these jobs now, alone or together with the front of the queue."""
        leases, engine = self._line.leases(), self._box.get(BoxKey.ENGINE)
        if engine is not None:
            return self._plan_for(engine, jobs)
        cpu_slots = int(self._box.get(BoxKey.CPU_SLOTS, 1))
        cpu_taken = sum(lease.resource == CPU for lease in leases)
        rooms = current_gpu_states(self._home, self._box, leases).rooms()
        # GPUs may be reserved for jobs at the front, so these count even if nobody asked about them.
        front = [] if alone else self._line.waiting(per_lane=cpu_slots + sum(room.slots for room in rooms))
        queued = {job.id: job for job in (*jobs, *front)}
        free_cpu_slots = [CpuSlot(slot) for slot in range(cpu_taken, cpu_slots)]
        return choose(list(queued.values()), rooms, free_cpu_slots, self._line.running(), box_limits(self._store))

    def _plan_for(self, engine: Mapping[str, Any], jobs: Sequence[Waiting]) -> Plan:
        """Return the same for an engine that finds the GPUs itself: its queue has places for some jobs."""
        taken = sum(lease.resource == CPU for lease in self._line.leases())
        places = [CpuSlot(slot) for slot in range(taken, engine["ahead"] or taken + len(jobs))]
        front = self._line.waiting(per_lane=max(1, len(places)))
        queued = list({job.id: job for job in (*jobs, *front)}.values())
        return choose(queued, (), places, self._line.running(), box_limits(self._store), slots_only=True)

    def _why_not_ready(self, entry: QueuedJob, blockers: Sequence[Blocker]) -> str | None:
        """Return why a job may not start even if there is room; None if it may."""
        if entry.held_by:
            return f"held by {entry.held_by}; {self._typed(f'release {entry.job.id}')} lets it start"
        if blockers:
            return "after " + ", ".join(f"#{other.job_id}" for other in blockers)
        return begin_words(entry)

    def why_nothing_starts(self) -> str | None:
        """Return why no job at all starts: no runner, a pause or a drain; None if jobs may start."""
        return self.why_paused() if process_lock.runner_is_up(self._home) else "no runner is up"

    def why_paused(self) -> str | None:
        """Return why no more jobs start (paused or draining) and how to resume; None if jobs may start."""
        return why_paused(self._box, self._typed)

    def why_blocked(self, job_ids: Collection[int]) -> str | None:
        """Return the pause, drain or hold that a person must lift before all of these can end; None without one."""
        if general := self.why_paused():
            return general
        held = [number for number in Listing(self._store).held() if number in job_ids]
        if not held:
            return None
        named = ", ".join(map(str, held[:NAMED])) + (" …" if len(held) > NAMED else "")
        release, kill = self._typed(f"release {held[0]}"), self._typed(f"kill {held[0]}")
        return f"held until somebody releases them: job {named}; {release} or {kill}"


def queued_job(job: Job) -> QueuedJob:
    """Return a queued job in the form that the scheduler needs, with why it may not be ready."""
    waited_s = (clock.now() - job.submitted_at).total_seconds()
    waiting = Waiting(job.id, request_of(job.spec, untried=job.untried), job.position, waited_s)
    return QueuedJob(waiting, job.held_by, job.begin_at, _retry_words(job))


def _retry_words(job: Job) -> str:
    """Return which retry a job waits for; empty if it waits for the begin time in its spec."""
    if not job.attempt or job.begin_at == clock.moment(job.spec.begin_at):
        return ""
    used = job.spec.retries - job.retries_left
    return f"retry {used} of {job.spec.retries}" if used > 0 else "retry"


def begin_words(entry: QueuedJob) -> str | None:
    """Return when a job may start, in words; None if its begin time has passed or it has none."""
    now = clock.now()
    if entry.begin_at is None or entry.begin_at <= now:
        return None
    if entry.retry:
        return f"{entry.retry} in {format_duration(ceil((entry.begin_at - now).total_seconds()))}"
    day = "%d %b" if entry.begin_at - now < NEXT_TIME_OF_YEAR else "%d %b %Y"
    return f"begins at {clock.local(entry.begin_at).strftime(f'%H:%M on {day}')}{clock.zone_note()}"


def _queued_job_in(row: Any) -> QueuedJob:
    """Return the same as `queued_job`, from a job's row."""
    if row["begin_at"]:
        return queued_job(job_of(row))
    submitted_at = clock.moment(row["submitted_at"])
    assert submitted_at is not None
    waited_s = (clock.now() - submitted_at).total_seconds()
    return QueuedJob(Waiting(row["id"], request_in(row["lane"]), row["position"], waited_s), row["held_by"], None)
