"""Read the queue: jobs, why they wait, GPUs, output, usage, the forecast."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from runner import clock, rundir
from runner.api.job_json import described, described_row
from runner.config import home
from runner.errors import NoSuchJobError, UserError
from runner.gpu.published import read_published
from runner.model import Job, Phase, State
from runner.processes import process_lock
from runner.schedule.choice import Waiting, choose
from runner.schedule.request import request_in, request_of
from runner.store.audit import Audit
from runner.store.box import WHEN_EMPTY, Box
from runner.store.box_limits import box_limits
from runner.store.breaker_trials import Trials
from runner.store.connection import open_store
from runner.store.dependencies import Dependencies
from runner.store.gpu_usage import Used
from runner.store.groups import Groups
from runner.store.jobs import Jobs, job_of
from runner.store.listing import UNFINISHED, Listing
from runner.store.notices import Outbox
from runner.store.scheduling_queries import CPU, Line
from runner.store.watchdog_state import Watches
from runner.store.workspaces import Workspaces
from runner.supervisor.log_reader import Log
from runner.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from runner.api.outlook import Foresight, Outlook
    from runner.gpu.standing import Standing
    from runner.model import Snapshot
    from runner.schedule.choice import Plan
    from runner.store.dependencies import Blocker
    from runner.store.durations import Known
    from runner.store.listing import Overview
    from runner.store.scheduling_queries import Lease

RECENT = timedelta(hours=24)
STARTS_NEXT = "starts next"
TRIED = f"{STARTS_NEXT}, and shows whether the paused queue may go on"
NAMED = 5  # held jobs listed in one sentence
NEXT_TIME_OF_YEAR = timedelta(days=300)  # within this time, day and month are clear without the year


def at_the_terminal(words: str) -> str:
    """Return a command as one types it in the terminal. The chat has its own function for this."""
    return f"`nightshift {words}`"


class Asked(NamedTuple):
    """A queued job, with what is needed to say why it waits."""

    job: Waiting
    held_by: str | None
    begin_at: datetime | None
    retry: str = ""  # the retry that it waits for until then


class View:
    """The queue of one state folder, for reading."""

    def __init__(
        self, folder: str | None = None, *, actor: str, typed: Callable[[str], str] = at_the_terminal,
        begin: bool = False,
    ) -> None:  # fmt: skip
        self.home = folder or home.state_folder()
        self.actor = actor
        self._typed = typed
        self.store = open_store(self.home, backup_dir=home.backup_folder(), begin=begin)
        self.jobs, self.outbox, self.box = Jobs(self.store), Outbox(self.store), Box(self.store)
        self.audit, self.workspaces = Audit(self.store), Workspaces(self.store)
        self.line, self.groups = Line(self.store), Groups(self.store)
        self.listing, self.watches, self.used = Listing(self.store), Watches(self.store), Used(self.store)
        self._foresight: Foresight | None = None

    def job(self, job_id: int) -> Job:
        """Return one job. Raise NoSuchJobError if there is none with this number."""
        found = self.jobs.get(job_id)
        if found is None:
            raise NoSuchJobError(f"There is no job {job_id}. {self._typed('ls')} lists the jobs there are.")
        return found

    def describe(self, jobs: Iterable[Job]) -> list[dict[str, Any]]:
        """Return jobs as dicts with the keys of the JSON output."""
        jobs = list(jobs)
        reasons = self.waiting_reasons(jobs)
        starts = self.outlook().described() if reasons else {}
        return [described(job, reasons.get(job.id), starts.get(job.id)) for job in jobs]

    def describe_rows(self, rows: Sequence[Any]) -> Iterator[dict[str, Any]]:
        """Yield the same from the rows of jobs, one by one: faster for long lists."""
        queued = [row for row in rows if row["state"] == State.QUEUED.value]
        reasons = self._reasons([_asked_in(row) for row in queued])
        starts = self.outlook().described() if reasons else {}
        for row in rows:
            yield described_row(row, reasons.get(row["id"]), starts.get(row["id"]))

    def waiting_reasons(self, jobs: Iterable[Job]) -> dict[int, str]:
        """Return why each queued job among these waits."""
        return self._reasons([asked(job) for job in jobs if job.state is State.QUEUED])

    def _reasons(self, queued: Sequence[Asked]) -> dict[int, str]:
        if not queued:
            return {}
        blockers = Dependencies(self.store).of(one.job.id for one in queued)
        held = {one.job.id: why for one in queued if (why := self._why_not_ready(one, blockers.get(one.job.id, [])))}
        queued = [one for one in queued if one.job.id not in held]
        general = self._why_nothing_starts()
        if general or not queued:
            tried = self.tried_next() if general else None
            return held | {one.job.id: TRIED if one.job.id == tried else general or "" for one in queued}
        plan, blind = self._plan([one.job for one in queued]), self.gpu_trouble()
        return held | {
            one.job.id: blind if blind and one.job.request.gpus else plan.waiting.get(one.job.id, STARTS_NEXT)
            for one in queued
        }

    def tried_next(self) -> int | None:
        """Return the job that tries, or is about to try, a queue that the breaker paused; None if there is none."""
        if not self.box.get("paused") or not self.runner_is_up():
            return None
        with self.store.transaction():  # otherwise the runner could claim the job between two reads
            paused = self.box.get("paused")
            if not paused or "jobs" not in paused or self.box.get("draining"):
                return None
            if paused["trial"] is not None:
                return int(paused["trial"])
            waiting = Trials(self.store).now(paused)
            starts = self._plan(waiting, alone=True).starts if waiting else ()
            return starts[0].job_id if starts else None

    def _plan(self, wanted: Sequence[Waiting], *, alone: bool = False) -> Plan:
        """Return what the scheduler would do with these jobs now, alone or together with the front of the queue."""
        leases = self.leases()
        cpu_slots = int(self.box.get("cpu slots", 1))
        cpu_taken = sum(lease.resource == CPU for lease in leases)
        rooms = self._standing(leases).rooms()
        # GPUs may be reserved for jobs at the front, so these count even if nobody asked about them.
        front = [] if alone else self.line.waiting(per_lane=cpu_slots + sum(room.slots for room in rooms))
        asked_for = {one.id: one for one in (*wanted, *front)}
        free_cpu_slots = range(cpu_taken, cpu_slots)
        return choose(list(asked_for.values()), rooms, free_cpu_slots, self.line.running(), box_limits(self.store))

    def outlook(self) -> Outlook:
        """Return the forecast: when queued jobs start, and when the queue is empty."""
        if self._foresight is None:
            from runner.api.outlook import Foresight  # imported only when needed

            self._foresight = Foresight()
        leases = self.leases()
        rooms, cpu_slots = self._standing(leases).rooms(), int(self.box.get("cpu slots", 1))
        stands_still = self._why_nothing_starts() is not None
        return self._foresight.outlook(self.store, rooms, cpu_slots, leases, stands_still=stands_still)

    def takes(self, job_id: int) -> Known:
        """Return what is known about how long a job takes."""
        from runner.store.durations import Durations

        return Durations(self.store).of([job_id])[job_id]

    def leases(self) -> list[Lease]:
        """Return all leases."""
        return self.line.leases()

    def _why_not_ready(self, one: Asked, blockers: Sequence[Blocker]) -> str | None:
        """Return why a job may not start even if there is room; None if it may."""
        if one.held_by:
            return f"held by {one.held_by}; {self._typed(f'release {one.job.id}')} lets it start"
        if blockers:
            return "after " + ", ".join(f"#{other.job_id}" for other in blockers)
        return begins(one)

    def _why_nothing_starts(self) -> str | None:
        return self.held() if self.runner_is_up() else "no runner is up"

    def held(self) -> str | None:
        """Return why no more jobs start (paused or draining) and how to resume; None if jobs may start."""
        paused = self.box.get("paused")
        goes_on = f"{self._typed('resume')} goes on"
        if paused and paused["by"] == "breaker":
            return f"the queue is paused, because {paused['why']}{_how_it_is_tried(paused)}; {goes_on}"
        if paused:
            return f"the queue is paused by {paused['by']}; {goes_on}"
        if self.box.get("draining"):
            return f"the box is draining, and no more jobs start; {goes_on}"
        return None

    def held_back(self, job_ids: Collection[int]) -> str | None:
        """Return the pause, drain or hold that a person must lift before all of these can end; None without one."""
        if general := self.held():
            return general
        held = [number for number in self.listing.held() if number in job_ids]
        if not held:
            return None
        named = ", ".join(map(str, held[:NAMED])) + (" …" if len(held) > NAMED else "")
        release, kill = self._typed(f"release {held[0]}"), self._typed(f"kill {held[0]}")
        return f"held until somebody releases them: job {named}; {release} or {kill}"

    def when_empty(self) -> dict[str, Any] | None:
        """Return the command due because the queue is empty, with `due_at` (None while paused); None without one."""
        due = self.box.get(WHEN_EMPTY)
        return None if due is None or due["cancelled_by"] or due["ran_at"] else dict(due)

    def snapshot(self) -> tuple[Snapshot, float] | None:
        """Return the last known state of the GPUs and its age in seconds; None if there is none."""
        return read_published(self.home)

    def gpu_trouble(self) -> str | None:
        """Return the driver's error if not even the list of GPUs is known; None if it is, or the box has no GPUs."""
        found = self.snapshot()
        return found[0].trouble if found and not found[0].gpus else None

    def gpus(self) -> list[dict[str, Any]]:
        """Return the GPUs as dicts for the JSON output; values that are unknown or out of date are None."""
        return self._standing(self.leases()).described()

    def _standing(self, leases: Sequence[Lease]) -> Standing:
        from runner.gpu.standing import Rules, Standing

        free = self.box.get("free", {})
        return Standing(self.snapshot(), leases, Rules(slots=int(self.box.get("slots", 1)), **free))

    def log(self, job_id: int, attempt: int | None = None) -> Log:
        """Return the output of a job's latest attempt, or of the given one."""
        job = self.job(job_id)
        number = attempt or job.attempt
        if number == 0:
            raise UserError(f"Job {job_id} has not started yet: there is no output.")
        return Log(rundir.folder_of(self.home, job_id, number))

    def last_log_at(self, job_id: int) -> datetime | None:
        """Return when the output of the latest attempt last changed; None if there is no output."""
        job = self.job(job_id)
        folder = rundir.folder_of(self.home, job.id, job.attempt)
        times = [_changed_at(os.path.join(folder, name)) for name in (rundir.OUTPUT, *rundir.TAILS)]
        return max((moment for moment in times if moment), default=None)

    def evidence(self, job_id: int) -> dict[str, Any] | None:
        """Return the watchdogs' evidence against a job; None if there is none."""
        found = self.watches.of([job_id]).get(job_id)
        return found.evidence if found else None

    def watched(self, job_id: int) -> dict[str, Any] | None:
        """Return what the watchdogs last stored about a job, and who kept it; None if nothing is stored."""
        found = self.watches.of([job_id]).get(job_id)
        if found is None:
            return None
        kept = {"by": found.keep.by, "until": found.keep.until_at} if found.keep else None
        return {"idle": found.state.get("why"), "kept": kept, "evidence": found.evidence}

    def usage(self, job_id: int) -> dict[str, Any] | None:
        """Return the GPU usage of the latest attempt, so far or in total; None if unknown."""
        job = self.job(job_id)
        return self.used.of(job.id, job.attempt)

    def probe(self, job_id: int) -> dict[str, Any] | None:
        """Return how the batch of the latest attempt was found, or how far the probing is; None without a probe."""
        job = self.job(job_id)
        if job.spec.probe is None or not job.attempt:
            return None
        live = rundir.read(rundir.folder_of(self.home, job.id, job.attempt), rundir.PROBE)
        record = self.jobs.probe(job.id, job.attempt) if job.phase is not Phase.PROBING else live
        if not record:
            return None
        from runner.batch import Plan, bars, detail, summary

        plan = Plan.from_json(record["plan"])
        used = (self.used.of(job.id, job.attempt) or {}).get("peak_memory_mib") if job.state.final else None
        return {
            "said": summary(plan, record["about"]["total_mib"], used, over=job.state.final),
            "detail": detail(plan),
            "bars": bars(plan) if plan.points or plan.line else [],
            "batch": plan.batch,
            "points": [list(point) for point in plan.points],
            "line": list(plan.line) if plan.line else None,
            "expected_mib": plan.expected_mib,
            "margin": plan.settings.margin,
            "budget_mib": plan.budget_mib,
            "too_large": plan.too_large,
            "seconds": plan.probed_s,
            "restarts": plan.restarts,
        }

    def environment_of(self, job: Job) -> dict[str, str]:
        """Return the environment variables of a job, as far as they can be read now. They may contain secrets."""
        return {**self.jobs.environment(job.spec.environment), **self.env_file_of(job), **job.spec.env}

    def env_file_of(self, job: Job) -> dict[str, str]:
        """Return the variables from a job's env file, which is where secrets belong; empty if it cannot be read."""
        from runner.config.env_file import read_env_file

        try:
            return read_env_file(job.spec.env_file) if job.spec.env_file else {}
        except UserError:
            return {}

    def unfinished_of(self, owner: str) -> list[int]:
        """Return the numbers of an owner's queued and live jobs."""
        return self.listing.unfinished_of(owner)

    def unfinished(
        self, *, owner: str | None = None, group: str | None = None, states: Collection[State] = UNFINISHED
    ) -> list[int]:
        """Return the numbers of queued and live jobs: all, or those of one owner, one group or these states."""
        return self.listing.unfinished(owner=owner, group=group, states=states)

    def queued_of(self, owner: str) -> int:
        """Return how many queued jobs an owner has."""
        return self.listing.queued_of(owner)

    def overview(self) -> Overview:
        """Count jobs that are ready, not ready, live, and that ended in the last 24 hours."""
        return self.listing.overview(clock.text(clock.now() - RECENT))

    def runner_is_up(self) -> bool:
        """Return whether a runner is up for this state folder."""
        return process_lock.holder(self.home, home.RUNNER_LOCK) is not None


