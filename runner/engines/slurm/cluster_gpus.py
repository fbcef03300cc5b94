"""The GPUs of a whole cluster, as people see them: from Slurm's list, with the readings of our own jobs. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.model import Gpu, GpuHealth

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.engines.slurm.commands import SlurmNode
    from runner.engines.slurm.shared_folder import Beat

OTHERS = "another job of Slurm holds it"


def cluster_gpus(nodes: Iterable[SlurmNode], beats: Iterable[Beat], now: float) -> tuple[Gpu, ...]:
    """Return every GPU: as our job on it reads it, or what Slurm says about it."""
    ours = {(gpu.node, gpu.index): gpu for beat in beats for gpu in beat.gpus}
    listed = [ours.get((gpu.node, gpu.index), gpu) for node in nodes for gpu in _gpus(node, now)]
    return tuple(replace(gpu, sampled_at=gpu.sampled_at or now) for gpu in listed)


def _gpus(node: SlurmNode, now: float) -> list[Gpu]:
    names = [kind or None for kind, count in node.gpus for _ in range(count)]
    return [_gpu(node, index, name, now) for index, name in enumerate(names)]


def _gpu(node: SlurmNode, index: int, name: str | None, now: float) -> Gpu:
    """Return a GPU that nobody of ours reads. Slurm tells neither its memory nor its load."""
    detail = OTHERS if index in node.used else None
    health = GpuHealth.OK
    if not node.usable:
        health, detail = GpuHealth.UNKNOWN, f"{node.name} is {node.state.lower()} in Slurm"
    return Gpu(
        index=index, uuid=f"{node.name}:{index}", node=node.name, name=name, health=health, detail=detail, unified=True,
        utilization_supported=False, sampled_at=now,
    )  # fmt: skip
