"""When a GPU will have room for a job, and who would have to leave it for that. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runner.schedule.choice import Room, Running
    from runner.schedule.request import Request


def has_room(room: Room, request: Request, without: Iterable[Running]) -> bool:
    """Whether a job would find a slot and its memory here if these had left."""
    gone = [one for one in without if room.uuid in one.gpus]
    return bool(room.free_slots or gone) and has_memory(room, request, gone)


def has_memory(room: Room, request: Request, without: Iterable[Running]) -> bool:
    """Whether there would be memory enough."""
    need_mib = room.need_mib(request)
    if need_mib is None:
        return True
    if room.memory_mib is None:
        return request.gpu_mem_mib is None
    return need_mib <= room.memory_mib + sum(
        promised_mib(room, one.request) for one in without if room.uuid in one.gpus
    )


def promised_mib(room: Room, request: Request) -> int:
    """The memory that is another's no more once this job is here."""
    return (room.share_mib or 0) if request.gpu_mem_mib is None else request.gpu_mem_mib


def frees_in_s(room: Room, request: Request, running: Sequence[Running], ends: Mapping[int, float]) -> float:
    """When there is room at the latest, if those who run use up their limits; inf if that is not known.

    `ends` are those that can be had to leave sooner.
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


def who_leaves(
    rooms: Sequence[Room], request: Request, missing: int, leaving: Sequence[Running], may_be: Sequence[Running]
) -> list[Running] | None:
    """Who has to be pushed aside for a job that needs so many of these GPUs; None if all together would not be enough.

    Those who lose least, the newest, and nobody in vain.
    """

    def enough(victims: Sequence[Running]) -> bool:
        return sum(has_room(room, request, [*leaving, *victims]) for room in rooms) >= missing

    victims = sorted(may_be, key=lambda one: (one.request.level, one.waited_s))
    if not enough(victims):
        return None
    for one in reversed(victims):
        others = [other for other in victims if other is not one]
        if enough(others):
            victims = others
    return victims