def _how_it_is_tried(paused: Mapping[str, Any]) -> str:
    """Return, in words, which job tries a queue that the breaker paused, and when; empty if none does."""
    if paused.get("trial"):
        return f", and #{paused['trial']} shows whether it may go on"
    if not paused.get("again"):
        return ""
    due = clock.moment(paused["try_at"])
    if due is None:
        return ", and one job is tried as soon as it can start"
    at = f"at {due.astimezone():%H:%M}"
    if paused["tries"]:
        return f", and one job is tried {at}"
    return f", and a job of another kind is tried at once, or one like them {at}"


def asked(job: Job) -> Asked:
    """Return a queued job in the form that the scheduler needs, with why it may not be ready."""
    waited_s = (clock.now() - job.submitted_at).total_seconds()
    waiting = Waiting(job.id, request_of(job.spec), job.position, waited_s)
    return Asked(waiting, job.held_by, job.begin_at, _retry(job))


def _retry(job: Job) -> str:
    """Return which retry a job waits for; empty if it waits for the begin time in its spec."""
    if not job.attempt or job.begin_at == clock.moment(job.spec.begin_at):
        return ""
    used = job.spec.retries - job.retries_left
    return f"retry {used} of {job.spec.retries}" if used > 0 else "retry"


def begins(one: Asked) -> str | None:
    """Return when a job may start, in words; None if its begin time has passed or it has none."""
    now = clock.now()
    if one.begin_at is None or one.begin_at <= now:
        return None
    if one.retry:
        return f"{one.retry} in {format_duration(ceil((one.begin_at - now).total_seconds()))}"
    day = "%d %b" if one.begin_at - now < NEXT_TIME_OF_YEAR else "%d %b %Y"
    return f"begins at {one.begin_at.astimezone().strftime(f'%H:%M on {day}')}"


def _asked_in(row: Any) -> Asked:
    """Return the same as `asked`, from a job's row."""
    if row["begin_at"]:
        return asked(job_of(row))
    submitted_at = clock.moment(row["submitted_at"])
    assert submitted_at is not None
    waited_s = (clock.now() - submitted_at).total_seconds()
    return Asked(Waiting(row["id"], request_in(row["lane"]), row["position"], waited_s), row["held_by"], None)


def _changed_at(path: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(os.stat(path).st_mtime, timezone.utc)
    except OSError:
        return None
