"""When a GPU will have room for a job, and which jobs to preempt for that. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runner.schedule.choice import Room, Running
    from runner.schedule.request import Request


def has_room(room: Room, request: Request, without: Iterable[Running]) -> bool:
    """Return whether a job would find a slot and enough memory here if these jobs were gone."""
    gone = [one for one in without if room.uuid in one.gpus]
    return bool(room.free_slots or gone) and has_memory(room, request, gone)


def has_memory(room: Room, request: Request, without: Iterable[Running]) -> bool:
    """Return whether there would be enough memory if these jobs were gone."""
    need_mib = room.need_mib(request)
    if need_mib is None:
        return True
    if room.memory_mib is None:
        return request.gpu_mem_mib is None
    return need_mib <= room.memory_mib + sum(
        promised_mib(room, one.request) for one in without if room.uuid in one.gpus
    )


def promised_mib(room: Room, request: Request) -> int:
    """Return the MiB that this job takes away from others on the GPU."""
    return (room.share_mib or 0) if request.gpu_mem_mib is None else request.gpu_mem_mib


def frees_in_s(room: Room, request: Request, running: Sequence[Running], ends: Mapping[int, float]) -> float:
    """Return in how many seconds there is room at the latest, by the time limits of running jobs; inf if unknown.

    `ends`: earlier ends for jobs that are stopping or can be preempted.
    """
    if has_room(room, request, ()):
        return 0.0

    def end_of(one: Running) -> float:
        return ends.get(one.id, math.inf if one.ends_in_s is None else one.ends_in_s)

    here = sorted((one for one in running if room.uuid in one.gpus), key=end_of)
    for count, one in enumerate(here, 1):
        if has_room(room, request, here[:count]):
            return end_of(one)
    return math.inf


def choose_victims(
    rooms: Sequence[Room], request: Request, missing: int, leaving: Sequence[Running], preemptible: Sequence[Running]
) -> list[Running] | None:
    """Return which jobs to preempt so that a job gets `missing` of these GPUs, or None if preempting all is not enough.

    Preempt the lowest priority first, then the jobs that started last: they lose the least work. Preempt no job
    without need.
    """

    def enough(victims: Sequence[Running]) -> bool:
        return sum(has_room(room, request, [*leaving, *victims]) for room in rooms) >= missing

    victims = sorted(preemptible, key=lambda one: (one.request.priority, one.ran_s, one.waited_s))
    if not enough(victims):
        return None
    for one in reversed(victims):
        others = [other for other in victims if other is not one]
        if enough(others):
            victims = others
    return victims
