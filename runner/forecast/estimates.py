"""Estimates when each queued job starts, and when the queue is empty. Pure.

The length of a job is known from earlier runs of its kind, or bounded by its time limit, or unknown. So the night is
simulated twice, with every job as short and as long as it may be. If both agree, that is the estimate; otherwise they
are bounds. A job that never ends in the longer simulation never frees its slots: unknown stays unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from runner.forecast.simulation import UNKNOWN, Ends, Length, Night

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    waiting = [job.id for job in scene.queued] + [one.job.id for one in scene.later]
    lengths = [(1, scene.lengths.get(number, UNKNOWN)) for number in (*waiting, *(one.id for one in scene.running))]
    lengths += [(rest.count, rest.length) for rest in scene.rest]
    sooner = Night(scene, hopeful=True).play()
    sure = all(length.known for _, length in lengths) and not sooner.hoped
    later = sooner if sure else Night(scene, hopeful=False).play()
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
