"""Simulates the scheduler, with every job as short or as long as it may be. Pure.

Only the first jobs are simulated one by one. The work of the rest is spread evenly over the GPUs.
"""

from __future__ import annotations

import heapq
from bisect import insort
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from runner.schedule.choice import Running, Waiting, choose
from runner.schedule.room import BoxLimits, CpuSlot, Room, free_cpu_slots, free_slots

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runner.schedule.choice import Plan
    from runner.schedule.request import Request

SlotPlace: TypeAlias = tuple[str, str | None, int]  # GPU, node of a CPU slot, slot
WORK = 6_000  # looks at queued jobs in one simulation


class Length(NamedTuple):
    """How long a job still takes: at least and at most, in seconds."""

    least_s: float = 0.0
    most_s: float | None = None  # None: it may never end

    @property
    def known(self) -> bool:
        """Return whether this is an estimate, not only bounds."""
        return self.least_s == self.most_s


UNKNOWN = Length()


@dataclass(frozen=True, slots=True)
class HeldSlot:
    """A slot of a GPU (gpu is "" for a CPU slot), the job that holds it, and the memory promised there."""

    gpu: str
    slot: int
    job_id: int
    memory_mib: int | None = None
    node: str | None = None  # of a CPU slot; None: there is only one

    @property
    def place(self) -> SlotPlace:
        """Return which slot it is."""
        return self.gpu, self.node, self.slot


@dataclass(frozen=True, slots=True)
class Later:
    """A queued job that may not start yet: it waits for other jobs, for a time, or both."""

    job: Waiting
    after: frozenset[int] = frozenset()
    begins_in_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Rest:
    """Queued jobs that are not simulated one by one: a number of equal length and GPU count."""

    count: int
    gpus: int
    length: Length


