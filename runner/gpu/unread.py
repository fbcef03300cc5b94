"""A GPU that gave no reading: what it is stays known, how it is does not. Pure."""

from __future__ import annotations

from dataclasses import replace

from runner.model import Gpu, GpuHealth

_UNIDENTIFIED = "unknown-"


def unread(gpu: Gpu, health: GpuHealth, detail: str) -> Gpu:
    """The same GPU with everything that changes by the second unknown, and the reason why."""
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
    """A GPU that is there but has not told its UUID yet."""
    return Gpu(
        index=index,
        uuid=f"{_UNIDENTIFIED}{index}",
        health=GpuHealth.UNKNOWN,
        detail="has not answered yet",
    )


def is_identified(gpu: Gpu) -> bool:
    """Whether the UUID is the GPU's own."""
    return not gpu.uuid.startswith(_UNIDENTIFIED)
