"""Which waiting job starts on which GPU, who is pushed aside for whom, and why the others wait. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from runner.quantities import format_mib
from runner.request import HIGHEST_LEVEL, Request

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

TURN_S = 600.0  # what a GPU just given to somebody counts in the comparison of who had how much
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued job."""

    id: int
    request: Request
    position: int = 0  # among its owner's of the same level the smallest goes first
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Running:
    """A job that has its GPUs."""

    id: int
    request: Request
    gpus: tuple[str, ...]  # UUIDs
    ends_in_s: float | None = None  # at the latest; None if it has no limit
    waited_s: float = 0.0  # since it was submitted
    stopping: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a GPU has to give."""

    index: int
    uuid: str
    free_slots: tuple[int, ...]
    slots: int
    name: str | None = None
    memory_mib: int | None = None  # not promised to anybody; None if unknown
    share_mib: int | None = None  # of a job that names no memory, where several jobs share the GPU
    why_not: str | None = None  # it must not be used now, and the reason
    sick: bool = False  # ... and nobody knows whether it will ever be well again

    def matches(self, names: tuple[str, ...]) -> bool:
        """Whether a job that named these GPUs may have this one."""
        return not names or any(n == str(self.index) or self.uuid.startswith(n) for n in names)

    def suits(self, request: Request) -> bool:
        """Whether it is of the kind that is asked for, be it free or not."""
        return self.matches(request.on) and is_of_type(self.name, request.gpu_type)

    @property
    def usable(self) -> bool:
        """A job may start here now."""
        return self.why_not is None and bool(self.free_slots)

    def need_mib(self, request: Request) -> int | None:
        """The memory that is promised to a job here; None for all there is."""
        return request.gpu_mem_mib if request.gpu_mem_mib is not None or self.slots == 1 else self.share_mib

    def fits(self, request: Request) -> bool:
        """Whether its memory is enough for one more job."""
        need = self.need_mib(request)
        if need is None:
            return True
        if self.memory_mib is None:
            return request.gpu_mem_mib is None
        return need <= self.memory_mib


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What holds for the whole box, and who had how much of it."""

    cpus: int | None = None  # cores to be given; None for as many as are asked for
    ram_mib: int | None = None
    gpus_each: int | None = None  # at once for one person
    gpus_each_low: int | None = None  # at low priority, all of that person's counted
    groups: Mapping[str, int] = field(default_factory=dict)  # how many of a group may run at once
    use: Mapping[str, float] = field(default_factory=dict)  # GPU seconds of late, by owner
    age_s: float = DAY_S  # for each of these that it waited, a job counts as one priority higher


class Start(NamedTuple):
    """A job and the slots it is to have: (GPU's UUID, slot)."""

    job_id: int
    slots: tuple[tuple[str, int], ...]
    memory_mib: int | None = None  # promised on each of them


class Push(NamedTuple):
    """A running job that is to make room, and for whom."""

    job_id: int
    for_id: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The scheduler's answer."""

    starts: list[Start] = field(default_factory=list)
    pushes: list[Push] = field(default_factory=list)
    waiting: dict[int, str] = field(default_factory=dict)  # job id -> why it waits


def choose(
    queued: Sequence[Waiting], rooms: Sequence[Room], cpu_slots: Sequence[int],
    running: Sequence[Running] = (), limits: Limits | None = None,
) -> Plan:  # fmt: skip
    """Start jobs in order, as long as there is room.

    The higher level first; between people, who had the least of late; for each of them, in the order of
    their places. A job that cannot start keeps the free GPUs it could use from those behind it, so that it is
    not overtaken for ever. Behind it only those start there that are sure to be gone in time: by their own
    limit, or because they may be pushed aside. One that waits for a sick GPU keeps nothing: it might wait for
    ever, and the healthy ones with it.
    """
    limits = limits or Limits()
    scene = _Pass(rooms, cpu_slots, running, limits)
    for job in _in_turn(queued, scene.use, limits.age_s):
        scene.consider(job)
    return scene.plan


