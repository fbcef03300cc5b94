"""What can be seen of the queue."""

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
NAMED = 5  # held jobs, in one sentence
NEXT_TIME_OF_YEAR = timedelta(days=300)  # a day and a month say which one is meant


def at_the_terminal(words: str) -> str:
    """How a command is typed, for the sentences that name one; the chat has its own."""
    return f"`nightshift {words}`"


class Asked(NamedTuple):
    """A queued job of which somebody wants to know why it waits."""

    job: Waiting
    held_by: str | None
    begin_at: datetime | None
    retry: str = ""  # which one it waits for until then


class View:
    """The queue of one state folder, to look at."""

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
        """One job; UserError if there is none of that number."""
        found = self.jobs.get(job_id)
        if found is None:
            raise NoSuchJobError(f"There is no job {job_id}. {self._typed('ls')} lists the jobs there are.")
        return found

    def describe(self, jobs: Iterable[Job]) -> list[dict[str, Any]]:
        """Jobs for programs: the keys of the JSON output."""
        jobs = list(jobs)
        reasons = self.waiting_reasons(jobs)
        starts = self.outlook().described() if reasons else {}
        return [described(job, reasons.get(job.id), starts.get(job.id)) for job in jobs]

    def describe_rows(self, rows: Sequence[Any]) -> Iterator[dict[str, Any]]:
        """The same from the rows of jobs, one after the other: for many."""
        queued = [row for row in rows if row["state"] == State.QUEUED.value]
        reasons = self._reasons([_asked_in(row) for row in queued])
        starts = self.outlook().described() if reasons else {}
        for row in rows:
            yield described_row(row, reasons.get(row["id"]), starts.get(row["id"]))

    def waiting_reasons(self, jobs: Iterable[Job]) -> dict[int, str]:
        """Why each queued job among these waits."""
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
        """The job that shows, or is about to show, whether a queue that the breaker paused may go on."""
        if not self.box.get("paused") or not self.runner_is_up():
            return None
        with self.store.transaction():  # or the runner could claim it between two looks, and none would be seen
            paused = self.box.get("paused")
            if not paused or "jobs" not in paused or self.box.get("draining"):
                return None
            if paused["trial"] is not None:
                return int(paused["trial"])
            waiting = Trials(self.store).now(paused)
            starts = self._plan(waiting, alone=True).starts if waiting else ()
            return starts[0].job_id if starts else None

    def _plan(self, wanted: Sequence[Waiting], *, alone: bool = False) -> Plan:
        """What the runner would do with these now, beside those at the front of the queue or alone."""
        leases = self.leases()
        cpu_slots = int(self.box.get("cpu slots", 1))
        cpu_taken = sum(lease.resource == CPU for lease in leases)
        rooms = self._standing(leases).rooms()
        # Those at the front keep what they wait for from the ones behind them, whichever of them were asked about.
        front = [] if alone else self.line.waiting(per_lane=cpu_slots + sum(room.slots for room in rooms))
        asked_for = {one.id: one for one in (*wanted, *front)}
        free_cpu_slots = range(cpu_taken, cpu_slots)
        return choose(list(asked_for.values()), rooms, free_cpu_slots, self.line.running(), box_limits(self.store))

    def outlook(self) -> Outlook:
        """When those that wait are to start, and when nothing is left to do, as far as anybody knows."""
        if self._foresight is None:
            from runner.api.outlook import Foresight  # only who asks pays for it

            self._foresight = Foresight()
        leases = self.leases()
        rooms, cpu_slots = self._standing(leases).rooms(), int(self.box.get("cpu slots", 1))
        stands_still = self._why_nothing_starts() is not None
        return self._foresight.outlook(self.store, rooms, cpu_slots, leases, stands_still=stands_still)

    def takes(self, job_id: int) -> Known:
        """What tells how long a job takes."""
        from runner.store.durations import Durations

        return Durations(self.store).of([job_id])[job_id]

    def leases(self) -> list[Lease]:
        """Who holds what."""
        return self.line.leases()

    def _why_not_ready(self, one: Asked, blockers: Sequence[Blocker]) -> str | None:
        """What keeps it from being considered at all, however much room there is."""
        if one.held_by:
            return f"held by {one.held_by}; {self._typed(f'release {one.job.id}')} lets it start"
        if blockers:
            return "after " + ", ".join(f"#{other.job_id}" for other in blockers)
        return begins(one)

    def _why_nothing_starts(self) -> str | None:
        return self.held() if self.runner_is_up() else "no runner is up"

    def held(self) -> str | None:
        """Who or what holds the queue, and how it goes on; None if nothing does."""
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
        """What somebody has to lift before all of these can end; None if nothing."""
        if general := self.held():
            return general
        held = [number for number in self.listing.held() if number in job_ids]
        if not held:
            return None
        named = ", ".join(map(str, held[:NAMED])) + (" …" if len(held) > NAMED else "")
        release, kill = self._typed(f"release {held[0]}"), self._typed(f"kill {held[0]}")
        return f"held until somebody releases them: job {named}; {release} or {kill}"

    def when_empty(self) -> dict[str, Any] | None:
        """The command that is to be run since nothing is left to do, with `due_at` (None: held by a pause)."""
        due = self.box.get(WHEN_EMPTY)
        return None if due is None or due["cancelled_by"] or due["ran_at"] else dict(due)

    def snapshot(self) -> tuple[Snapshot, float] | None:
        """The last known GPUs, and how old that knowledge is in seconds."""
        return read_published(self.home)

    def gpu_trouble(self) -> str | None:
        """What the driver says where not even the list of GPUs is known; None if there is one, or is to be none."""
        found = self.snapshot()
        return found[0].trouble if found and not found[0].gpus else None

    def gpus(self) -> list[dict[str, Any]]:
        """The GPUs for programs; what is not known, or no longer known, is None."""
        return self._standing(self.leases()).described()

    def _standing(self, leases: Sequence[Lease]) -> Standing:
        from runner.gpu.standing import Rules, Standing

        free = self.box.get("free", {})
        return Standing(self.snapshot(), leases, Rules(slots=int(self.box.get("slots", 1)), **free))

    def log(self, job_id: int, attempt: int | None = None) -> Log:
        """The output of a job's latest attempt, or of the one named."""
        job = self.job(job_id)
        number = attempt or job.attempt
        if number == 0:
            raise UserError(f"Job {job_id} has not started yet: there is no output.")
        return Log(rundir.folder_of(self.home, job_id, number))

    def last_log_at(self, job_id: int) -> datetime | None:
        """When the latest attempt's output last grew; None if there is none."""
        job = self.job(job_id)
        folder = rundir.folder_of(self.home, job.id, job.attempt)
        times = [_changed_at(os.path.join(folder, name)) for name in (rundir.OUTPUT, *rundir.TAILS)]
        return max((moment for moment in times if moment), default=None)

    def evidence(self, job_id: int) -> dict[str, Any] | None:
        """What the watch over its GPUs holds, or held, against a job; None if nothing."""
        found = self.watches.of([job_id]).get(job_id)
        return found.evidence if found else None

    def watched(self, job_id: int) -> dict[str, Any] | None:
        """How the watch over a live job's GPUs sees it, as of some seconds ago, and who asked to keep it."""
        found = self.watches.of([job_id]).get(job_id)
        if found is None:
            return None
        kept = {"by": found.keep.by, "until": found.keep.until_at} if found.keep else None
        return {"idle": found.state.get("why"), "kept": kept, "evidence": found.evidence}

    def usage(self, job_id: int) -> dict[str, Any] | None:
        """What the latest attempt used of its GPUs, so far or in all; None if nothing is known."""
        job = self.job(job_id)
        return self.used.of(job.id, job.attempt)

    def probe(self, job_id: int) -> dict[str, Any] | None:
        """How the batch of the latest attempt was found, or how far that is; None if none was looked for."""
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
        """The variables a job was given, as far as they can be read now; they may hold secrets."""
        return {**self.jobs.environment(job.spec.environment), **self.env_file_of(job), **job.spec.env}

    def env_file_of(self, job: Job) -> dict[str, str]:
        """Those of them that came from an env file, which is where secrets belong."""
        from runner.config.env_file import read_env_file

        try:
            return read_env_file(job.spec.env_file) if job.spec.env_file else {}
        except UserError:
            return {}

    def unfinished_of(self, owner: str) -> list[int]:
        """The numbers of an owner's jobs that wait or are under way."""
        return self.listing.unfinished_of(owner)

    def unfinished(
        self, *, owner: str | None = None, group: str | None = None, states: Collection[State] = UNFINISHED
    ) -> list[int]:
        """The numbers of all that wait or are under way, or of those of one owner, one group, these states."""
        return self.listing.unfinished(owner=owner, group=group, states=states)

    def queued_of(self, owner: str) -> int:
        """How many jobs of an owner wait."""
        return self.listing.queued_of(owner)

    def overview(self) -> Overview:
        """How many jobs wait, are held, run, and ended in the last 24 hours."""
        return self.listing.overview(clock.text(clock.now() - RECENT))

    def runner_is_up(self) -> bool:
        """Whether a runner holds this state folder."""
        return process_lock.holder(self.home, home.RUNNER_LOCK) is not None


