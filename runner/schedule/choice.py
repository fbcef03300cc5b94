"""Chooses which queued job starts on which GPU, which jobs are preempted, and says why the others wait. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from runner.schedule.cpu_slots import CpuSlots
from runner.schedule.free_rooms import FreeRooms
from runner.schedule.order import START_USE_S, by_usage, priority_of
from runner.schedule.quotas import Quotas, Reservation
from runner.schedule.ranking import Ranking
from runner.schedule.room import BoxLimits, Room, is_of_type, wanted
from runner.schedule.running_jobs import RunningJobs
from runner.units import format_mib

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from runner.schedule.request import Request
    from runner.schedule.room import CpuSlot

WAITS = "waits for GPUs"  # where nobody asks for the reason
TRIALS_AHEAD = 10  # trials that may go ahead of the queue before the next job starts


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued job."""

    id: int
    request: Request
    position: float = 0  # smallest first among its owner's jobs of the same priority
    waited_s: float = 0.0  # time in the queue, without the time it ran before it was preempted


@dataclass(frozen=True, slots=True)
class Running:
    """A job that holds its GPUs."""

    id: int
    request: Request
    gpus: tuple[str, ...]  # UUIDs
    ends_in_s: float | None = None  # at the latest; None: it has no limit
    waited_s: float = 0.0  # time in the queue before it started
    stopping: bool = False
    comes_back: bool = False  # it is being preempted and will be queued again
    ran_s: float = 0.0  # time since it started


class Start(NamedTuple):
    """A job and the slots it gets: (UUID of the GPU, slot)."""

    job_id: int
    slots: tuple[tuple[str, int], ...]
    memory_mib: int | None = None  # promised on each GPU; None: its slot's share
    node: str | None = None  # where; None: there is only one


class Preemption(NamedTuple):
    """A running job to preempt, and the job that needs its room."""

    job_id: int
    for_id: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The scheduler's answer."""

    starts: list[Start] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    waiting: dict[int, str] = field(default_factory=dict)  # job id -> why it waits


def choose(
    queued: Sequence[Waiting], rooms: Sequence[Room], cpu_slots: Sequence[CpuSlot],
    running: Sequence[Running] = (), limits: BoxLimits | None = None, *, explain: bool = True,
    ahead: int = TRIALS_AHEAD, slots_only: bool = False,
) -> Plan:  # fmt: skip
    """Start jobs in order, as long as there is room.

    Higher priorities go first. Within a priority, the owner with the least recent usage goes first. Each owner's jobs
    go by position. A job that cannot start reserves the free GPUs that it could use. So it is not overtaken for ever.
    Later jobs may use those GPUs only if their time limit guarantees they finish first, or if they are preemptible.
    All GPUs of a job come from one node. So it reserves those of one node, where it could start first.
    A job that waits for a sick GPU, or for more memory than there is, reserves nothing: it might wait for ever and
    block healthy GPUs.

    Trials go ahead of all this where there is room now, up to `ahead` of them. A trial that finds none waits its turn.
    `explain=False` skips the jobs behind the last one that could start, and finds no reasons for people.
    `slots_only`: the engine finds the GPUs. Each job takes one of the slots, which are places in the engine's queue.
    """
    limits = limits or BoxLimits()
    scene = _Pass(rooms, cpu_slots, running, limits, explain=explain, slots_only=slots_only)
    cpu_too = slots_only or any(not job.request.gpus for job in queued)
    trials = [job for job in queued if job.request.untried]
    for job in by_usage(trials, scene.use, limits.age_s):
        if len(scene.plan.starts) < ahead:
            scene.try_ahead(job)
    tried = {start.job_id for start in scene.plan.starts}
    rest = [job for job in queued if job.id not in tried] if tried else queued
    for job in by_usage(rest, scene.use, limits.age_s):
        if not explain and scene.is_full(cpu_too=cpu_too):
            break
        scene.consider(job)
    return scene.plan


