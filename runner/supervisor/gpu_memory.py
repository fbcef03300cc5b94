"""Reads the memory of an attempt's GPUs from the file that the sampler writes."""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from runner.model import Gpu, GpuHealth, GpuProcess
from runner.processes import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BACK_MIB = 64  # memory counts as freed up to this far above the base


class MemoryReading(NamedTuple):
    """The attempt's memory on the GPU where it holds most, and the highest load of its GPUs. None means unknown."""

    at: float  # monotonic time
    mib: float | None
    utilization: int | None
    back: bool  # no GPU of its own holds more than before the attempt


class Gauge:
    """Returns each of the sampler's readings once."""

    def __init__(self, path: str, base_mib: Mapping[str, int | None]) -> None:
        self._path = path
        self._base_mib = base_mib  # by UUID; None: the attempt shares that GPU
        self._changed: int | None = None
        self.since = 0.0  # readings up to this moment are ignored

    def read(self) -> MemoryReading | None:
        """Return the newest reading of the GPUs; None if it is not new or does not have all of them healthy."""
        try:
            changed = os.stat(self._path).st_mtime_ns
        except OSError:
            return None
        if changed == self._changed:
            return None
        gpus = [gpu for gpu in self._gpus() if gpu.health is GpuHealth.OK]
        self._changed = changed if gpus else None
        if not gpus or len(gpus) < len(self._base_mib):
            return None
        at = min(gpu.sampled_at for gpu in gpus)
        if at <= self.since:
            return None
        self.since = at
        held = [own_memory_mib(gpu, _is_below_us, self._base_mib[gpu.uuid]) for gpu in gpus]
        sizes = [own[0] for own in held if own is not None]
        loads = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
        mib = float(max(sizes)) if len(sizes) == len(held) else None
        return MemoryReading(at, mib, max(loads, default=None), all(map(self._is_back, gpus)))

    def trouble(self) -> str | None:
        """Return what the sampler says is wrong with one of the GPUs; None if nothing."""
        ill = next((gpu for gpu in self._gpus() if gpu.health is not GpuHealth.OK), None)
        return f"GPU {ill.index} {ill.detail or ill.health.value}" if ill else None

    def _gpus(self) -> list[Gpu]:
        """Return the attempt's GPUs as last published; an empty list if the file cannot be read."""
        try:
            with open(self._path, "rb") as file:
                published = [Gpu.from_json(gpu) for gpu in json.loads(file.read())["gpus"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []
        return [gpu for gpu in published if gpu.uuid in self._base_mib]

    def _is_back(self, gpu: Gpu) -> bool:
        used, base = gpu.memory_used_mib, self._base_mib[gpu.uuid]
        return base is None or (used is not None and used <= base + BACK_MIB)


def own_memory_mib(gpu: Gpu, is_own: Callable[[GpuProcess], bool], before_mib: int | None) -> tuple[int, str] | None:
    """Return the MiB one job holds on a GPU, and how that is known: "process" or "device". None if it is unknown.

    If the driver does not tell the memory of the job's processes, return how much the GPU's use has grown since before
    the job. `before_mib` is None unless the job has the GPU to itself.
    """
    used_mib = gpu.memory_used_mib
    own = [process.memory_mib for process in gpu.processes or () if is_own(process)]
    sizes = [mib for mib in own if mib is not None]
    if own and len(sizes) == len(own) and (used_mib is None or sum(sizes) <= used_mib):
        return sum(sizes), "process"
    if used_mib is None or before_mib is None:
        return None
    return max(0, used_mib - before_mib), "device"


def _is_below_us(process: GpuProcess) -> bool:
    return linux.is_below(process.pid, os.getpid())