def in_turn(queued: Sequence[Waiting], limits: Limits) -> Iterator[Waiting]:
    """The order in which jobs would start if each had to wait for nothing but its turn."""
    use = defaultdict(float, limits.use)
    for job in _in_turn(queued, use, limits.age_s):
        use[job.request.owner] += TURN_S * job.request.gpus
        yield job


def _in_turn(queued: Sequence[Waiting], use: Mapping[str, float], age_s: float) -> Iterator[Waiting]:
    """Whose turn is next may depend on who has just been started: then `use` has changed."""
    levels: dict[int, dict[str, list[Waiting]]] = defaultdict(lambda: defaultdict(list))
    for job in queued:
        levels[level_of(job, age_s)][job.request.owner].append(job)
    for level in sorted(levels, reverse=True):
        owners = levels[level]
        for jobs in owners.values():
            jobs.sort(key=lambda job: (job.position, job.id), reverse=True)  # the next one is the last
        while owners:
            owner = min(owners, key=lambda name: (use[name], owners[name][-1].position, owners[name][-1].id))
            yield owners[owner].pop()
            if not owners[owner]:
                del owners[owner]


def level_of(job: Waiting | Running, age_s: float) -> int:
    """With time everybody's turn comes: one priority higher for each of these times it has waited."""
    grown = 2 * int(job.waited_s // age_s) if age_s else 0
    return min(job.request.level + grown, max(HIGHEST_LEVEL, job.request.level))


class _Head(NamedTuple):
    """A job that waits at the front, and when it could start at the latest."""

    id: int
    level: int
    starts_in_s: float


class _Pass:
    """One pass over the queue: what is still to be had, and who waits for what."""

    def __init__(
        self, rooms: Sequence[Room], cpu_slots: Sequence[int], running: Sequence[Running], limits: Limits
    ) -> None:
        self.plan = Plan()
        self.use: defaultdict[str, float] = defaultdict(float, limits.use)
        self._limits, self._running = limits, list(running)
        self._rooms = {room.uuid: room for room in rooms}
        self._cpu_slots = list(cpu_slots)
        self._kept: dict[str, _Head] = {}  # free GPU -> the first that waits for more than that
        self._pushed: set[int] = {job.id for job in running if job.stopping}
        self._spoken_for: set[str] = set()  # GPUs that come free for somebody
        self._host_kept: int | None = None  # the first that waits for cores or memory of the host
        self._cpus = sum(job.request.cpus for job in running)
        self._ram_mib = sum(job.request.ram_mib for job in running)

    # -- one job -----------------------------------------------------------------------------------

    def consider(self, job: Waiting) -> None:
        """Start it, or say why not and keep what it waits for."""
        request = job.request
        if why := self._beyond_limits(request) or self._beyond_host(job):
            self.plan.waiting[job.id] = why
        elif request.gpus == 0:
            self._give_cpu_slot(job)
        else:
            self._give_gpus(job)

    def _give_cpu_slot(self, job: Waiting) -> None:
        if not self._cpu_slots:
            self.plan.waiting[job.id] = "waits for a CPU slot"
            return
        self._start(job, (("", self._cpu_slots.pop(0)),), (), None)

    def _give_gpus(self, job: Waiting) -> None:
        request, level = job.request, level_of(job, self._limits.age_s)
        allowed = [room for room in self._rooms.values() if room.suits(request)]
        free = [room for room in allowed if room.usable and room.fits(request)]
        open_to_it = [room for room in free if self._may_take(room, request, level)]
        chosen = _emptiest(request.gpus, open_to_it)
        if chosen is not None:
            slots = tuple((room.uuid, room.free_slots[0]) for room in chosen)
            self._start(job, slots, chosen, chosen[0].need_mib(request))
            return
        self.plan.waiting[job.id] = self._why(job, allowed, free)
        if sum(not room.sick for room in allowed) >= request.gpus:
            self._keep_for(job, level, allowed, free)

    def _start(
        self, job: Waiting, slots: tuple[tuple[str, int], ...], rooms: Sequence[Room], memory_mib: int | None
    ) -> None:
        self.plan.starts.append(Start(job.id, slots, memory_mib))
        request = job.request
        self.use[request.owner] += TURN_S * request.gpus
        self._cpus += request.cpus
        self._ram_mib += request.ram_mib
        self._running.append(Running(job.id, request, tuple(room.uuid for room in rooms), request.limit_s))
        for room in rooms:
            left = None if room.memory_mib is None or memory_mib is None else room.memory_mib - memory_mib
            # two that start at once on one GPU would each take the other's memory for free
            why_not = f"has #{job.id} just starting on it" if room.slots > 1 else None
            self._rooms[room.uuid] = replace(room, free_slots=room.free_slots[1:], memory_mib=left, why_not=why_not)

    # -- what holds it back ------------------------------------------------------------------------

    def _beyond_limits(self, request: Request) -> str | None:
        """Limits that have nothing to do with room: such a job keeps nothing from others."""
        limits = self._limits
        if request.group is not None and request.group in limits.groups:
            at_most = limits.groups[request.group]
            if sum(job.request.group == request.group for job in self._running) >= at_most:
                return f"at most {at_most} of {request.group} at once"
        at_most_gpus = limits.gpus_each_low if request.rank < 0 else limits.gpus_each
        if at_most_gpus is not None and request.gpus:
            held = sum(
                len(job.gpus)
                for job in self._running
                if job.request.owner == request.owner and (request.rank < 0 or job.request.rank >= 0)
            )
            if held + request.gpus > at_most_gpus:
                return f"{request.owner} has {held} of at most {counted(at_most_gpus)} at once"
        return None

    def _beyond_host(self, job: Waiting) -> str | None:
        request, limits = job.request, self._limits
        if not (request.cpus or request.ram_mib):
            return None
        if self._host_kept is not None:
            return f"behind #{self._host_kept}, which waits for CPU cores or memory"
        why = None
        if limits.cpus is not None and self._cpus + request.cpus > limits.cpus:
            why = f"needs {request.cpus} CPU cores, {max(0, limits.cpus - self._cpus)} free"
        elif limits.ram_mib is not None and self._ram_mib + request.ram_mib > limits.ram_mib:
            free_mib = max(0, limits.ram_mib - self._ram_mib)
            why = f"needs {format_mib(request.ram_mib)} of memory, {format_mib(free_mib)} free"
        if why:
            self._host_kept = job.id
        return why

    def _may_take(self, room: Room, request: Request, level: int) -> bool:
        """Nobody waits for it, or this one is sure to be gone when that one could start."""
        head = self._kept.get(room.uuid)
        if head is None:
            return True
        if request.preemptible and head.level > level:
            return True
        return request.limit_s is not None and request.limit_s <= head.starts_in_s < math.inf

    def _keep_for(self, job: Waiting, level: int, allowed: Sequence[Room], free: Sequence[Room]) -> None:
        """Keep what is free for it, and push aside who may be if that is then enough."""
        head = _Head(job.id, level, self._starts_in_s(job.request, allowed, free))
        unkept = [room for room in free if room.uuid not in self._kept]
        missing = job.request.gpus - len(unkept)
        # where others would go on sharing what is too little for it, it would wait for ever
        short = [room for room in allowed if room.usable and room not in free and room.uuid not in self._kept]
        for room in [*unkept, *short[:missing]]:
            self._kept[room.uuid] = head
        busy = [room for room in allowed if room not in free and not room.sick and room.why_not is None]
        well = {room.uuid for room in busy} - self._spoken_for
        coming = {uuid for one in self._running if one.id in self._pushed for uuid in one.gpus} & well
        victims = self._victims(level, well - coming, missing - len(coming))
        if len(coming) >= missing or victims:
            self._spoken_for |= set(sorted(coming)[:missing])
        for victim in victims:
            self._pushed.add(victim.id)
            self._spoken_for |= set(victim.gpus)
            self.plan.pushes.append(Push(victim.id, job.id))

    def _victims(self, level: int, gpus: set[str], missing: int) -> list[Running]:
        """Those who lose least, the newest, that give so many of these GPUs; none if they would not be enough."""
        chosen, gained = [], set[str]()
        if missing <= 0:
            return []
        for one in sorted(self._running, key=lambda one: (one.request.level, one.waited_s)):
            mine = set(one.gpus) & gpus
            lower = one.request.preemptible and level_of(one, self._limits.age_s) < level
            if lower and one.id not in self._pushed and mine - gained:
                chosen.append(one)
                gained |= mine
                if len(gained) >= missing:
                    return chosen
        return []

    def _starts_in_s(self, request: Request, allowed: Sequence[Room], free: Sequence[Room]) -> float:
        """When it could start at the latest, if all who run use up their limits; inf if that is not known."""
        times = []
        for room in allowed:
            if room in free:
                times.append(0.0)
            elif not room.sick:
                ends = [one.ends_in_s for one in self._running if room.uuid in one.gpus]
                times.append(min((math.inf if end is None else end for end in ends), default=math.inf))
        times.sort()
        return times[request.gpus - 1] if len(times) >= request.gpus else math.inf

    def _why(self, job: Waiting, allowed: Sequence[Room], free: Sequence[Room]) -> str:
        """One sentence for the person who asks."""
        request = job.request
        if len(allowed) < request.gpus:
            return f"needs {wanted(request)}; there are {len(allowed)} that it may use"
        holding_back = [self._kept[room.uuid].id for room in free if room.uuid in self._kept]
        if holding_back:
            return f"behind #{holding_back[0]}, which waits for the same GPUs"
        troubles = [f"GPU {room.index} {room.why_not}" for room in allowed if room.why_not is not None]
        short = [room for room in allowed if room.usable and not room.fits(request)]
        troubles += [f"GPU {room.index} has {_free_memory(room)}" for room in short]
        return "; ".join([f"needs {wanted(request)}, {len(free)} free", *troubles])


def _emptiest(count: int, rooms: Sequence[Room]) -> list[Room] | None:
    """So that jobs share a GPU only when they must."""
    in_order = sorted(rooms, key=lambda room: (room.slots - len(room.free_slots), room.index))
    return in_order[:count] if len(in_order) >= count else None


def free_slots(slots: int, taken: Collection[int]) -> tuple[int, ...]:
    """Slots to be had; none while more are taken than there are, as after a setting was lowered."""
    free = [slot for slot in range(slots) if slot not in taken]
    return tuple(free[: max(0, slots - len(taken))])


def is_of_type(name: str | None, wanted_type: str | None) -> bool:
    """Whether a GPU of this name is what `--gpu-type` means: 1080ti is a GeForce GTX 1080 Ti."""
    if wanted_type is None:
        return True
    return name is not None and _letters(wanted_type) in _letters(name)


def _letters(text: str) -> str:
    return "".join(char for char in text.lower() if char.isalnum())


def _free_memory(room: Room) -> str:
    return "an unknown amount of memory" if room.memory_mib is None else f"{format_mib(room.memory_mib)} left"


def counted(count: int) -> str:
    """So many GPUs, in words."""
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def wanted(request: Request) -> str:
    """The GPUs that are asked for, in words."""
    words = counted(request.gpus)
    if request.gpu_type:
        words += f" of type {request.gpu_type}"
    if request.gpu_mem_mib:
        words += f" with {format_mib(request.gpu_mem_mib)}"
    return words
