"""Reads the memory of an attempt's GPUs from the file that the sampler writes."""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from runner.processes import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

BACK_MIB = 64  # memory counts as freed up to this far above the base


class Reading(NamedTuple):
    """The attempt's memory on the GPU where it holds most, and the highest load of its GPUs. None means unknown."""

    at: float  # monotonic time
    mib: float | None
    utilization: int | None
    back: bool  # no GPU is known to hold more than before the attempt


class Gauge:
    """Returns each of the sampler's readings once."""

    def __init__(self, path: str, base_mib: Mapping[str, int | None]) -> None:
        self._path = path
        self._base_mib = base_mib  # by UUID; None: the attempt shares that GPU
        self._changed: int | None = None
        self.since = 0.0  # readings up to this moment are ignored

    def read(self) -> Reading | None:
        """Return the newest reading of the GPUs; None if it is not new or does not have all of them healthy."""
        found = self._load()
        gpus = [gpu for gpu in found if gpu.get("uuid") in self._base_mib and gpu.get("health") == "ok"]
        if len(gpus) < len(self._base_mib):
            return None
        at = min(gpu["sampled_at"] for gpu in gpus)
        if at <= self.since:
            return None
        self.since = at
        held = [self._held(gpu) for gpu in gpus]
        known = [mib for mib in held if mib is not None]
        busy = [gpu["utilization"] for gpu in gpus if gpu.get("utilization") is not None]
        mib = max(known) if len(known) == len(held) else None
        return Reading(at, mib, max(busy, default=None), all(map(self._is_back, gpus)))

    def trouble(self) -> str | None:
        """Return what the sampler says is wrong with one of the GPUs; None if nothing."""
        try:
            with open(self._path, "rb") as file:
                gpus = json.loads(file.read())["gpus"]
            ill = [gpu for gpu in gpus if gpu.get("uuid") in self._base_mib and gpu.get("health") != "ok"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return f"GPU {ill[0].get('index')} {ill[0].get('detail') or ill[0].get('health')}" if ill else None

    def _load(self) -> list[dict[str, Any]]:
        try:
            changed = os.stat(self._path).st_mtime_ns
            if changed == self._changed:
                return []
            with open(self._path, "rb") as file:
                gpus = json.loads(file.read())["gpus"]
        except (OSError, ValueError, KeyError, TypeError):
            return []
        self._changed = changed
        return gpus if isinstance(gpus, list) else []

    def _held(self, gpu: dict[str, Any]) -> float | None:
        """Return the MiB we hold; None if unknown. By process if the driver lists ours, else growth since the base."""
        used, base = gpu.get("memory_used_mib"), self._base_mib[gpu["uuid"]]
        listed = gpu.get("processes") or ()
        own = [one.get("memory_mib") for one in listed if linux.is_below(one["pid"], os.getpid())]
        known = [mib for mib in own if mib is not None]
        if own and len(known) == len(own) and (used is None or sum(known) <= used):
            return float(sum(known))
        return None if used is None or base is None else float(max(0, used - base))

    def _is_back(self, gpu: dict[str, Any]) -> bool:
        used, base = gpu.get("memory_used_mib"), self._base_mib[gpu["uuid"]]
        return used is None or base is None or used <= base + BACK_MIB
