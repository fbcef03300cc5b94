"""Memory by batch: lines through measured points, and what earlier jobs of a kind needed. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.batch.steps import Run
from runner.model import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.batch.batch_settings import BatchSettings
    from runner.batch.plan import BatchPlan

FLAT_MIB = 64.0  # readings closer than this may differ by chance
FARTHER = 8
KEPT_RUNS = 5
TRUSTED_FACTOR = 2  # a line is a guess beyond this many times the largest batch ever seen


class Point(NamedTuple):
    """A batch and the memory it took."""

    batch: int
    mib: float


class MemoryLine(NamedTuple):
    """Memory as a linear function of the batch: a fixed part, and a part for each sample."""

    fixed_mib: float
    per_sample_mib: float

    def at(self, batch: int) -> float:
        """Return the memory that a batch takes, in MiB."""
        return self.fixed_mib + self.per_sample_mib * batch

    def largest(self, target_mib: float, most: int) -> int:
        """Return the largest batch, up to `most`, whose memory is within the target. 0: none is."""
        if self.per_sample_mib <= 0:
            return most if self.at(most) <= target_mib else 0
        return max(min(math.floor((target_mib - self.fixed_mib) / self.per_sample_mib + 1e-9), most), 0)


def through(one: Point, other: Point) -> MemoryLine:
    """Return the line through two points of different batches."""
    slope = (other.mib - one.mib) / (other.batch - one.batch)
    return MemoryLine(one.mib - slope * one.batch, slope)


def bent(points: Sequence[Point], target_mib: float, most: int) -> MemoryLine:
    """Return the line through the two largest points, steeper if a third point shows that memory bends upwards."""
    *rest, lower, upper = sorted(points)
    line = through(lower, upper)
    if not rest:
        return line
    before = through(rest[-1], lower)
    bend = (line.per_sample_mib - before.per_sample_mib) / (upper.batch - rest[-1].batch)
    if bend <= 0:
        return line
    # memory = line + bend·(b − lower)·(b − upper): find where that meets the target, and draw a line to there
    low, high = upper.batch, max(line.largest(target_mib, most), upper.batch)
    while low < high:
        middle = (low + high + 1) // 2
        over = bend * (middle - lower.batch) * (middle - upper.batch)
        low, high = (middle, high) if line.at(middle) + over <= target_mib else (low, middle - 1)
    slope = line.per_sample_mib + bend * (low + 1 - lower.batch)
    return MemoryLine(upper.mib - slope * upper.batch, slope)


def flat(one: Point, other: Point) -> bool:
    """Return whether a larger batch took no more memory, within the precision of the readings."""
    return abs(other.mib - one.mib) < FLAT_MIB or (other.mib - one.mib) * (other.batch - one.batch) < 0


def steepest(one: Point, other: Point) -> MemoryLine:
    """Return the steepest line that two readings this close allow, through the higher one."""
    slope = (abs(other.mib - one.mib) + FLAT_MIB) / abs(other.batch - one.batch)
    return MemoryLine(max(one.mib, other.mib) - slope * max(one.batch, other.batch), slope)


def proportional(point: Point, target_mib: float) -> int:
    """Return the batch by the blog post's formula, as if all memory grew with the batch.

    If the result is larger than the measured batch, it is safe: F + p·d·r ≤ r·(F + p·d) for F ≥ 0 and r ≥ 1.
    """
    return math.floor(point.batch * target_mib / point.mib)


# -- what earlier jobs needed ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHistory(Record):
    """The memory that each batch size needs. Probes measure it, and whole real runs correct it."""

    fixed_mib: float
    per_sample_mib: float
    points: tuple[Point, ...]  # of probes
    runs: tuple[Point, ...] = ()  # batch and peak of the latest whole runs
    most: int | None = None  # larger batches failed for another reason than memory
    probed_s: float = 0.0

    @classmethod
    def of(cls, plan: BatchPlan) -> MemoryHistory | None:
        """Return what a plan has measured, or None if it has measured nothing."""
        if plan.line is None or not plan.points:
            return None
        return cls(
            fixed_mib=plan.line.fixed_mib,
            per_sample_mib=plan.line.per_sample_mib,
            points=plan.points,
            most=max(point.batch for point in plan.points) if plan.failure else None,
            probed_s=plan.probed_s,
        )

    @property
    def line(self) -> MemoryLine:
        """Return the line through the probes, with the steepest slope of whole runs: those include evaluation."""
        slopes = [(run.mib - self.fixed_mib) / run.batch for run in self.runs]
        return MemoryLine(self.fixed_mib, max(slopes) if slopes else self.per_sample_mib)

    def refined(self, batch: int, peak_mib: float, *, whole: bool) -> MemoryHistory:
        """Add the peak of a run. A run that did not finish may have seen too little, so it can only raise the line."""
        if not whole and peak_mib <= self.line.at(batch):
            return self
        if not whole and not self.runs:
            return replace(self, per_sample_mib=(peak_mib - self.fixed_mib) / batch)
        return replace(self, runs=(*self.runs, Point(batch, peak_mib))[-KEPT_RUNS:])

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MemoryHistory:
        """Build it from the output of to_json."""
        points = {name: tuple(Point(*point) for point in data.get(name, ())) for name in ("points", "runs")}
        return super(MemoryHistory, cls).from_json({**data, **points})


def choose(history: MemoryHistory, budget_mib: float, settings: BatchSettings) -> Run | None:
    """Return a run at the largest batch that is safe by what is known, or None if a probe is better."""
    cap = min(settings.cap, history.most or settings.cap)
    seen = [point.batch for point in (*history.points, *history.runs)]
    batch = history.line.largest(settings.margin * budget_mib, cap)
    below = history.fixed_mib <= 0 and batch < min(seen)  # such a line is too low for smaller batches
    # if even the cap would use at most half of what may be used, any batch is safe
    is_sure = history.line.at(settings.cap) <= settings.margin * budget_mib / 2
    beyond = batch > TRUSTED_FACTOR * max(seen) and not is_sure
    if batch < 1 or below or beyond:
        return None
    return Run(settings.rounded(batch), "its memory is known from an earlier job of its kind", confident=True)
