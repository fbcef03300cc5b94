"""Records readings of the GPUs and metrics of jobs, for curves and tables later (runner.store.series)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.model import GpuHealth
from runner.step import Step
from runner.store.series import POINT_S, POSITION, NewPoint, SeriesFile, Span, gpu_subject, job_subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.model import Gpu, Ref
    from runner.rundir import ProgressRecord
    from runner.step import Context

GPU_VALUES = {f"gpu {name}": name for name in ("utilization", "memory_used_mib", "power_w", "temperature_c")}


@dataclass(slots=True)
class Gathered:
    """The values of one name since the last point."""

    low: float = math.inf
    high: float = -math.inf
    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        """Add one value."""
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.total, self.count = self.total + value, self.count + 1

    def span(self) -> Span:
        """Return what was added."""
        return Span(self.low, self.total / self.count, self.high)


class Recording(Step):
    """Gathers what is read, and writes a point of each GPU and job every ten seconds."""

    def __init__(self, context: Context) -> None:
        self._context, self._file = context, SeriesFile(context.settings.home)
        self._start = _start_of_point()
        self._gathered: dict[str, dict[str, Gathered]] = {}  # by subject and name, since then
        self._points: list[NewPoint] = []  # to be written
        self._read_at: dict[str, float] = {}  # GPU -> time of its last reading
        self._gpus: dict[Ref, tuple[str, ...]] = {}
        self._printed: dict[Ref, Mapping[str, Any]] = {}  # the last position and metrics of each attempt

    def read(self) -> None:
        """Take in new readings of the GPUs and new metrics of the running jobs."""
        if self._start != (start := _start_of_point()):
            self._complete()
            self._start = start
        fresh = self._fresh()
        for gpu in fresh.values():
            self._add(gpu_subject(gpu.uuid), _readings(gpu))
        for ref in self._context.running:
            for gpu in (fresh[uuid] for uuid in self._gpus.get(ref, ()) if uuid in fresh):
                self._add(_subject(ref), _readings(gpu))
            if record := self._context.engine.progress_record(ref):
                self.take(ref, record)

    def take(self, ref: Ref, record: ProgressRecord) -> None:
        """Take in the position and the metrics of a job, unless they are the same as before."""
        progress = record.progress or {}
        printed = {**(progress.get("metrics") or {}), POSITION: progress.get("position")}
        if printed != self._printed.get(ref):
            self._printed[ref] = printed
            self._add(_subject(ref), printed)

    def tick(self) -> None:
        """Look up the GPUs of new attempts, and forget attempts that have ended."""
        running = self._context.running
        self._gpus = {ref: self._gpus[ref] if ref in self._gpus else self._gpus_of(ref) for ref in running}
        self._printed = {ref: printed for ref, printed in self._printed.items() if ref in running}
        if running:
            self._context.waiter.tick_within(POINT_S)

    def committed(self) -> None:
        """Write the points that are complete. A job that is over before its first point leaves none."""
        if self._points:
            begun = {*map(gpu_subject, self._read_at), *map(_subject, self._context.running)}
            points, self._points = self._points, []
            self._file.write(points, begun.__contains__)

    def leave(self) -> None:
        """Write the last points too."""
        self._complete()
        self.committed()
        self._file.close()

    def _complete(self) -> None:
        for subject, values in self._gathered.items():
            spans = {name: gathered.span() for name, gathered in values.items()}
            self._points.append(NewPoint(subject, self._start, spans))
        self._gathered = {}

    def _add(self, subject: str, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if value is not None and math.isfinite(number := float(value)):
                self._gathered.setdefault(subject, {}).setdefault(name, Gathered()).add(number)

    def _fresh(self) -> dict[str, Gpu]:
        """Return the healthy GPUs with a new reading since the last call."""
        fresh = {
            uuid: gpu
            for uuid, gpu in self._context.gpus().items()
            if gpu.health is GpuHealth.OK and gpu.sampled_at > self._read_at.get(uuid, 0.0)
        }
        self._read_at |= {uuid: gpu.sampled_at for uuid, gpu in fresh.items()}
        return fresh

    def _gpus_of(self, ref: Ref) -> tuple[str, ...]:
        job = self._context.jobs.get(ref.job_id)
        return job.gpus if job else ()


def _start_of_point() -> int:
    return int(time.time()) // POINT_S * POINT_S


def _subject(ref: Ref) -> str:
    return job_subject(ref.job_id, ref.run_id)


def _readings(gpu: Gpu) -> dict[str, float | None]:
    return {name: getattr(gpu, field) for name, field in GPU_VALUES.items()}
