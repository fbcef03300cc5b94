"""The memory of an attempt's own GPUs, from the file that the sampler leaves its readings in."""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from runner.processes import linux

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

BACK_MIB = 64  # so much above the base is as good as back


class Reading(NamedTuple):
    """What the attempt holds on that of its GPUs where it holds most, and how busy they are; None is not known."""

    at: float  # by the monotonic clock
    mib: float | None
    utilization: int | None
    back: bool  # every GPU holds what it held before the attempt


class Gauge:
    """Reads each reading once."""

    def __init__(self, path: str, base_mib: Mapping[str, int | None]) -> None:
        self._path = path
        self._base_mib = base_mib  # by UUID; None: the attempt does not have that GPU alone
        self._changed: int | None = None
        self.since = 0.0  # readings from before this moment are not looked at

    def read(self) -> Reading | None:
        """The newest reading of all the GPUs; None if there is none that was not seen before."""
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
        """What the sampler says is wrong with one of the GPUs; None where it says nothing."""
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
        """By process where the driver names ours; else what the GPU's use has grown by, if we have it alone."""
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
