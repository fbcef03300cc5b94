"""The memory that earlier jobs of a kind needed, so that the next one can start without a probe. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runner.batch.memory_line import MemoryLine, Point
from runner.batch.steps import Run
from runner.model import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.batch.batch_settings import BatchSettings
    from runner.batch.plan import BatchPlan

KEPT_RUNS = 5
TRUSTED_FACTOR = 2  # a line is a guess beyond this many times the largest batch ever seen


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHistory(Record):
    """Memory by batch size, measured by probes and corrected by whole runs."""

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
    beyond = batch > TRUSTED_FACTOR * max(seen) and not _surely(history, budget_mib, settings)
    if batch < 1 or below or beyond:
        return None
    return Run(settings.rounded(batch), "its memory is known from an earlier job of its kind", confident=True)


def _surely(history: MemoryHistory, budget_mib: float, settings: BatchSettings) -> bool:
    """Return whether even the cap would use at most half of what may be used: then any batch is safe."""
    return history.line.at(settings.cap) <= settings.margin * budget_mib / 2
