"""What must be true of every answer of the scheduler, worked out anew from what it was asked.

Nothing here uses the scheduler's own way of reckoning: the order is found by looking at everybody each time, and
promises by letting everybody run to the limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from runner.schedule.choice import Plan, Running, Start, Waiting
from runner.schedule.request import Request
from runner.schedule.room import BoxLimits, CpuSlot, Room
from runner.units import format_mib

START_USE_S = 600.0
HIGHEST = 3


@dataclass
class Pass:
    """What the scheduler is asked."""

    queued: Sequence[Waiting]
    rooms: Sequence[Room]
    cpu_slots: Sequence[CpuSlot]
    running: Sequence[Running]
    limits: BoxLimits


@dataclass
class Scene:
    """The box at one point of the pass: those before have had their turn."""

    asked: Pass
    running: list[Running] = field(default_factory=list)
    begun: dict[int, Start] = field(default_factory=dict)
    waiting: list[Waiting] = field(default_factory=list)  # those before it that wait
    heads: list[Waiting] = field(default_factory=list)  # ... for GPUs, and keep them

    def begin(self, job: Waiting, start: Start) -> None:
        gpus = tuple(uuid for uuid, _ in start.slots if uuid)
        self.running.append(Running(job.id, job.request, gpus, job.request.limit_s, job.waited_s))
        self.begun[job.id] = start

    @property
    def cpus(self) -> float:
        limit = self.asked.limits.cpus
        return math.inf if limit is None else limit - sum(one.request.cpus for one in self.running)

    @property
    def ram_mib(self) -> float:
        limit = self.asked.limits.ram_mib
        return math.inf if limit is None else limit - sum(one.request.ram_mib for one in self.running)

    def suited(self, request: Request) -> list[Room]:
        return [room for room in self.asked.rooms if _suits(room, request)]

    def is_usable(self, room: Room) -> bool:
        just_started = [start for start in self.begun.values() if room.uuid in dict(start.slots)]
        return room.why_not is None and len(room.free_slots) > len(just_started) * (room.slots if just_started else 1)

    def left_mib(self, room: Room) -> int:
        assert room.memory_mib is not None
        return room.memory_mib - sum(
            _promised(room, one.request) for one in self.running if one.id in self.begun and room.uuid in one.gpus
        )

    def is_free(self, room: Room, request: Request) -> bool:
        return self.is_usable(room) and _need(room, request) <= self.left_mib(room)

    def free(self, request: Request) -> list[Room]:
        return [room for room in self.suited(request) if self.is_free(room, request)]


def _suits(room: Room, request: Request) -> bool:
    named = not request.on or str(room.index) in request.on or room.uuid in request.on
    letters = "".join(char for char in (room.name or "").lower() if char.isalnum())
    return named and (request.gpu_type is None or request.gpu_type in letters)


def _need(room: Room, request: Request) -> int:
    if request.gpu_mem_mib is not None:
        return request.gpu_mem_mib
    assert room.share_mib is not None
    return room.share_mib if room.slots > 1 else 0


def _promised(room: Room, request: Request) -> int:
    assert room.share_mib is not None
    return room.share_mib if request.gpu_mem_mib is None else request.gpu_mem_mib


def _level(job: Waiting | Running, limits: BoxLimits) -> int:
    own = 2 * job.request.rank + (not job.request.preemptible)
    return min(own + 2 * math.floor(job.waited_s / limits.age_s), max(own, HIGHEST))


def _turns(asked: Pass, plan: Plan) -> Iterator[Waiting]:
    """Whose turn it is, one after the other: the level, then who had least, then the place."""
    use, left = dict(asked.limits.use), list(asked.queued)
    begun = {start.job_id for start in plan.starts}
    while left:
        highest = max(_level(job, asked.limits) for job in left)
        peers = [job for job in left if _level(job, asked.limits) == highest]
        firsts = {}
        for job in sorted(peers, key=lambda job: (job.position, job.id), reverse=True):
            firsts[job.request.owner] = job
        job = min(firsts.values(), key=lambda job: (use.get(job.request.owner, 0.0), job.position, job.id))
        left.remove(job)
        yield job
        if job.id in begun:
            use[job.request.owner] = use.get(job.request.owner, 0.0) + START_USE_S * job.request.gpus


def check(asked: Pass, plan: Plan) -> None:
    """AssertionError says which rule is broken."""
    starts = {start.job_id: start for start in plan.starts}
    assert starts.keys() | plan.waiting.keys() == {job.id for job in asked.queued}
    assert not starts.keys() & plan.waiting.keys()
    _check_order_of_equals(asked, plan)
    scene, promises = Scene(asked, list(asked.running)), []
    for job in _turns(asked, plan):
        if job.id in starts:
            _check_start(scene, job, starts[job.id])
            scene.begin(job, starts[job.id])
        else:
            _check_reason(scene, job, plan.waiting[job.id])
            scene.waiting.append(job)
            if _keeps(scene, job, plan.waiting[job.id]):
                if job.request.gpus and not any(_share_rooms(scene, job, other) for other in scene.waiting[:-1]):
                    promises.append((job, _starts_in_s(scene, job)))
                scene.heads.append(job)
    _check_limits(scene)
    for job, promised_s in promises:
        assert _starts_in_s(scene, job) <= promised_s, f"#{job.id} is delayed by those behind it"
    _check_preemptions(scene, plan)


# -- what is given -----------------------------------------------------------------------------------------------------


def _check_start(scene: Scene, job: Waiting, start: Start) -> None:
    request = job.request
    assert start.memory_mib == request.gpu_mem_mib
    taken = {slot for other in scene.begun.values() for slot in other.slots}
    assert not taken & set(start.slots), "a slot given twice"
    if request.gpus == 0:
        [(uuid, slot)] = start.slots
        assert uuid == ""
        assert CpuSlot(slot, start.node) in scene.asked.cpu_slots
        return
    rooms = {room.uuid: room for room in scene.asked.rooms}
    assert len({uuid for uuid, _ in start.slots}) == len(start.slots) == request.gpus
    for uuid, slot in start.slots:
        assert _suits(rooms[uuid], request), "a GPU that it must not have"
        assert scene.is_free(rooms[uuid], request), "a GPU that is not free"
        assert slot in rooms[uuid].free_slots


def _check_limits(scene: Scene) -> None:
    """Beyond nothing, unless those who ran before were."""
    limits, running = scene.asked.limits, scene.running
    begun = [one for one in running if one.id in scene.begun]
    assert scene.cpus >= 0 or not any(one.request.cpus for one in begun)
    assert scene.ram_mib >= 0 or not any(one.request.ram_mib for one in begun)
    for room in scene.asked.rooms:
        if any(room.uuid in one.gpus for one in begun):
            holders = [one for one in running if room.uuid in one.gpus]
            assert len(holders) <= room.slots
            assert room.slots == 1 or scene.left_mib(room) >= 0
    for name, at_most in limits.groups.items():
        assert sum(one.request.group == name for one in running) <= at_most
    for one in begun:
        owned = [other for other in running if other.request.owner == one.request.owner]
        if one.request.rank < 0 and limits.gpus_each_low is not None and one.request.gpus:
            counted = owned[: owned.index(one) + 1]
            assert sum(len(other.gpus) for other in counted) <= limits.gpus_each_low
        if one.request.rank >= 0 and limits.gpus_each is not None and one.request.gpus:
            assert sum(len(other.gpus) for other in owned if other.request.rank >= 0) <= limits.gpus_each


def _check_order_of_equals(asked: Pass, plan: Plan) -> None:
    begun = {start.job_id for start in plan.starts}
    equals: dict[object, list[Waiting]] = {}
    for job in sorted(asked.queued, key=lambda job: (job.position, job.id)):
        equals.setdefault((job.request, _level(job, asked.limits)), []).append(job)
    for jobs in equals.values():
        flags = [job.id in begun for job in jobs]
        assert flags == sorted(flags, reverse=True), "a later equal job goes first"


# -- why they wait -----------------------------------------------------------------------------------------------------


def _check_reason(scene: Scene, job: Waiting, why: str) -> None:
    kinds = {
        r"at most (\d+) of (\w+) at once": _true_of_group,
        r"(\w+) has (\d+) of at most (\d+) GPUs? at once": _true_of_share,
        r"behind #(\d+), for which a place in (\w+) is reserved": _true_behind_group,
        r"behind #(\d+), for which (\w+)'s share is reserved": _true_behind_share,
        r"needs (\d+) CPU cores, (\d+) free": _true_of_cpus,
        r"needs (\S+ \S+) of memory, (\S+ \S+) free": _true_of_ram,
        r"behind #(\d+), for which CPU cores or memory are reserved": _true_behind_host,
        r"waits for a (CPU) slot": _true_of_cpu_slot,
        r"needs (.+); there are (\d+) that it may use": _true_of_kind,
        r"behind #(\d+), which waits for the same GPUs": _true_behind,
        r"needs (\d+) GPU.*?, (\d+) free(.*)": _true_of_gpus,
    }
    for pattern, is_true in kinds.items():
        if found := re.fullmatch(pattern, why):
            assert is_true(scene, job, *found.groups()), f"#{job.id} {job.request} is told: {why}"
            return
    raise AssertionError(f"not a reason: {why}")


def _true_of_group(scene: Scene, job: Waiting, at_most: str, name: str) -> bool:
    in_it = sum(one.request.group == name for one in scene.running)
    return job.request.group == name and in_it >= int(at_most) == scene.asked.limits.groups[name]


def _cap(request: Request, limits: BoxLimits) -> int | None:
    return limits.gpus_each_low if request.rank < 0 else limits.gpus_each


def _of_share(running: Sequence[Running], request: Request) -> list[Running]:
    mine = [one for one in running if one.request.owner == request.owner]
    return [one for one in mine if request.rank < 0 or one.request.rank >= 0]


def _held(scene: Scene, request: Request) -> int:
    return sum(len(one.gpus) for one in _of_share(scene.running, request))


def _true_of_share(scene: Scene, job: Waiting, owner: str, held: str, at_most: str) -> bool:
    beyond = int(held) + job.request.gpus > int(at_most) == _cap(job.request, scene.asked.limits)
    return beyond and owner == job.request.owner and int(held) == _held(scene, job.request)


def _waits_before(scene: Scene, number: str) -> Waiting | None:
    return next((one for one in scene.waiting if one.id == int(number)), None)


def _true_behind_share(scene: Scene, job: Waiting, number: str, owner: str) -> bool:
    first = _waits_before(scene, number)
    if first is None or not first.request.owner == owner == job.request.owner:
        return False
    at_most = _cap(first.request, scene.asked.limits)
    would_count = first.request.rank < 0 or job.request.rank >= 0
    both = first.request.gpus + job.request.gpus
    return at_most is not None and would_count and _held(scene, first.request) + both > at_most


def _true_behind_group(scene: Scene, job: Waiting, number: str, name: str) -> bool:
    first = _waits_before(scene, number)
    if first is None or first not in scene.heads or not first.request.group == name == job.request.group:
        return False
    return sum(one.request.group == name for one in scene.running) + 1 == scene.asked.limits.groups[name]


def _true_of_cpus(scene: Scene, job: Waiting, needs: str, free: str) -> bool:
    return int(needs) == job.request.cpus > int(free) == max(0, scene.cpus)


def _true_of_ram(scene: Scene, job: Waiting, needs: str, free: str) -> bool:
    told = needs == format_mib(job.request.ram_mib) and free == format_mib(int(max(0, scene.ram_mib)))
    return told and job.request.ram_mib > scene.ram_mib


def _true_behind_host(scene: Scene, job: Waiting, number: str) -> bool:
    first = _waits_before(scene, number)
    if first is None:
        return False
    cpus, ram_mib = scene.cpus - job.request.cpus, scene.ram_mib - job.request.ram_mib
    return (job.request.cpus > 0 and cpus < first.request.cpus) or (
        job.request.ram_mib > 0 and ram_mib < first.request.ram_mib
    )


def _true_of_cpu_slot(scene: Scene, job: Waiting, _: str) -> bool:
    given = sum(start.slots[0][0] == "" for start in scene.begun.values())
    return job.request.gpus == 0 and given == len(scene.asked.cpu_slots)


def _true_of_kind(scene: Scene, job: Waiting, _: str, there_are: str) -> bool:
    return int(there_are) == len(scene.suited(job.request)) < job.request.gpus


def _true_behind(scene: Scene, job: Waiting, number: str) -> bool:
    first, free = _waits_before(scene, number), scene.free(job.request)
    if first is None or first not in scene.heads:
        return False
    return len(free) >= job.request.gpus and any(_suits(room, first.request) for room in free)


def _true_of_gpus(scene: Scene, job: Waiting, needs: str, free: str, rest: str) -> bool:
    counted = int(needs) == job.request.gpus > int(free) == len(scene.free(job.request))
    for room in scene.suited(job.request):
        troubled = room.why_not is not None or (scene.is_usable(room) and not scene.is_free(room, job.request))
        if troubled and not re.search(rf"GPU (?:\d+, )*{room.index}\b", rest):
            return False
    return counted


# -- what they are promised --------------------------------------------------------------------------------------------


def _keeps(scene: Scene, job: Waiting, why: str) -> bool:
    """Whether it waits for GPUs that it will have: not for a limit, the host, a sick GPU, or memory that none has."""
    waits_for_room = why.endswith(("the same GPUs", "CPU slot")) or re.match(r"needs \d+ GPUs?\b", why)
    return bool(waits_for_room) and len(_able(scene, job)) >= job.request.gpus


def _able(scene: Scene, job: Waiting) -> list[Room]:
    able = []
    for room in scene.suited(job.request):
        back_mib = sum(_promised(room, one.request) for one in scene.running if room.uuid in one.gpus)
        if not room.sick and _need(room, job.request) <= scene.left_mib(room) + back_mib:
            able.append(room)
    return able


def _share_rooms(scene: Scene, job: Waiting, other: Waiting) -> bool:
    host = (job.request.cpus or job.request.ram_mib) and (other.request.cpus or other.request.ram_mib)
    limits = job.request.owner == other.request.owner or (
        job.request.group and job.request.group == other.request.group
    )
    return bool(host or limits) or any(
        _suits(room, job.request) and _suits(room, other.request) for room in scene.asked.rooms
    )


def _starts_in_s(scene: Scene, job: Waiting) -> float:
    """When it could start at the latest: everybody runs to the limit, and who may be preempted is."""
    level = _level(job, scene.asked.limits)
    ends = {}
    for one in scene.running:
        lower = one.request.preemptible and _level(one, scene.asked.limits) < level
        ends[one.id] = 0.0 if lower or one.stopping else math.inf if one.ends_in_s is None else one.ends_in_s
    for moment in sorted({0.0, *ends.values()} - {math.inf}):
        gone = {number for number, end in ends.items() if end <= moment}
        if _could_start(scene, job, gone):
            return moment
    return math.inf


def _could_start(scene: Scene, job: Waiting, gone: set[int]) -> bool:
    request, left = job.request, [one for one in scene.running if one.id in gone]
    enough = 0
    for room in scene.suited(request):
        back = [one for one in left if room.uuid in one.gpus]
        there = [one for one in scene.running if room.uuid in one.gpus and one not in back]
        mib = scene.left_mib(room) + sum(_promised(room, one.request) for one in back)
        enough += not room.sick and len(there) < room.slots and _need(room, request) <= mib
    cpus = scene.cpus + sum(one.request.cpus for one in left)
    ram_mib = scene.ram_mib + sum(one.request.ram_mib for one in left)
    stay = [one for one in scene.running if one.id not in gone]
    in_group = sum(one.request.group == request.group for one in stay) if request.group else 0
    at_most = scene.asked.limits.groups.get(request.group or "", math.inf)
    cap = _cap(request, scene.asked.limits)
    held = sum(len(one.gpus) for one in _of_share(stay, request))
    within = in_group < at_most and (cap is None or held + request.gpus <= cap)
    return within and enough >= request.gpus and request.cpus <= cpus and request.ram_mib <= ram_mib


# -- who is preempted -----------------------------------------------------------------------------------------------


def _check_preemptions(scene: Scene, plan: Plan) -> None:
    running = {one.id: one for one in scene.asked.running}
    queued = {job.id: job for job in scene.asked.queued}
    preempted = [one.job_id for one in plan.preemptions]
    assert len(set(preempted)) == len(preempted)
    leaving = {one.id for one in scene.asked.running if one.stopping} | set(preempted)
    for preemption in plan.preemptions:
        victim, waits = running[preemption.job_id], queued[preemption.for_id]
        assert waits.id in plan.waiting
        assert victim.request.preemptible
        assert not victim.stopping
        assert _level(victim, scene.asked.limits) < _level(waits, scene.asked.limits)
        assert _has_gpus(scene, waits, leaving), f"#{victim.id} is preempted for #{waits.id} in vain"
        assert any(_suits(room, waits.request) for room in scene.asked.rooms if room.uuid in victim.gpus)


def _has_gpus(scene: Scene, job: Waiting, gone: set[int]) -> bool:
    unbound = Waiting(job.id, Request(**{**_fields(job.request), "cpus": 0, "ram_mib": 0}), job.position, job.waited_s)
    return _could_start(scene, unbound, gone)


def _fields(request: Request) -> dict[str, object]:
    return {name: getattr(request, name) for name in Request.__slots__}
