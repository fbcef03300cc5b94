"""Estimates when jobs far back in the queue start: each takes the slots that come free first, in order. Pure.

It only looks at the number of GPUs that a job asks for. So it gives estimates where lengths are known, but no bounds to
rely on.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

from runner.forecast.estimates import Estimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runner.forecast.simulation import Ends, Length


class Behind(NamedTuple):
    """A job far back in the queue: how many GPUs it takes, and for how long."""

    id: int
    gpus: int
    length: Length


def starts_behind(jobs: Sequence[Behind], sooner: Ends, later: Ends) -> dict[int, Estimate]:
    """Return about when each job starts, with slots that come free as early, or as late, as they may."""
    least = _poured(((job.id, job.gpus, job.length.least_s) for job in jobs), sooner)
    most = _poured(((job.id, job.gpus, job.length.most_s) for job in jobs), later)
    return {
        number: Estimate(least_s if least_s == most[number] else None, most[number])
        for number, least_s in least.items()
        if number in most
    }


def _poured(jobs: Iterable[tuple[int, int, float | None]], ends: Ends) -> dict[int, float]:
    """Return when each job starts. A job that never ends keeps its slots; jobs that then find too few are left out."""
    gpus_s, cpus_s = sorted(ends.gpus_s), sorted(ends.cpus_s)
    found: dict[int, float] = {}
    for number, gpus, takes_s in jobs:
        slots_s, count = (gpus_s, gpus) if gpus else (cpus_s, 1)
        if count > len(slots_s):
            if slots_s:
                slots_s.clear()
            continue
        starts_s = [heapq.heappop(slots_s) for _ in range(count)][-1]
        found[number] = starts_s
        if takes_s is not None:
            for _ in range(count):
                heapq.heappush(slots_s, starts_s + takes_s)
    return found
