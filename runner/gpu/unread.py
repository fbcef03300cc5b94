"""GPUs without a reading: their UUID, name and size stay known, their current values do not. Pure."""

from __future__ import annotations

from dataclasses import replace

from runner.model import Gpu, GpuHealth

_UNIDENTIFIED = "unknown-"


def unread(gpu: Gpu, health: GpuHealth, detail: str) -> Gpu:
    """Return the GPU with this health and detail, and None for all values that change over time."""
    return replace(
        gpu,
        health=health,
        detail=detail,
        memory_used_mib=None,
        utilization=None,
        temperature_c=None,
        power_w=None,
        processes=None,
    )


def unidentified(index: int) -> Gpu:
    """Return a GPU that the driver lists but that has not told its UUID yet."""
    return Gpu(
        index=index,
        uuid=f"{_UNIDENTIFIED}{index}",
        health=GpuHealth.UNKNOWN,
        detail="has not answered yet",
    )


def is_identified(gpu: Gpu) -> bool:
    """Return whether the UUID is the GPU's own, not a placeholder."""
    return not gpu.uuid.startswith(_UNIDENTIFIED)
