"""Which waiting job starts on which GPU, who is pushed aside for whom, and why the others wait. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from runner.schedule.preemption import frees_in_s, has_memory, has_room, promised_mib, who_leaves
from runner.schedule.quotas import Head, Quotas
from runner.schedule.request import HIGHEST_LEVEL, Request
from runner.units import format_mib

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

T = TypeVar("T")
Levels: TypeAlias = "dict[int, dict[str, list[tuple[float, int, T]]]]"  # level -> owner -> (place, number, job)

TURN_S = 600.0  # what a GPU just given to somebody counts in the comparison of who had how much
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued job."""

    id: int
    request: Request
    position: float = 0  # among its owner's of the same level the smallest goes first
    waited_s: float = 0.0  # in the queue; what it ran before it was pushed aside does not count


@dataclass(frozen=True, slots=True)
class Running:
    """A job that has its GPUs."""

    id: int
    request: Request
    gpus: tuple[str, ...]  # UUIDs
    ends_in_s: float | None = None  # at the latest; None if it has no limit
    waited_s: float = 0.0  # in the queue, before it started
    stopping: bool = False
    comes_back: bool = False  # it stops to make room, and is queued again


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
    sick: bool = False  # ... and nobody knows whether that will ever pass

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

    def left(self, slots: tuple[int, ...], memory_mib: int | None, why_not: str | None) -> Room:
        """The same when only so much of it is free; `replace` takes three times as long, and nights have many."""
        return Room(
            index=self.index, uuid=self.uuid, free_slots=slots, slots=self.slots, name=self.name,
            memory_mib=memory_mib, share_mib=self.share_mib, why_not=why_not, sick=self.sick,
        )  # fmt: skip

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
    memory_mib: int | None = None  # promised on each of them; None for its slot's share


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
    running: Sequence[Running] = (), limits: Limits | None = None, *, explain: bool = True,
) -> Plan:  # fmt: skip
    """Start jobs in order, as long as there is room.

    The higher level first; between people, who had the least of late; for each of them, in the order of
    their places. A job that cannot start keeps the free GPUs it could use from those behind it, so that it is
    not overtaken for ever. Behind it only those start there that are sure to be gone in time: by their own
    limit, or because they may be pushed aside. One that waits for a sick GPU, or for memory that none has,
    keeps nothing: it might wait for ever, and the healthy ones with it.

    Who wants no reasons is spared the jobs behind the last that could start.
    """
    limits = limits or Limits()
    scene = _Pass(rooms, cpu_slots, running, limits)
    cpu_too = any(not job.request.gpus for job in queued)
    for job in _in_turn(queued, scene.use, limits.age_s):
        if not explain and scene.is_given_away(cpu_too=cpu_too):
            break
        scene.consider(job)
    return scene.plan


def in_turn(queued: Sequence[Waiting], limits: Limits) -> Iterator[Waiting]:
    """The order in which jobs would start if each had to wait for nothing but its turn."""
    use = defaultdict(float, limits.use)
    for job in _in_turn(queued, use, limits.age_s):
        use[job.request.owner] += TURN_S * job.request.gpus
        yield job


def _in_turn(queued: Sequence[Waiting], use: Mapping[str, float], age_s: float) -> Iterator[Waiting]:
    levels: Levels[Waiting] = defaultdict(lambda: defaultdict(list))
    for job in queued:
        levels[level_of(job, age_s)][job.request.owner].append((job.position, job.id, job))
    yield from turns(levels, use)


def turns(levels: Levels[T], use: Mapping[str, float]) -> Iterator[T]:
    """Who is next, and next: by level, then by who had the least, then by place.

    Whose turn it is may depend on who has just been started: then `use` of that one has changed.
    """
    for level in sorted(levels, reverse=True):
        owners = levels[level]
        for places in owners.values():
            places.sort(reverse=True)  # the next one is the last
        following = [(use[name], *places[-1][:2], name) for name, places in owners.items()]
        heapify(following)
        while following:
            name = following[0][-1]
            places = owners[name]
            yield places.pop()[2]
            if places:
                heapreplace(following, (use[name], *places[-1][:2], name))
            else:
                heappop(following)


