"""Decides whether a job may start on a GPU. A GPU in an unknown state is not free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.gpu.attribution import foreign_memory_mib, holders
from runner.model import GpuHealth

if TYPE_CHECKING:
    from collections.abc import Collection

    from runner.model import Gpu

PROHIBITED = 2
EXCLUSIVE_PROCESS = 3


def is_free(
    gpu: Gpu,
    *,
    leased_by_us: int,
    own_pids: Collection[int] = (),
    max_utilization: float = 50,
    max_foreign_share: float = 0.1,
) -> str | None:
    """Return why no job may start on this GPU; None if one may. `own_pids` are our jobs' processes on it."""
    return (
        _unfit(gpu)
        or _mode_forbids(gpu, leased_by_us)
        or (None if leased_by_us else _busy(gpu, max_utilization))
        or _held(gpu, own_pids if leased_by_us else (), max_foreign_share)
    )


def _unfit(gpu: Gpu) -> str | None:
    if gpu.health is not GpuHealth.OK:
        return f"{gpu.health.value}: {gpu.detail}" if gpu.detail else gpu.health.value
    if not gpu.unified and (not gpu.memory_total_mib or gpu.memory_used_mib is None):
        return "unknown: its memory cannot be read"
    return None


def _mode_forbids(gpu: Gpu, leased_by_us: int) -> str | None:
    if gpu.compute_mode == PROHIBITED:
        return "its compute mode is Prohibited: `nvidia-smi -c 0` allows jobs"
    if gpu.compute_mode == EXCLUSIVE_PROCESS and leased_by_us:
        return "its compute mode allows one process only"
    return None


def _busy(gpu: Gpu, max_utilization: float) -> str | None:
    """Return why the GPU counts as busy. Called only if none of our jobs is on it, so all its load is foreign."""
    if not gpu.utilization_supported:
        return None
    if gpu.utilization is None:
        return "unknown: its utilisation cannot be read"
    if gpu.utilization and gpu.utilization >= max_utilization:
        return f"busy: {gpu.utilization} % utilisation by {holders(gpu) if gpu.processes else 'others'}"
    return None


def _held(gpu: Gpu, own_pids: Collection[int], max_foreign_share: float) -> str | None:
    """Return who holds too much foreign memory. If foreign memory is unknown, return None and trust our leases."""
    foreign_mib, total_mib = foreign_memory_mib(gpu, own_pids), gpu.memory_total_mib or 0
    if not foreign_mib or foreign_mib < max_foreign_share * total_mib:
        return None
    return f"{foreign_mib / 1024:.1f} of {total_mib / 1024:.1f} GiB held by {holders(gpu, own_pids)}"