def _how_it_is_tried(paused: Mapping[str, Any]) -> str:
    """How a queue that the breaker paused finds out whether it may go on."""
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
    """A queued job as the scheduler wants to see it."""
    waited_s = (clock.now() - job.submitted_at).total_seconds()
    waiting = Waiting(job.id, request_of(job.spec), job.position, waited_s)
    return Asked(waiting, job.held_by, job.begin_at, _retry(job))


def _retry(job: Job) -> str:
    """Which retry it waits for; empty if it waits for the time it was given."""
    if not job.attempt or job.begin_at == clock.moment(job.spec.begin_at):
        return ""
    used = job.spec.retries - job.retries_left
    return f"retry {used} of {job.spec.retries}" if used > 0 else "retry"


def begins(one: Asked) -> str | None:
    """When it may start, if that is still to come."""
    now = clock.now()
    if one.begin_at is None or one.begin_at <= now:
        return None
    if one.retry:
        return f"{one.retry} in {format_duration(ceil((one.begin_at - now).total_seconds()))}"
    day = "%d %b" if one.begin_at - now < NEXT_TIME_OF_YEAR else "%d %b %Y"
    return f"begins at {one.begin_at.astimezone().strftime(f'%H:%M on {day}')}"


def _asked_in(row: Any) -> Asked:
    """The same from a job's row."""
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