class Ends(NamedTuple):
    """When each slot is free for good, in seconds from now. Slots that never are, are left out."""

    gpus_s: tuple[float, ...]
    cpus_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The present state of the box and its queue."""

    queued: Sequence[Waiting] = ()
    later: Sequence[Later] = ()
    running: Sequence[Running] = ()
    held: Sequence[HeldSlot] = ()
    rooms: Sequence[Room] = ()
    cpu_slots: Mapping[str | None, int] = field(default_factory=dict)  # how many each node has
    limits: BoxLimits = field(default_factory=BoxLimits)
    lengths: Mapping[int, Length] = field(default_factory=dict)  # of queued jobs; for running jobs, what is left
    rest: Sequence[Rest] = ()


@dataclass(slots=True)
class _Run:
    """A job that runs in the simulation."""

    job: Running
    position: float
    held: list[HeldSlot]
    since_s: float
    ends_s: float | None

    def at(self, now_s: float) -> Running:
        """Return the job as the scheduler would see it at that time."""
        job, passed_s = self.job, now_s - self.since_s
        left_s = None if job.ends_in_s is None else max(0.0, job.ends_in_s - passed_s)
        ran_s = job.ran_s + passed_s
        return Running(job.id, job.request, job.gpus, left_s, job.waited_s, job.stopping, ran_s=ran_s)


class Simulation:
    """One simulation, with every job as short (`hopeful`) or as long as it may be."""

    def __init__(self, scene: Scene, *, hopeful: bool) -> None:
        self._scene, self._hopeful = scene, hopeful
        self._now_s, self._work = 0.0, WORK
        self._lanes: dict[Request, list[tuple[float, int, Waiting]]] = {}
        self._later = list(scene.later)
        self._use = dict(scene.limits.use)
        self._limits = replace(scene.limits, use=self._use)
        self._shared = any(room.slots > 1 for room in scene.rooms)
        self._rooms = {room.uuid: self._as_hoped(room) for room in scene.rooms}
        self._held = {uuid: [slot for slot in scene.held if slot.gpu == uuid] for uuid in ("", *self._rooms)}
        self._memory_mib = {  # without any of our jobs
            room.uuid: None if room.memory_mib is None else room.memory_mib + self._promised_mib(room)
            for room in scene.rooms
        }
        self._freed_s: dict[SlotPlace, float] = {}
        self._freed_s |= {(room.uuid, None, slot): 0.0 for room in scene.rooms for slot in range(room.slots)}
        self._freed_s |= {("", node, slot): 0.0 for node, count in scene.cpu_slots.items() for slot in range(count)}
        self._lengths = dict(scene.lengths)
        self._runs: dict[int, _Run] = {}
        self._ends: list[tuple[float, int]] = []
        self._over = self._left_out() if hopeful else set()
        self.hoped = bool(self._left_out()) or any(room.why_not and not room.sick for room in scene.rooms)
        self.starts: dict[int, float] = {}
        for job in scene.queued:
            self._queue(job)
        for running in scene.running:
            self._begin(running, running.id, [slot for slot in scene.held if slot.job_id == running.id])
            if running.comes_back:
                self._preempt(running.id)

    def play(self) -> Simulation:
        """Simulate until all jobs have ended, nothing more is known to happen, or the work limit is reached."""
        while self._work > 0:
            self._admit()
            if self._pass():
                continue
            following_s = self._next_s()
            if following_s is None:
                break
            self._advance(following_s - self._now_s)
            while self._ends and self._ends[0][0] <= self._now_s:
                self._end(*heapq.heappop(self._ends))
        return self

    @property
    def is_whole(self) -> bool:
        """Return whether every job has ended, and the rest is of known length."""
        seen = not (self._lanes or self._later or self._runs)
        return seen and all(rest.length.most_s is not None for rest in self._scene.rest)

    def ends(self) -> Ends:
        """Return when each slot is free of simulated jobs. Empty if some of them never started."""
        if self._lanes or self._later:
            return Ends((), ())
        frees_s: dict[SlotPlace, float | None] = dict(self._freed_s)
        frees_s |= {slot.place: run.ends_s for run in self._runs.values() for slot in run.held}
        return self._usable({place: free_s for place, free_s in frees_s.items() if free_s is not None})

    def done_s(self, rest: Iterable[Rest]) -> float | None:
        """Return when the last job has ended, with the rest spread over the slots. None: there is no slot for it."""
        works = [(jobs.gpus, jobs.count * self._as_long_as(jobs.length)) for jobs in rest]
        freed = self._usable(self._freed_s)
        gpus_end_s = _spread(sum(gpus * work_s for gpus, work_s in works), freed.gpus_s)
        cpus_end_s = _spread(sum(work_s for gpus, work_s in works if not gpus), freed.cpus_s)
        return None if gpus_end_s is None or cpus_end_s is None else max(self._now_s, gpus_end_s, cpus_end_s)

    def _usable(self, frees_s: Mapping[SlotPlace, float]) -> Ends:
        """Return when the slots come free, without those of GPUs that cannot be used."""
        usable = {room.uuid for room in self._rooms.values() if room.why_not is None}
        gpus_s = tuple(free_s for (gpu, *_), free_s in frees_s.items() if gpu in usable)
        return Ends(gpus_s, tuple(free_s for (gpu, *_), free_s in frees_s.items() if not gpu))

    # -- the initial state -------------------------------------------------------------------------

    def _as_hoped(self, room: Room) -> Room:
        """Return the GPU, usable in the hopeful simulation even if others use it now: they may leave. Never if sick."""
        return replace(room, why_not=None) if self._hopeful and not room.sick else room

    def _promised_mib(self, room: Room) -> int:
        promised = [room.share_mib if slot.memory_mib is None else slot.memory_mib for slot in self._held[room.uuid]]
        return sum(mib or 0 for mib in promised)

    def _left_out(self) -> set[int]:
        """Return jobs that others wait for but that are not simulated: they may end at once, or never."""
        scene = self._scene
        seen = {job.id for job in scene.queued} | {later.job.id for later in scene.later}
        seen |= {job.id for job in scene.running}
        return {number for later in scene.later for number in later.after} - seen

    # -- one moment --------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Queue the jobs whose time has come and whose dependencies have ended."""
        for later in list(self._later):
            if later.begins_in_s <= self._now_s and later.after <= self._over:
                self._later.remove(later)
                self._queue(later.job)

    def _pass(self) -> bool:
        """Do what the scheduler would do now. Return whether it did anything."""
        queued = self._front()
        self._work -= len(queued) + 1
        if not queued:
            return False
        running = [run.at(self._now_s) for run in self._runs.values()]
        cpu_slots = free_cpu_slots(self._scene.cpu_slots, [CpuSlot(held.slot, held.node) for held in self._held[""]])
        plan = choose(queued, list(self._rooms.values()), cpu_slots, running, self._limits, explain=False, ahead=0)
        self._follow(plan, {job.id: job for job in queued})
        return bool(plan.starts or plan.preemptions)

    def _front(self) -> list[Waiting]:
        """Return as many jobs of each lane as could start now, and one more, which reserves GPUs."""
        gpus = sum(len(room.free_slots) for room in self._rooms.values() if room.why_not is None)
        if self._shared or any(run.job.request.preemptible for run in self._runs.values()):
            gpus = sum(room.slots for room in self._rooms.values())  # all of them may come free
        cpus = sum(self._scene.cpu_slots.values()) - len(self._held[""])
        front = []
        for request, jobs in self._lanes.items():
            slots = gpus if request.gpus else cpus
            if slots > 0 or request.cpus or request.ram_mib:
                front += [
                    Waiting(job.id, job.request, job.position, job.waited_s + self._now_s)
                    for _, _, job in jobs[: 1 + max(0, slots)]
                ]
        return front

    def _follow(self, plan: Plan, queued: Mapping[int, Waiting]) -> None:
        for number, slots, memory_mib, node in plan.starts:
            job = queued[number]
            self._unqueue(job)
            self.starts.setdefault(number, self._now_s)
            gpus = tuple(gpu for gpu, _ in slots if gpu)
            running = Running(number, job.request, gpus, job.request.limit_s, job.waited_s)
            held = [HeldSlot(gpu, slot, number, memory_mib, None if gpu else node) for gpu, slot in slots]
            self._begin(running, job.position, held)
        for preemption in plan.preemptions:
            self._preempt(preemption.job_id)

    def _preempt(self, number: int) -> None:
        """Preempt a job. As far as is known it continues where it stopped, but with its full time limit again."""
        run, length = self._runs[number], self._lengths.get(number, UNKNOWN)
        if not length.known:
            self._lengths[number] = Length(length.least_s, run.job.request.limit_s)
        self._free(run)
        self._queue(Waiting(number, run.job.request, run.position, run.job.waited_s - self._now_s))

    def _next_s(self) -> float | None:
        begins = [later.begins_in_s for later in self._later if later.begins_in_s > self._now_s]
        return min([*begins, *(end_s for end_s, _ in self._ends[:1])], default=None)

    def _advance(self, seconds: float) -> None:
        for run in self._runs.values():
            owner = run.job.request.owner
            self._use[owner] = self._use.get(owner, 0.0) + seconds * len(run.job.gpus)
        self._now_s += seconds

    # -- starts and ends ---------------------------------------------------------------------------

    def _queue(self, job: Waiting) -> None:
        insort(self._lanes.setdefault(job.request, []), (job.position, job.id, job))

    def _unqueue(self, job: Waiting) -> None:
        self._lanes[job.request] = [entry for entry in self._lanes[job.request] if entry[1] != job.id]
        if not self._lanes[job.request]:
            del self._lanes[job.request]

    def _begin(self, job: Running, position: float, held: list[HeldSlot]) -> None:
        length = self._lengths.get(job.id, UNKNOWN)
        never = length.most_s is None and not self._hopeful
        ends_s = None if never else self._now_s + self._as_long_as(length)
        self._runs[job.id] = _Run(job, position, held, self._now_s, ends_s)
        if ends_s is not None:
            heapq.heappush(self._ends, (ends_s, job.id))
        for slot in held:
            if slot not in self._held.get(slot.gpu, ()):
                self._held.setdefault(slot.gpu, []).append(slot)
        self._update_rooms(held)

    def _as_long_as(self, length: Length) -> float:
        return length.least_s if self._hopeful else length.most_s or 0.0

    def _end(self, ends_s: float, number: int) -> None:
        run = self._runs.get(number)
        if run is not None and run.ends_s == ends_s:  # it may have been preempted meanwhile
            self._over.add(number)
            self._free(run)

    def _free(self, run: _Run) -> None:
        del self._runs[run.job.id]
        for slot in run.held:
            self._held[slot.gpu].remove(slot)
            self._freed_s[slot.place] = self._now_s
        self._update_rooms(run.held)

    def _update_rooms(self, held: Iterable[HeldSlot]) -> None:
        """Update the GPUs after a job started or ended."""
        for gpu in {slot.gpu for slot in held} & self._rooms.keys():
            room, memory_mib = self._rooms[gpu], self._memory_mib[gpu]
            free = free_slots(room.slots, {slot.slot for slot in self._held[gpu]})
            left_mib = None if memory_mib is None else max(0, memory_mib - self._promised_mib(room))
            self._rooms[gpu] = room.left(free, left_mib, room.why_not)


def _spread(work_s: float, freed_s: Iterable[float]) -> float | None:
    """Return when this much work is done on slots that come free at these times, or None if there are no slots."""
    if not work_s:
        return 0.0
    level, slots = 0.0, sorted(freed_s)
    for count, begins in enumerate(slots, 1):
        following = slots[count] if count < len(slots) else None
        level = begins + work_s / count
        if following is None or level <= following:
            return level
        work_s -= count * (following - begins)
    return None