class _Pass:
    """One pass over the queue: what is still free, and which job waits for what."""

    def __init__(
        self, rooms: Sequence[Room], cpu_slots: Sequence[CpuSlot], running: Sequence[Running], limits: BoxLimits, *,
        explain: bool, slots_only: bool = False,
    ) -> None:  # fmt: skip
        self.plan, self._slots_only = Plan(), slots_only
        self.use: defaultdict[str, float] = defaultdict(float, limits.use)
        self._explain, self._limits, self._running = explain, limits, RunningJobs(running)
        self._rooms = {room.uuid: room for room in rooms}
        self._cpu_slots = CpuSlots(cpu_slots)
        self._reserved: dict[str, Reservation] = {}  # GPU -> the first job that it is reserved for
        self._free = FreeRooms(self._rooms, self._reserved)
        self._awaited: set[str] = set()  # GPUs whose jobs must not be preempted for later jobs
        self._leaving: set[int] = {job.id for job in running if job.stopping}  # and those that this pass preempts
        self._quotas = Quotas(limits, running)
        self._blocked: dict[tuple[Request, int], str] = {}  # why all jobs of a kind wait, until the next start
        self._wishes: dict[tuple[Request, int], _Wish] = {}
        self._changed: list[str | None] = []  # the node of each start, reservation and preemption

    def is_full(self, *, cpu_too: bool) -> bool:
        """Return whether nothing more can start or be preempted in this pass."""
        return not (self._free or (cpu_too and self._cpu_slots) or self._running.preemptible)

    # -- one job -----------------------------------------------------------------------------------

    def consider(self, job: Waiting) -> None:
        """Start a job, or note why it waits and reserve what it needs."""
        priority = priority_of(job, self._limits.age_s)
        if why := self._blocked.get((job.request, priority)) or self._quotas.why_not(job):
            self._wait(job, priority, why)
        elif self._gets_room(job, priority):
            return
        elif job.request.gpus and not self._slots_only:
            self._wait_for_gpus(job, priority)
        else:
            where = f" on {job.request.node}" if job.request.node else ""
            what = "a place in the queue of the cluster" if self._slots_only else "a CPU slot"
            self._wait(job, priority, f"waits for {what}{where}")
            self._quotas.reserve(Reservation(job.id, job.request))

    def _wait(self, job: Waiting, priority: int, why: str) -> None:
        """Note why this job waits, and all others like it."""
        self.plan.waiting[job.id] = self._blocked[job.request, priority] = why

    def try_ahead(self, job: Waiting) -> None:
        """Start a trial if there is room now. It reserves nothing."""
        if self._quotas.why_not(job, reserve=False) is None:
            self._gets_room(job, priority_of(job, self._limits.age_s))

    def _gets_room(self, job: Waiting, priority: int) -> bool:
        """Start a job if there is room for it now. Return whether there was."""
        request = job.request
        if self._slots_only or not request.gpus:
            if cpu_slot := self._cpu_slots.take(request.node):
                self._start(job, (("", cpu_slot.slot),), (), cpu_slot.node)
            return cpu_slot is not None

        def may_use(name: str | None, reservation: Reservation | None) -> bool:
            return is_of_type(name, request.gpu_type) and _may_take(reservation, request, priority)

        if chosen := self._free.take(request, may_use):
            self._start(job, tuple((room.uuid, room.free_slots[0]) for room in chosen), chosen, chosen[0].node)
        return bool(chosen)

    def _wait_for_gpus(self, job: Waiting, priority: int) -> None:
        """Note why this job waits, and reserve GPUs for it if enough of one node can ever be free for it."""
        request = job.request
        self.plan.waiting[job.id] = self._why(request, priority) if self._explain else WAITS
        wish = self._wishes.get((request, priority))
        if wish is None:
            wish = self._wishes[request, priority] = _Wish(self._allowed(request))
        best = wish.best(self._changed, lambda uuids: self._prospect(request, priority, uuids))
        if best is not None:
            self._reserve(job, priority, best)
        elif wish.is_possible:  # earlier jobs have reserved everything
            self._blocked[request, priority] = self.plan.waiting[job.id]
            self._quotas.reserve(Reservation(job.id, request, priority))

    def _allowed(self, request: Request) -> list[Room]:
        return [room for room in self._free.named(request) if is_of_type(room.name, request.gpu_type)]

    def _start(self, job: Waiting, slots: tuple[tuple[str, int], ...], rooms: Sequence[Room], node: str | None) -> None:
        request = job.request
        self.plan.starts.append(Start(job.id, slots, request.gpu_mem_mib, node))
        self.use[request.owner] += START_USE_S * request.gpus
        uuids = tuple(room.uuid for room in rooms)
        started = Running(job.id, request, uuids, request.limit_s, job.waited_s)
        self._running.add(started)
        self._quotas.add(started)
        self._blocked.clear()
        for room in rooms:
            left_mib = None if room.memory_mib is None else max(0, room.memory_mib - room.promised_mib(request))
            # two jobs that start together on one GPU would both count the same memory as free
            why_not = f"has #{job.id} just starting on it" if room.slots > 1 else None
            self._rooms[room.uuid] = room.left(room.free_slots[1:], left_mib, why_not)
            self._free.update(room.uuid)
        self._changed.append(node)

    # -- reservations and preemption ---------------------------------------------------------------

    def _reserve(self, job: Waiting, priority: int, best: _Prospect) -> None:
        """Reserve free GPUs of one node for a job, and preempt others there if that makes enough room."""
        if best.victims is None:
            # GPUs that are shared and too full for it: if others kept using them, it would wait for ever
            short = sorted((room for room in best.coming if room.usable), key=lambda room: best.frees_s[room.uuid])
            taken = short[: best.missing]
            self._awaited |= best.frees_s.keys()
        else:
            taken = self._preempt(job, best.victims, best.coming)[: best.missing]
            self._awaited |= {room.uuid for room in taken}
        reservation = Reservation(job.id, job.request, priority, best.starts_in_s)
        for room in (*best.unreserved, *taken):
            self._reserved[room.uuid] = reservation
            self._free.update(room.uuid)
        self._changed.append(next(room.node for room in (*best.unreserved, *best.coming)))
        self._quotas.reserve(reservation)

    def _prospect(self, request: Request, priority: int, uuids: Sequence[str]) -> _Prospect | None:
        """Return how a job could get its GPUs from these of one node; None if they will never be enough."""
        rooms = [self._rooms[uuid] for uuid in uuids if not self._rooms[uuid].sick]
        able = [room for room in rooms if room.fits(request) or room.fits(request, self._running.on(room))]
        if len(able) < request.gpus:
            return None
        now = {room.uuid for room in able if room.usable and room.fits(request)}
        unclaimed = [room for room in able if room.uuid not in self._awaited and room.uuid not in self._reserved]
        coming = [room for room in unclaimed if room.uuid not in now]
        unreserved = [room for room in able if room.uuid in now and room.uuid not in self._reserved]
        if not coming and not unreserved:
            return _Prospect(request.gpus, [], [], None, {})
        preemptible = self._running.preemptible_on(able)
        lower = [other for other in preemptible if self._may_be_preempted(other, priority)]
        missing = request.gpus - len(unreserved)
        victims = choose_victims(coming, request, missing, self._running, self._leaving, lower)
        frees_s = {} if victims is not None else self._frees_s(request, able, lower)
        return _Prospect(request.gpus, unreserved, coming, victims, frees_s)

    def _frees_s(self, request: Request, rooms: Sequence[Room], lower: Sequence[Running]) -> dict[str, float]:
        soon = self._leaving.union(other.id for other in lower)
        return {room.uuid: frees_in_s(room, request, self._running.on(room), soon) for room in rooms}

    def _preempt(self, job: Waiting, victims: Sequence[Running], coming: Sequence[Room]) -> list[Room]:
        """Preempt jobs for another one. Return the coming GPUs, those with room for it first."""
        self._leaving |= {victim.id for victim in victims}
        self.plan.preemptions.extend(Preemption(victim.id, job.id) for victim in victims)
        return sorted(coming, key=lambda room: not _will_have_room(room, job.request, self._running, self._leaving))

    def _may_be_preempted(self, job: Running, priority: int) -> bool:
        lower = priority_of(job, self._limits.age_s) < priority
        return job.request.preemptible and lower and job.id not in self._leaving

    def _why(self, request: Request, priority: int) -> str:
        """Return one sentence for people about why a job waits."""
        allowed = self._allowed(request)
        free = [room for room in allowed if room.usable and room.fits(request)]
        there, now = Counter(room.node for room in allowed), Counter(room.node for room in free)
        together = " on one node" if len(there) > 1 and request.gpus > 1 else ""
        if (most := max(there.values(), default=0)) < request.gpus:
            return f"needs {wanted(request)}; there are {most} that it may use{together}"
        if (most := max(now.values(), default=0)) >= request.gpus:
            reservations = (self._reserved.get(room.uuid) for room in free if now[room.node] >= request.gpus)
            first = next(kept.id for kept in reservations if kept and not _may_take(kept, request, priority))
            return f"behind #{first}, which waits for the same GPUs"
        troubles = _troubles(allowed)
        short = [room for room in allowed if room.usable and not room.fits(request)]
        troubles += [f"GPU {room.label} has {_free_memory(room)}" for room in short]
        return "; ".join([f"needs {wanted(request)}, {most} free{together}", *troubles])


