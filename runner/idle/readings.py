"""Readings of a job's own GPUs, and samples made of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.model import GpuHealth
from runner.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from runner.idle.policy import IdlePolicy
    from runner.model import Gpu

STALE_AFTER_S = 3.0


@dataclass(frozen=True, slots=True)
class LoadReading:
    """The job's GPUs at one moment. None means unknown, and `unknown` says why."""

    at: float
    percent: Mapping[str, float | None]
    unknown: str | None = None
    asleep_s: float = 0.0  # seconds the machine has slept since boot: CLOCK_BOOTTIME − CLOCK_MONOTONIC


@dataclass(frozen=True, slots=True)
class Sample:
    """The highest readings of one period."""

    at: float
    percent: Mapping[str, float | None]
    unknown: str | None = None
    anew: str | None = None  # why earlier samples do not count, or None

    def is_idle(self, policy: IdlePolicy) -> bool:
        """Return whether every GPU is known to have been below the threshold. A job without GPUs is never idle."""
        known = [percent for percent in self.percent.values() if percent is not None]
        return bool(known) and len(known) == len(self.percent) and max(known) < policy.threshold_percent


def read_own(
    gpus: Iterable[Gpu],
    own: Sequence[str],
    *,
    threshold_percent: float,
    shared: Collection[str] = (),
    by_process: Mapping[str, float] | None = None,
    asleep_s: float = 0.0,
) -> LoadReading | None:
    """Return what the sampler's snapshot says about a job's own GPUs, or None if it lists none of them.

    On a shared GPU, the job's part is the load that the driver reports by process (`by_process`, by UUID). Without
    it, a GPU below the threshold is below it for everybody; above it, the job's part is unknown.
    """
    found = {gpu.uuid: gpu for gpu in gpus if gpu.uuid in own}
    if not found:
        return None
    at = max(gpu.sampled_at for gpu in found.values())
    told = by_process or {}
    parts = {uuid: _own_part(found.get(uuid), uuid, at, told) for uuid in own}
    for uuid in found.keys() & set(shared) - told.keys():
        parts[uuid] = _below_for_all(*parts[uuid], found[uuid], threshold_percent)
    percent = {uuid: part for uuid, (part, _) in parts.items()}
    return LoadReading(at, percent, "; ".join(why for _, why in parts.values() if why) or None, asleep_s)


def _own_part(gpu: Gpu | None, uuid: str, at: float, by_process: Mapping[str, float]) -> tuple[float | None, str]:
    if gpu is None:
        return None, f"{uuid} is not listed"
    if gpu.health is not GpuHealth.OK:
        return None, f"GPU {gpu.index} {gpu.detail or 'gives no reading'}"
    if at - gpu.sampled_at > STALE_AFTER_S:
        return None, f"GPU {gpu.index} was last read {format_duration(at - gpu.sampled_at)} before the others"
    if uuid in by_process:
        return by_process[uuid], ""
    if gpu.utilization is None:
        return None, f"GPU {gpu.index} does not tell its utilisation"
    return float(gpu.utilization), ""


def _below_for_all(percent: float | None, why: str, gpu: Gpu, threshold_percent: float) -> tuple[float | None, str]:
    if percent is None or percent < threshold_percent:
        return percent, why
    return None, f"GPU {gpu.index} is shared and the driver does not tell whose load it is"