def level_of(job: Waiting | Running, age_s: float) -> int:
    """With time everybody's turn comes: one priority higher for each of these times it has waited."""
    level = job.request.level
    if not age_s or job.waited_s < age_s:
        return level
    return min(level + 2 * int(job.waited_s // age_s), max(HIGHEST_LEVEL, level))


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
        self._kept: dict[str, Head] = {}  # GPU -> the first that waits for more than that
        self._awaited: set[str] = set()  # GPUs whose jobs are not pushed aside for those further behind
        self._pushed: set[int] = {job.id for job in running if job.stopping}
        self._quotas = Quotas(limits, self._running)
        self._settled: dict[tuple[Request, int], str] = {}  # why all of a kind wait, until one more has started

    def is_given_away(self, *, cpu_too: bool) -> bool:
        """Whether nothing is left that anybody could start on, nor anybody to push aside."""
        return is_full(self._rooms.values(), self._cpu_slots if cpu_too else (), self._running)

    # -- one job -----------------------------------------------------------------------------------

    def consider(self, job: Waiting) -> None:
        """Start it, or say why not and keep what it waits for."""
        kind = job.request, level_of(job, self._limits.age_s)
        if why := self._settled.get(kind) or self._quotas.why_not(job):
            self.plan.waiting[job.id] = self._settled[kind] = why
        elif job.request.gpus == 0:
            self._give_cpu_slot(job)
        else:
            self._give_gpus(job)

    def _give_cpu_slot(self, job: Waiting) -> None:
        if not self._cpu_slots:
            why = "waits for a CPU slot"
            self.plan.waiting[job.id] = self._settled[job.request, level_of(job, self._limits.age_s)] = why
            self._quotas.keep_for(Head(job.id, job.request))
            return
        self._start(job, (("", self._cpu_slots.pop(0)),), ())

    def _give_gpus(self, job: Waiting) -> None:
        request, level = job.request, level_of(job, self._limits.age_s)
        allowed = [room for room in self._rooms.values() if room.suits(request)]
        free = [room for room in allowed if room.usable and room.fits(request)]
        open_to_it = [room for room in free if self._may_take(room, request, level)]
        if len(open_to_it) >= request.gpus:
            chosen = sorted(open_to_it, key=self._reluctance)[: request.gpus]
            self._start(job, tuple((room.uuid, room.free_slots[0]) for room in chosen), chosen)
            return
        self.plan.waiting[job.id] = self._why(request, allowed, free, open_to_it)
        able = [room for room in allowed if not room.sick and has_memory(room, request, self._running)]
        if len(able) >= request.gpus:
            self._keep_for(job, level, able, free)

    def _reluctance(self, room: Room) -> tuple[bool, int, int]:
        """Those last that somebody waits for; and jobs share a GPU only when they must."""
        return room.uuid in self._kept, room.slots - len(room.free_slots), room.index

    def _start(self, job: Waiting, slots: tuple[tuple[str, int], ...], rooms: Sequence[Room]) -> None:
        request = job.request
        self.plan.starts.append(Start(job.id, slots, request.gpu_mem_mib))
        self.use[request.owner] += TURN_S * request.gpus
        uuids = tuple(room.uuid for room in rooms)
        self._running.append(Running(job.id, request, uuids, request.limit_s, job.waited_s))
        self._settled.clear()
        for room in rooms:
            left = None if room.memory_mib is None else max(0, room.memory_mib - promised_mib(room, request))
            # two that start at once on one GPU would each take the other's memory for free
            why_not = f"has #{job.id} just starting on it" if room.slots > 1 else None
            self._rooms[room.uuid] = room.left(room.free_slots[1:], left, why_not)

    # -- what holds it back ------------------------------------------------------------------------

    def _may_take(self, room: Room, request: Request, level: int) -> bool:
        """Nobody waits for it, or this one is sure to be gone when that one could start."""
        head = self._kept.get(room.uuid)
        if head is None or head.outlasts(request):
            return True
        # not while that one's GPUs are about to come free: it would have to push this one aside at once
        return request.preemptible and head.level > level and head.starts_in_s > 0

    def _keep_for(self, job: Waiting, level: int, able: Sequence[Room], free: Sequence[Room]) -> None:
        """Keep what is free for it, and push aside who may be if that is then enough."""
        request = job.request
        claimed = self._awaited | self._kept.keys()
        coming = [room for room in able if room not in free and room.uuid not in claimed]
        unkept = [room for room in free if room.uuid not in self._kept]
        if not coming and not unkept:  # those before it have it all
            self._settled[request, level] = self.plan.waiting[job.id]
            self._quotas.keep_for(Head(job.id, request, level))
            return
        missing = request.gpus - len(unkept)
        lower = [one for one in self._running if self._may_be_pushed(one, level)]
        leaving = [one for one in self._running if one.id in self._pushed]
        victims = who_leaves(coming, request, missing, leaving, lower)
        if victims is None:
            # what others share and is too little for it: it would wait for ever if they went on so
            ends = {one.id: 0.0 for one in (*leaving, *lower)}
            frees = {room.uuid: frees_in_s(room, request, self._running, ends) for room in able}
            short = sorted((room for room in coming if room.usable), key=lambda room: frees[room.uuid])
            starts_in_s = sorted(frees.values())[request.gpus - 1]
            taken = short[:missing]
            self._awaited |= frees.keys()
        else:
            starts_in_s = 0.0
            gone = [*leaving, *victims]
            taken = sorted(coming, key=lambda room: not has_room(room, request, gone))[:missing]
            self._awaited |= {room.uuid for room in taken}
            self._pushed |= {one.id for one in victims}
            self.plan.pushes.extend(Push(one.id, job.id) for one in victims)
        head = Head(job.id, request, level, starts_in_s)
        self._kept |= {room.uuid: head for room in (*unkept, *taken)}
        self._quotas.keep_for(head)

    def _may_be_pushed(self, one: Running, level: int) -> bool:
        lower = level_of(one, self._limits.age_s) < level
        return one.request.preemptible and lower and one.id not in self._pushed

    def _why(self, request: Request, allowed: Sequence[Room], free: Sequence[Room], open_to_it: Sequence[Room]) -> str:
        """One sentence for the person who asks."""
        if len(allowed) < request.gpus:
            return f"needs {wanted(request)}; there are {len(allowed)} that it may use"
        if len(free) >= request.gpus:
            first = next(self._kept[room.uuid].id for room in free if room not in open_to_it)
            return f"behind #{first}, which waits for the same GPUs"
        troubles = _troubles(allowed)
        short = [room for room in allowed if room.usable and not room.fits(request)]
        troubles += [f"GPU {room.index} has {_free_memory(room)}" for room in short]
        return "; ".join([f"needs {wanted(request)}, {len(free)} free", *troubles])


def _troubles(rooms: Iterable[Room]) -> list[str]:
    """What keeps these from being used, each reason once: often it is the same one for all."""
    by_reason: dict[str, list[str]] = {}
    for room in rooms:
        if room.why_not is not None:
            by_reason.setdefault(room.why_not.rstrip("."), []).append(str(room.index))
    return [f"GPU {', '.join(which)}{':' if why[:1].isupper() else ''} {why}" for why, which in by_reason.items()]


def is_full(rooms: Iterable[Room], cpu_slots: Sequence[int], running: Iterable[Running]) -> bool:
    """Whether nothing could start, whoever waits: no slot is free, and nobody can be pushed aside."""
    if cpu_slots or any(room.usable for room in rooms):
        return False
    return not any(one.request.preemptible for one in running)


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