class _Prospect(NamedTuple):
    """How a waiting job could get its GPUs from one node."""

    gpus: int
    unreserved: list[Room]  # free for it now
    coming: list[Room]  # will be, and no earlier job waits for them
    victims: list[Running] | None  # to preempt; None: that would not be enough
    frees_s: dict[str, float]  # when each GPU of the node has room for it; empty if it preempts

    @property
    def missing(self) -> int:
        return self.gpus - len(self.unreserved)

    @property
    def starts_in_s(self) -> float:
        return sorted(self.frees_s.values())[self.gpus - 1] if self.victims is None else 0.0

    def rank(self) -> tuple[object, ...] | None:
        """Sort nodes: least loss by preempting, then enough GPUs that no earlier job waits for, then the soonest."""
        if not self.coming and not self.unreserved:
            return None
        if self.victims is not None:
            return False, sorted(map(_worth, self.victims), reverse=True)
        crowded = len(self.coming) < self.missing
        return True, crowded, self.starts_in_s, self.missing


class _Wish:
    """How jobs with the same request and priority could get their GPUs, by node."""

    def __init__(self, allowed: Sequence[Room]) -> None:
        self._uuids: defaultdict[str | None, list[str]] = defaultdict(list)
        for room in allowed:
            self._uuids[room.node].append(room.uuid)
        self._ranking = Ranking(self._uuids)
        self._prospects: dict[str | None, _Prospect | None] = {}

    def best(
        self, changed: Sequence[str | None], prospect_of: Callable[[Sequence[str]], _Prospect | None]
    ) -> _Prospect | None:
        """Return the best prospect; None if no node has any. `changed` grows from call to call."""

        def rank_of(node: str | None) -> tuple[object, ...] | None:
            prospect = self._prospects[node] = prospect_of(self._uuids[node])
            return prospect.rank() if prospect else None

        first = self._ranking.first(changed, rank_of)
        return self._prospects[first[0]] if first else None

    @property
    def is_possible(self) -> bool:
        """Return whether any node will ever have enough GPUs."""
        return any(self._prospects.values())


