"""The order in which queued jobs start: by priority, then by owner, then by position. Pure."""

from __future__ import annotations

from collections import defaultdict
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from runner.schedule.request import HIGHEST_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from runner.schedule.choice import Running, Waiting
    from runner.schedule.room import BoxLimits

T = TypeVar("T")
ByPriority: TypeAlias = "dict[int, dict[str, list[tuple[float, int, T]]]]"  # priority -> owner -> (position, id, job)

START_USE_S = 600.0  # GPU seconds that a start adds to its owner's usage in the comparison between owners


def start_order(queued: Sequence[Waiting], limits: BoxLimits) -> Iterator[Waiting]:
    """Yield jobs in the order in which they would start if there were always room."""
    use = defaultdict(float, limits.use)
    for job in by_usage(queued, use, limits.age_s):
        use[job.request.owner] += START_USE_S * job.request.gpus
        yield job


def by_usage(queued: Sequence[Waiting], use: Mapping[str, float], age_s: float) -> Iterator[Waiting]:
    """Yield jobs in start order. The caller may change `use` while it iterates."""
    jobs: ByPriority[Waiting] = defaultdict(lambda: defaultdict(list))
    for job in queued:
        jobs[priority_of(job, age_s)][job.request.owner].append((job.position, job.id, job))
    yield from in_order(jobs, use)


def in_order(jobs: ByPriority[T], use: Mapping[str, float]) -> Iterator[T]:
    """Yield jobs by priority, then by the owner with the least usage, then by position.

    The caller may change `use` while it iterates: a start changes which owner is next.
    """
    for priority in sorted(jobs, reverse=True):
        owners = jobs[priority]
        for entries in owners.values():
            entries.sort(reverse=True)  # the next job is the last in the list
        following = [(use[name], *entries[-1][:2], name) for name, entries in owners.items()]
        heapify(following)
        while following:
            name = following[0][-1]
            entries = owners[name]
            yield entries.pop()[2]
            if entries:
                heapreplace(following, (use[name], *entries[-1][:2], name))
            else:
                heappop(following)


def priority_of(job: Waiting | Running, age_s: float) -> int:
    """Return the job's priority, one step higher for each `age_s` that it has waited, up to the highest."""
    priority = job.request.priority
    if not age_s or job.waited_s < age_s:
        return priority
    return min(priority + 2 * int(job.waited_s // age_s), max(HIGHEST_PRIORITY, priority))
