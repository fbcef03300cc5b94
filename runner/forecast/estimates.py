"""Estimates when each queued job starts, and when the queue is empty. Pure.

The length of a job is known from earlier runs of its kind, or bounded by its time limit, or unknown. So the scheduler
is simulated twice, with every job as short and as long as it may be. If both agree, that is the estimate; otherwise
they are bounds. A job that never ends in the longer simulation never frees its slots: unknown stays unknown.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from runner.forecast.simulation import UNKNOWN, Ends, Length, Simulation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runner.forecast.simulation import Scene

SPREAD = 3.0  # if similar jobs differ by more than this factor, they predict nothing


def length_of(past_s: Sequence[float], limit_s: float | None, ran_s: float = 0.0) -> Length:
    """Return how long a job still takes, after `ran_s`, by earlier runs of its kind.

    Only runs that took longer than `ran_s` count. If there are none, the length is unknown, bounded by the time limit.
    """
    longer = [run_s for run_s in past_s if run_s > ran_s]
    left_s = None if limit_s is None else max(0.0, limit_s - ran_s)
    if not longer:
        return Length(0.0, left_s)
    usual_s = _median(longer) - ran_s
    usual_s = usual_s if left_s is None else min(usual_s, left_s)
    return Length(usual_s, usual_s)


def _median(values: Sequence[float]) -> float:
    """Return the median. Importing `statistics` would take longer than the whole forecast."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def agree(past_s: Sequence[float]) -> bool:
    """Return whether runs of similar kinds agree enough to predict another one."""
    runs = sorted(past_s)
    return len(runs) > 1 and runs[-1 - len(runs) // 4] <= SPREAD * runs[len(runs) // 4]


class Estimate(NamedTuple):
    """When something happens, in seconds from now. None: unknown."""

    earliest_s: float | None = None
    latest_s: float | None = None

    @property
    def about_s(self) -> float | None:
        """Return the time itself if it is known, otherwise None."""
        return self.earliest_s if self.earliest_s == self.latest_s else None


NOBODY_KNOWS = Estimate()
NEVER = Ends((), ())


@dataclass(frozen=True, slots=True)
class Forecast:
    """The predicted starts, and when the queue is empty."""

    starts: Mapping[int, Estimate] = field(default_factory=dict)
    done: Estimate = NOBODY_KNOWS  # when the last job of the present ones has ended
    unknown: int = 0  # jobs of unknown length
    bounded: int = 0  # jobs of which only the time limit is known
    sooner: Ends = NEVER  # when slots come free for jobs that were not simulated
    later: Ends = NEVER


def forecast(scene: Scene) -> Forecast:
    """Simulate the scheduler from now on."""
    waiting = [job.id for job in (*scene.queued, *(later.job for later in scene.later))]
    lengths = [(1, scene.lengths.get(number, UNKNOWN)) for number in (*waiting, *(job.id for job in scene.running))]
    lengths += [(rest.count, rest.length) for rest in scene.rest]
    sooner = Simulation(scene, hopeful=True).play()
    sure = all(length.known for _, length in lengths) and not sooner.hoped
    later = sooner if sure else Simulation(scene, hopeful=False).play()
    return Forecast(
        starts={number: _between(sooner.starts.get(number), later.starts.get(number)) for number in waiting},
        done=_between(sooner.done_s(scene.rest), later.done_s(scene.rest) if later.is_whole else None),
        unknown=sum(count for count, length in lengths if length.most_s is None),
        bounded=sum(count for count, length in lengths if length.most_s is not None and not length.known),
        sooner=sooner.ends(),
        later=later.ends(),
    )


def _between(sooner_s: float | None, later_s: float | None) -> Estimate:
    """Put two times into order. Shorter jobs do not always mean earlier starts, so either may be first."""
    if sooner_s is None or later_s is None:
        return Estimate(sooner_s, None)
    return Estimate(min(sooner_s, later_s), max(sooner_s, later_s))


# -- the jobs that are not simulated -------------------------------------------------------------------


class Behind(NamedTuple):
    """A job far back in the queue: how many GPUs it takes, and for how long."""

    id: int
    gpus: int
    length: Length


def starts_behind(jobs: Sequence[Behind], sooner: Ends, later: Ends) -> dict[int, Estimate]:
    """Return about when jobs far back in the queue start: each takes the slots that come free first, in order.

    Only the number of GPUs counts. So these are estimates where lengths are known, but no bounds to rely on.
    """
    least = _first_free(((job.id, job.gpus, job.length.least_s) for job in jobs), sooner)
    most = _first_free(((job.id, job.gpus, job.length.most_s) for job in jobs), later)
    return {
        number: Estimate(least_s if least_s == most[number] else None, most[number])
        for number, least_s in least.items()
        if number in most
    }


def _first_free(jobs: Iterable[tuple[int, int, float | None]], ends: Ends) -> dict[int, float]:
    """Return when each job starts. A job that never ends keeps its slots; jobs that then find too few are left out."""
    gpus_s, cpus_s = sorted(ends.gpus_s), sorted(ends.cpus_s)
    starts: dict[int, float] = {}
    for number, gpus, takes_s in jobs:
        slots_s, count = (gpus_s, gpus) if gpus else (cpus_s, 1)
        if count > len(slots_s):
            slots_s.clear()
            continue
        starts_s = [heapq.heappop(slots_s) for _ in range(count)][-1]
        starts[number] = starts_s
        if takes_s is not None:
            for _ in range(count):
                heapq.heappush(slots_s, starts_s + takes_s)
    return starts
