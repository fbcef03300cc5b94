"""The scheduler as it was before it had an index: each start looks at every GPU and every running job.

`tests/property/test_choose_oracle.py` compares the plans of `runner.schedule.choice` with these.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from runner.schedule.choice import (
    BoxLimits,
    Plan,
    Preemption,
    Room,
    Running,
    Start,
    Waiting,
    is_full,
    is_of_type,
    wanted,
)
from runner.schedule.order import START_USE_S, by_usage, priority_of
from runner.schedule.quotas import Reservation
from runner.units import format_mib

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runner.schedule.request import Request
    from runner.schedule.room import CpuSlot


def choose(
    queued: Sequence[Waiting], rooms: Sequence[Room], cpu_slots: Sequence[CpuSlot],
    running: Sequence[Running] = (), limits: BoxLimits | None = None, *, explain: bool = True,
) -> Plan:  # fmt: skip
    """Start jobs in order, as long as there is room.

    Higher priorities go first. Within a priority, the owner with the least recent usage goes first. Each owner's jobs
    go by position. A job that cannot start reserves the free GPUs that it could use. So it is not overtaken for ever.
    Later jobs may use those GPUs only if their time limit guarantees they finish first, or if they are preemptible.
    A job that waits for a sick GPU, or for more memory than there is, reserves nothing: it might wait for ever and
    block healthy GPUs.

    `explain=False` skips the jobs behind the last one that could start, and so gives no reasons for them.
    """
    limits = limits or BoxLimits()
    scene = OraclePass(rooms, cpu_slots, running, limits)
    cpu_too = any(not job.request.gpus for job in queued)
    for job in by_usage(queued, scene.use, limits.age_s):
        if not explain and scene.is_full(cpu_too=cpu_too):
            break
        scene.consider(job)
    return scene.plan


class OraclePass:
    """One pass over the queue: what is still free, and which job waits for what."""

    def __init__(
        self, rooms: Sequence[Room], cpu_slots: Sequence[CpuSlot], running: Sequence[Running], limits: BoxLimits
    ) -> None:
        self.plan = Plan()
        self.use: defaultdict[str, float] = defaultdict(float, limits.use)
        self._limits, self._running = limits, list(running)
        self._rooms = {room.uuid: room for room in rooms}
        self._cpu_slots = list(cpu_slots)
        self._cpu_nodes = list(dict.fromkeys(slot.node for slot in cpu_slots))
        self._reserved: dict[str, Reservation] = {}  # GPU -> the first job that it is reserved for
        self._awaited: set[str] = set()  # GPUs whose jobs must not be preempted for later jobs
        self._leaving: set[int] = {job.id for job in running if job.stopping}  # and those that this pass preempts
        self._quotas = OracleQuotas(limits, self._running)
        self._blocked: dict[tuple[Request, int], str] = {}  # why all jobs of a kind wait, until the next start

    def is_full(self, *, cpu_too: bool) -> bool:
        """Return whether nothing more can start or be preempted in this pass."""
        return is_full(self._rooms.values(), self._cpu_slots if cpu_too else (), self._running)

    # -- one job -----------------------------------------------------------------------------------

    def consider(self, job: Waiting) -> None:
        """Start a job, or note why it waits and reserve what it needs."""
        priority = priority_of(job, self._limits.age_s)
        if why := self._blocked.get((job.request, priority)) or self._quotas.why_not(job):
            self._wait(job, priority, why)
        elif job.request.gpus:
            self._give_gpus(job, priority)
        elif slots := [slot for slot in self._cpu_slots if job.request.node in (None, slot.node)]:
            free = Counter(slot.node for slot in self._cpu_slots)
            slot = min(slots, key=lambda slot: (-free[slot.node], self._cpu_nodes.index(slot.node)))
            self._cpu_slots.remove(slot)
            self._start(job, (("", slot.slot),), (), slot.node)
        else:
            where = f" on {job.request.node}" if job.request.node else ""
            self._wait(job, priority, f"waits for a CPU slot{where}")
            self._quotas.reserve(Reservation(job.id, job.request))

    def _wait(self, job: Waiting, priority: int, why: str) -> None:
        """Note why this job waits, and all others like it."""
        self.plan.waiting[job.id] = self._blocked[job.request, priority] = why

    def _give_gpus(self, job: Waiting, priority: int) -> None:
        request = job.request
        allowed = [room for room in self._rooms.values() if suits(room, request)]
        free = [room for room in allowed if room.usable and fits(room, request)]
        open_to_it = [room for room in free if self._may_take(room, request, priority)]
        if chosen := self._best(request, open_to_it):
            self._start(job, tuple((room.uuid, room.free_slots[0]) for room in chosen), chosen, chosen[0].node)
            return
        self.plan.waiting[job.id] = self._why(request, allowed, free, open_to_it)
        able = [room for room in allowed if not room.sick and fits(room, request, self._running)]
        if any(len(rooms) >= request.gpus for rooms in by_node(able).values()):
            self._reserve(job, priority, able, free)

    def _best(self, request: Request, open_to_it: Sequence[Room]) -> list[Room]:
        """Return the GPUs for a job, all of one node, or none if no node has enough."""
        candidates = [
            sorted(rooms, key=self._reluctance)[: request.gpus]
            for rooms in by_node(open_to_it).values()
            if len(rooms) >= request.gpus
        ]
        named = [room for room in self._rooms.values() if is_named(room, request)]
        nodes = list(by_node(named))
        free = Counter(room.node for room in named if room.usable)

        def rank(rooms: Sequence[Room]) -> tuple[int, int, int, int]:
            reserved = sum(room.uuid in self._reserved for room in rooms)
            jobs = sum(room.slots - len(room.free_slots) for room in rooms)
            return reserved, jobs, free[rooms[0].node], nodes.index(rooms[0].node)

        return min(candidates, key=rank, default=[])

    def _reluctance(self, room: Room) -> tuple[bool, int, int]:
        """Sort reserved GPUs last, and GPUs with fewer jobs first."""
        return room.uuid in self._reserved, room.slots - len(room.free_slots), room.index

    def _start(self, job: Waiting, slots: tuple[tuple[str, int], ...], rooms: Sequence[Room], node: str | None) -> None:
        request = job.request
        self.plan.starts.append(Start(job.id, slots, request.gpu_mem_mib, node))
        self.use[request.owner] += START_USE_S * request.gpus
        uuids = tuple(room.uuid for room in rooms)
        self._running.append(Running(job.id, request, uuids, request.limit_s, job.waited_s))
        self._blocked.clear()
        for room in rooms:
            left_mib = None if room.memory_mib is None else max(0, room.memory_mib - room.promised_mib(request))
            # two jobs that start together on one GPU would both count the same memory as free
            why_not = f"has #{job.id} just starting on it" if room.slots > 1 else None
            self._rooms[room.uuid] = room.left(room.free_slots[1:], left_mib, why_not)

    # -- reservations and preemption ---------------------------------------------------------------

    def _may_take(self, room: Room, request: Request, priority: int) -> bool:
        """Return whether a job may use a GPU: it is not reserved, or the job is sure to leave it in time."""
        reservation = self._reserved.get(room.uuid)
        if reservation is None or reservation.outlasts(request):
            return True
        # not while the reserving job could start at once: it would preempt this one immediately
        return request.preemptible and reservation.priority > priority and reservation.starts_in_s > 0

    def _reserve(self, job: Waiting, priority: int, able: Sequence[Room], free: Sequence[Room]) -> None:
        """Reserve free GPUs of one node for a job, and preempt others there if that makes enough room."""
        request = job.request
        lower = [other for other in self._running if self._may_be_preempted(other, priority)]
        leaving = [other for other in self._running if other.id in self._leaving]
        prospects = [
            (rank, rooms, coming, unreserved, victims)
            for node in by_node(room for room in self._rooms.values() if suits(room, request))
            for rooms in [[room for room in able if room.node == node]]
            if len(rooms) >= request.gpus
            for coming, unreserved in [self._claimable(rooms, free)]
            if coming or unreserved
            for victims in [choose_victims(coming, request, request.gpus - len(unreserved), leaving, lower)]
            for rank in [self._rank(request, rooms, coming, unreserved, victims, leaving, lower)]
        ]
        if not prospects:  # earlier jobs have reserved everything
            self._blocked[request, priority] = self.plan.waiting[job.id]
            self._quotas.reserve(Reservation(job.id, request, priority))
            return
        _, rooms, coming, unreserved, victims = min(prospects, key=lambda prospect: prospect[0])
        missing = request.gpus - len(unreserved)
        if victims is None:
            # GPUs that are shared and too full for it: if others kept using them, it would wait for ever
            frees = self._frees(request, rooms, leaving, lower)
            short = sorted((room for room in coming if room.usable), key=lambda room: frees[room.uuid])
            starts_in_s = sorted(frees.values())[request.gpus - 1]
            taken = short[:missing]
            self._awaited |= frees.keys()
        else:
            starts_in_s = 0.0
            gone = [*leaving, *victims]
            taken = sorted(coming, key=lambda room: not has_room(room, request, gone))[:missing]
            self._awaited |= {room.uuid for room in taken}
            self._leaving |= {victim.id for victim in victims}
            self.plan.preemptions.extend(Preemption(victim.id, job.id) for victim in victims)
        reservation = Reservation(job.id, request, priority, starts_in_s)
        self._reserved |= {room.uuid: reservation for room in (*unreserved, *taken)}
        self._quotas.reserve(reservation)

    def _claimable(self, rooms: Sequence[Room], free: Sequence[Room]) -> tuple[list[Room], list[Room]]:
        """Return the GPUs that will be free and those that are, without those that earlier jobs have reserved."""
        claimed = self._awaited | self._reserved.keys()
        coming = [room for room in rooms if room not in free and room.uuid not in claimed]
        return coming, [room for room in free if room in rooms and room.uuid not in self._reserved]

    def _rank(
        self, request: Request, rooms: Sequence[Room], coming: Sequence[Room], unreserved: Sequence[Room],
        victims: Sequence[Running] | None, leaving: Sequence[Running], lower: Sequence[Running],
    ) -> tuple[object, ...]:  # fmt: skip
        """Sort nodes: least loss by preempting, then enough GPUs that no earlier job waits for, then the soonest."""
        if victims is not None:
            return False, sorted(((job.request.priority, job.ran_s, job.waited_s) for job in victims), reverse=True)
        crowded = len(coming) + len(unreserved) < request.gpus
        starts_in_s = sorted(self._frees(request, rooms, leaving, lower).values())[request.gpus - 1]
        return True, crowded, starts_in_s, request.gpus - len(unreserved)

    def _frees(
        self, request: Request, rooms: Sequence[Room], leaving: Sequence[Running], lower: Sequence[Running]
    ) -> dict[str, float]:
        ends = {other.id: 0.0 for other in (*leaving, *lower)}
        return {room.uuid: frees_in_s(room, request, self._running, ends) for room in rooms}

    def _may_be_preempted(self, job: Running, priority: int) -> bool:
        lower = priority_of(job, self._limits.age_s) < priority
        return job.request.preemptible and lower and job.id not in self._leaving

    def _why(self, request: Request, allowed: Sequence[Room], free: Sequence[Room], open_to_it: Sequence[Room]) -> str:
        """Return one sentence for people about why a job waits."""
        together = " on one node" if len(by_node(allowed)) > 1 and request.gpus > 1 else ""
        if (most := largest(allowed)) < request.gpus:
            return f"needs {wanted(request)}; there are {most} that it may use{together}"
        if (most := largest(free)) >= request.gpus:
            enough = [room for rooms in by_node(free).values() if len(rooms) >= request.gpus for room in rooms]
            first = next(self._reserved[room.uuid].id for room in free if room in enough and room not in open_to_it)
            return f"behind #{first}, which waits for the same GPUs"
        troubles = _troubles(allowed)
        short = [room for room in allowed if room.usable and not fits(room, request)]
        troubles += [f"GPU {room.label} has {_free_memory(room)}" for room in short]
        return "; ".join([f"needs {wanted(request)}, {most} free{together}", *troubles])


def by_node(rooms: Iterable[Room]) -> dict[str | None, list[Room]]:
    nodes: dict[str | None, list[Room]] = {}
    for room in rooms:
        nodes.setdefault(room.node, []).append(room)
    return nodes


def largest(rooms: Iterable[Room]) -> int:
    return max(map(len, by_node(rooms).values()), default=0)


def frees_in_s(room: Room, request: Request, running: Sequence[Running], ends: Mapping[int, float]) -> float:
    """Return in how many seconds there is room at the latest, by the time limits of running jobs; inf if unknown.

    `ends`: earlier ends for jobs that are stopping or can be preempted.
    """
    if has_room(room, request, ()):
        return 0.0

    def end_of(job: Running) -> float:
        return ends.get(job.id, math.inf if job.ends_in_s is None else job.ends_in_s)

    here = sorted((job for job in running if room.uuid in job.gpus), key=end_of)
    return next((end_of(job) for count, job in enumerate(here, 1) if has_room(room, request, here[:count])), math.inf)


def choose_victims(
    rooms: Sequence[Room], request: Request, missing: int, leaving: Sequence[Running], preemptible: Sequence[Running]
) -> list[Running] | None:
    """Return which jobs to preempt so that a job gets `missing` of these GPUs, or None if preempting all is not enough.

    Preempt the lowest priority first, then the jobs that started last: they lose the least work. Preempt no job
    without need.
    """

    def enough(victims: Sequence[Running]) -> bool:
        return sum(has_room(room, request, [*leaving, *victims]) for room in rooms) >= missing

    victims = sorted(preemptible, key=lambda job: (job.request.priority, job.ran_s, job.waited_s))
    if not enough(victims):
        return None
    for victim in reversed(victims):
        others = [other for other in victims if other is not victim]
        if enough(others):
            victims = others
    return victims


def is_named(room: Room, request: Request) -> bool:
    return room.matches(request.on) and request.node in (None, room.node)


def suits(room: Room, request: Request) -> bool:
    return is_named(room, request) and is_of_type(room.name, request.gpu_type)


def fits(room: Room, request: Request, without: Iterable[Running] = ()) -> bool:
    need_mib = room.need_mib(request)
    if need_mib is None:
        return True
    if room.memory_mib is None:
        return request.gpu_mem_mib is None
    freed_mib = sum(room.promised_mib(job.request) for job in without if room.uuid in job.gpus)
    return need_mib <= room.memory_mib + freed_mib


def has_room(room: Room, request: Request, without: Iterable[Running]) -> bool:
    gone = [job for job in without if room.uuid in job.gpus]
    return bool(room.free_slots or gone) and fits(room, request, gone)


def _troubles(rooms: Iterable[Room]) -> list[str]:
    """Return why these GPUs cannot be used, each reason once, because it is often the same for all."""
    by_reason: dict[str, list[str]] = {}
    for room in rooms:
        if room.why_not is not None:
            by_reason.setdefault(room.why_not.rstrip("."), []).append(room.label)
    return [f"GPU {', '.join(which)}{':' if why[:1].isupper() else ''} {why}" for why, which in by_reason.items()]


def _free_memory(room: Room) -> str:
    return "an unknown amount of memory" if room.memory_mib is None else f"{format_mib(room.memory_mib)} left"


class OracleQuotas:
    """What is left of each limit, and for which job it is reserved."""

    def __init__(self, limits: BoxLimits, running: list[Running]) -> None:
        self._limits, self._running = limits, running  # the list grows as jobs start
        self._groups: dict[str, Reservation] = {}
        self._shares: dict[str, Reservation] = {}
        self._host: Reservation | None = None

    def why_not(self, job: Waiting) -> str | None:
        """Return why a limit keeps a job from starting, even if GPUs are free. Such a job reserves no GPU."""
        return self._beyond_group(job.request) or self._beyond_share(job) or self._beyond_host(job)

    def reserve(self, reservation: Reservation) -> None:
        """Reserve what a job will need once there is room for it, so that later jobs leave it."""
        request = reservation.request
        if request.group is not None:
            self._groups.setdefault(request.group, reservation)
        if request.gpus:
            self._shares.setdefault(request.owner, reservation)
        self._reserve_host(reservation)

    # -- a group -----------------------------------------------------------------------------------

    def _beyond_group(self, request: Request) -> str | None:
        group, at_most = request.group, self._limits.groups.get(request.group or "")
        if group is None or at_most is None:
            return None
        running = sum(job.request.group == group for job in self._running)
        if running >= at_most:
            return f"at most {at_most} of {group} at once"
        reservation = self._groups.get(group)
        if reservation and running + 2 > at_most:
            return f"behind #{reservation.id}, for which a place in {group} is reserved"
        return None

    # -- a person's share --------------------------------------------------------------------------

    def _beyond_share(self, job: Waiting) -> str | None:
        request = job.request
        if not request.gpus:
            return None
        reservation = self._shares.get(request.owner)
        if reservation and _counts_for(reservation.request, request):
            left = self._left_of_share(reservation.request)
            if reservation.request.gpus + request.gpus > left:
                return f"behind #{reservation.id}, for which {request.owner}'s share is reserved"
        left = self._left_of_share(request)
        if request.gpus <= left:
            return None
        at_most = self._share(request)
        if request.gpus <= at_most:
            self._shares.setdefault(request.owner, Reservation(job.id, request))
        gpus = "1 GPU" if at_most == 1 else f"{at_most:.0f} GPUs"
        return f"{request.owner} has {at_most - left:.0f} of at most {gpus} at once"

    def _share(self, request: Request) -> float:
        at_most = self._limits.gpus_each_low if request.rank < 0 else self._limits.gpus_each
        return math.inf if at_most is None else at_most

    def _left_of_share(self, request: Request) -> float:
        mine = [job for job in self._running if job.request.owner == request.owner]
        return self._share(request) - sum(len(job.gpus) for job in mine if _counts_for(request, job.request))

    # -- the host ----------------------------------------------------------------------------------

    def _beyond_host(self, job: Waiting) -> str | None:
        request, limits, reservation = job.request, self._limits, self._host
        if not (request.cpus or request.ram_mib):
            return None
        cpus = math.inf if limits.cpus is None else limits.cpus - sum(other.request.cpus for other in self._running)
        used_mib = sum(other.request.ram_mib for other in self._running)
        ram_mib = math.inf if limits.ram_mib is None else limits.ram_mib - used_mib
        why = None
        if request.cpus > max(0, cpus):
            why = f"needs {request.cpus} CPU cores, {max(0, cpus)} free"
        elif request.ram_mib > max(0, ram_mib):
            why = f"needs {format_mib(request.ram_mib)} of memory, {format_mib(int(max(0, ram_mib)))} free"
        elif reservation:
            takes_cpus = request.cpus and request.cpus + reservation.request.cpus > cpus
            takes_ram = request.ram_mib and request.ram_mib + reservation.request.ram_mib > ram_mib
            if takes_cpus or takes_ram:
                return f"behind #{reservation.id}, for which CPU cores or memory are reserved"
        if why:
            self._reserve_host(Reservation(job.id, request))
        return why

    def _reserve_host(self, reservation: Reservation) -> None:
        request, limits = reservation.request, self._limits
        ever = request.cpus <= (limits.cpus or math.inf) and request.ram_mib <= (limits.ram_mib or math.inf)
        if self._host is None and (request.cpus or request.ram_mib) and ever:
            self._host = reservation


def _counts_for(request: Request, other: Request) -> bool:
    """Return whether another job of the same owner counts when this request is checked against the owner's share."""
    return request.rank < 0 or other.rank >= 0
