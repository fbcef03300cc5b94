"""Limits over the whole box: jobs of a group at a time, a person's GPUs, cores and memory of the host. Pure.

A job that waits for room also reserves what it will need of these. Otherwise a later job could take the last of them.
Then the first job would wait for that, and would no longer reserve the GPUs that come free meanwhile.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from runner.units import format_mib

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.schedule.choice import Running, Waiting
    from runner.schedule.request import Request
    from runner.schedule.room import BoxLimits


class Reservation(NamedTuple):
    """The job that something is reserved for, and when it could start at the latest."""

    id: int
    request: Request
    priority: int = 0
    starts_in_s: float = math.inf

    def outlasts(self, request: Request) -> bool:
        """Return whether a job with this request is sure to end before this one could start."""
        return request.limit_s is not None and request.limit_s <= self.starts_in_s < math.inf


class _Taken:
    """How much the running jobs take of all that is limited."""

    def __init__(self) -> None:
        self.groups: Counter[str | None] = Counter()  # jobs
        self.gpus: Counter[tuple[str, bool]] = Counter()  # by owner, and whether at low priority
        self.cpus, self.ram_mib = 0, 0

    def add(self, job: Running) -> None:
        request = job.request
        self.groups[request.group] += 1
        self.gpus[request.owner, request.rank < 0] += len(job.gpus)
        self.cpus += request.cpus
        self.ram_mib += request.ram_mib


class Quotas:
    """What is left of each limit, and for which job it is reserved."""

    def __init__(self, limits: BoxLimits, running: Iterable[Running]) -> None:
        self._limits = limits
        self._uncounted, self._counted = list(running), _Taken()  # a box without limits need not count
        self._groups: dict[str, Reservation] = {}
        self._shares: dict[str, Reservation] = {}
        self._host: Reservation | None = None

    def add(self, job: Running) -> None:
        """Count what a job takes that has just started."""
        self._uncounted.append(job)

    @property
    def _taken(self) -> _Taken:
        for job in self._uncounted:
            self._counted.add(job)
        self._uncounted.clear()
        return self._counted

    def why_not(self, job: Waiting, *, reserve: bool = True) -> str | None:
        """Return why a limit keeps a job from starting, even if GPUs are free. Such a job reserves no GPU.

        `reserve`: reserve what it waits for of its owner's share and of the host.
        """
        return (
            self._beyond_group(job.request)
            or self._beyond_share(job, reserve=reserve)
            or self._beyond_host(job, reserve=reserve)
        )

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
        running = self._taken.groups[group]
        if running >= at_most:
            return f"at most {at_most} of {group} at once"
        reservation = self._groups.get(group)
        if reservation and running + 2 > at_most:
            return f"behind #{reservation.id}, for which a place in {group} is reserved"
        return None

    # -- a person's share --------------------------------------------------------------------------

    def _beyond_share(self, job: Waiting, *, reserve: bool) -> str | None:
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
        if reserve and request.gpus <= at_most:
            self._shares.setdefault(request.owner, Reservation(job.id, request))
        gpus = "1 GPU" if at_most == 1 else f"{at_most:.0f} GPUs"
        return f"{request.owner} has {at_most - left:.0f} of at most {gpus} at once"

    def _share(self, request: Request) -> float:
        at_most = self._limits.gpus_each_low if request.rank < 0 else self._limits.gpus_each
        return math.inf if at_most is None else at_most

    def _left_of_share(self, request: Request) -> float:
        share = self._share(request)
        if share == math.inf:
            return share
        gpus = self._taken.gpus
        low = gpus[request.owner, True] if request.rank < 0 else 0  # see _counts_for
        return share - gpus[request.owner, False] - low

    # -- the host ----------------------------------------------------------------------------------

    def _beyond_host(self, job: Waiting, *, reserve: bool) -> str | None:
        request, limits, reservation = job.request, self._limits, self._host
        if not (request.cpus or request.ram_mib):
            return None
        cpus = math.inf if limits.cpus is None else limits.cpus - self._taken.cpus
        ram_mib = math.inf if limits.ram_mib is None else limits.ram_mib - self._taken.ram_mib
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
        if why and reserve:
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
