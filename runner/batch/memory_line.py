"""A line through the measured points, and the largest batch that it allows. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

FLAT_MIB = 64.0  # readings closer than this may differ by chance
FARTHER = 8


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
    top = max(one, other)
    mib = max(one.mib, other.mib)
    return MemoryLine(mib - slope * top.batch, slope)


def proportional(point: Point, target_mib: float) -> int:
    """Return the batch by the blog post's formula, as if all memory grew with the batch.

    If the result is larger than the measured batch, it is safe: F + p·d·r ≤ r·(F + p·d) for F ≥ 0 and r ≥ 1.
    """
    return math.floor(point.batch * target_mib / point.mib)