def _may_take(reservation: Reservation | None, request: Request, priority: int) -> bool:
    """Return whether a job may use a GPU: it is not reserved, or the job is sure to leave it in time."""
    if reservation is None or reservation.outlasts(request):
        return True
    # not while the reserving job could start at once: it would preempt this one immediately
    return request.preemptible and reservation.priority > priority and reservation.starts_in_s > 0


def frees_in_s(room: Room, request: Request, here: Sequence[Running], soon: Collection[int]) -> float:
    """Return in how many seconds there is room at the latest, by the time limits of running jobs; inf if unknown.

    `here`: the jobs on this GPU. `soon`: the jobs that are stopping or can be preempted.
    """
    if room.has_room(request, ()):
        return 0.0

    def end_of(job: Running) -> float:
        return 0.0 if job.id in soon else math.inf if job.ends_in_s is None else job.ends_in_s

    here = sorted(here, key=end_of)
    return next((end_of(job) for count, job in enumerate(here, 1) if room.has_room(request, here[:count])), math.inf)


def choose_victims(
    rooms: Sequence[Room], request: Request, missing: int,
    running: RunningJobs, leaving: Collection[int], preemptible: Sequence[Running],
) -> list[Running] | None:  # fmt: skip
    """Return which jobs to preempt so that a job gets `missing` of these GPUs, or None if preempting all is not enough.

    Preempt the lowest priority first, then the jobs that started last: they lose the least work. Preempt no job
    without need.
    """
    gone, by_uuid = set(leaving), {room.uuid: room for room in rooms}

    def count(among: Iterable[Room]) -> int:
        return sum(_will_have_room(room, request, running, gone) for room in among)

    def gain(job: Running, change: Callable[[int], None]) -> int:
        """Return for how many more GPUs there is room after this change of `gone`."""
        held = [by_uuid[uuid] for uuid in dict.fromkeys(job.gpus) if uuid in by_uuid]
        before = count(held)
        change(job.id)
        return count(held) - before

    victims: list[Running] = []
    spare = count(rooms) - missing
    for job in sorted(preemptible, key=_worth):
        if spare >= 0:
            break
        spare += gain(job, gone.add)
        victims.append(job)
    if spare < 0:
        return None
    for victim in reversed(victims):
        spare += gain(victim, gone.remove)
        if spare < 0:
            spare += gain(victim, gone.add)
    return [victim for victim in victims if victim.id in gone]


def _worth(job: Running) -> tuple[int, float, float]:
    """Return a key that is higher for a job that should be preempted later."""
    return job.request.priority, job.ran_s, job.waited_s


def _will_have_room(room: Room, request: Request, running: RunningJobs, gone: Collection[int]) -> bool:
    """Return whether a job finds room on a GPU once the jobs with these ids are gone."""
    return room.has_room(request, [job for job in running.on(room) if job.id in gone])


def _troubles(rooms: Iterable[Room]) -> list[str]:
    """Return why these GPUs cannot be used, each reason once, because it is often the same for all."""
    by_reason: dict[str, list[str]] = {}
    for room in rooms:
        if room.why_not is not None:
            by_reason.setdefault(room.why_not.rstrip("."), []).append(room.label)
    return [f"GPU {', '.join(which)}{':' if why[:1].isupper() else ''} {why}" for why, which in by_reason.items()]


def is_full(rooms: Iterable[Room], cpu_slots: Sequence[CpuSlot], running: Iterable[Running]) -> bool:
    """Return whether nothing could start: no slot is free, and no job can be preempted."""
    if cpu_slots or any(room.usable for room in rooms):
        return False
    return not any(job.request.preemptible for job in running)


def _free_memory(room: Room) -> str:
    return "an unknown amount of memory" if room.memory_mib is None else f"{format_mib(room.memory_mib)} left"
