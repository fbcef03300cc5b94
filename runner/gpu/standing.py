"""The state of each GPU as seen from outside the runner, from its last reading and its leases."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.gpu.capacity import room_of
from runner.gpu.free import is_free
from runner.gpu.unread import is_identified
from runner.model import GpuHealth
from runner.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.model import Gpu, Snapshot
    from runner.schedule.choice import Room
    from runner.store.scheduling_queries import Lease

STALE_AFTER_S = 15.0
BUSY, FREE, TAKEN, HELD = "busy", "free", "taken", "held"


class Rules(NamedTuple):
    """The runner's settings that decide whether a job may start on a GPU."""

    slots: int = 1
    max_utilization: float = 50.0
    max_foreign_percent: float = 10.0


class Standing:
    """All GPUs as of the last reading."""

    def __init__(self, found: tuple[Snapshot, float] | None, leases: Sequence[Lease], rules: Rules) -> None:
        self._snapshot: Snapshot | None = found[0] if found else None
        self._age_s = found[1] if found else 0.0
        self._leases, self._rules = leases, rules

    @property
    def is_current(self) -> bool:
        """Return whether the readings are less than 15 s old."""
        return self._age_s < STALE_AFTER_S

    def described(self) -> list[dict[str, Any]]:
        """Return the GPUs as dicts, for programs. Values that are unknown or too old are None."""
        snapshot = self._snapshot
        if snapshot is None:
            return []
        extra = {"simulated": snapshot.simulated, "age_s": None if self._age_s == float("inf") else self._age_s}
        return [{**self._described(gpu), **extra} for gpu in snapshot.gpus]

    def rooms(self) -> list[Room]:
        """Return the room on each GPU, as the scheduler sees it."""
        return [self._room(gpu) for gpu in self._snapshot.gpus] if self._snapshot else []

    def _described(self, gpu: Gpu) -> dict[str, Any]:
        current = self.is_current
        jobs = sorted({lease.job_id for lease in self._on(gpu)})
        state, detail = self._state(gpu, bool(jobs))
        return {
            "index": gpu.index,
            "uuid": gpu.uuid,
            "name": gpu.name,
            "memory_total_mib": gpu.memory_total_mib,
            "memory_used_mib": gpu.memory_used_mib if current else None,
            "utilization": gpu.utilization if current else None,
            "temperature_c": gpu.temperature_c if current else None,
            "power_w": gpu.power_w if current else None,
            "state": state,
            "detail": detail,
            "jobs": jobs,
        }

    def _state(self, gpu: Gpu, leased: bool) -> tuple[str, str | None]:
        """Return the GPU's state as one word, and a sentence if needed. A healthy GPU with a lease is always busy."""
        assert self._snapshot is not None
        if not self.is_current:
            return GpuHealth.UNKNOWN.value, self._when_read(gpu)
        if gpu.health is not GpuHealth.OK:
            return gpu.health.value, gpu.detail or self._snapshot.trouble
        if leased:
            return BUSY, self._snapshot.trouble
        why_not = self._why_not(gpu, 0)
        if why_not is None:
            return FREE, None
        if self._snapshot.trouble:
            return HELD, why_not
        return (GpuHealth.UNKNOWN.value if why_not.startswith("unknown") else TAKEN), why_not

    def _room(self, gpu: Gpu) -> Room:
        leases = self._on(gpu)
        why_not = self._why_not(gpu, len(leases)) if self.is_current else f"unknown: {self._when_read(gpu)}"
        room = room_of(gpu, leases, self._rules.slots, why_not)
        return replace(room, sick=room.sick or (why_not is not None and self.is_current))

    def _why_not(self, gpu: Gpu, leased: int) -> str | None:
        assert self._snapshot is not None
        if leased and gpu.health is GpuHealth.OK:
            return None  # only the runner knows which processes are ours
        return self._snapshot.trouble or is_free(
            gpu,
            leased_by_us=leased,
            max_utilization=self._rules.max_utilization,
            max_foreign_share=self._rules.max_foreign_percent / 100,
        )

    def _when_read(self, gpu: Gpu) -> str:
        """Say how old the readings are and what is wrong with the driver; no trouble from before the last boot."""
        assert self._snapshot is not None
        if not is_identified(gpu):  # it was never read
            return self._snapshot.trouble or gpu.detail or "has never been read"
        read = f"last read {_ago(self._age_s)}"
        says = self._snapshot.trouble if self._age_s != float("inf") else None
        return f"{read}. {says}" if says else read

    def _on(self, gpu: Gpu) -> list[Lease]:
        return [lease for lease in self._leases if lease.resource == gpu.uuid]


def _ago(age_s: float) -> str:
    return "before the last boot" if age_s == float("inf") else f"{format_duration(age_s)} ago"
