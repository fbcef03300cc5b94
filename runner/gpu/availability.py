"""Says what each GPU has to give: whether a job may start there, how much room is left, and its state for people.

A GPU in an unknown state is not free.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.gpu.attribution import foreign_memory_mib, holders
from runner.gpu.published import read_published
from runner.model import GpuHealth
from runner.schedule.room import Room, free_slots
from runner.store.box import BoxKey
from runner.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.model import Gpu, Snapshot
    from runner.store.box import Box
    from runner.store.scheduling_queries import Lease

PROHIBITED = 2
EXCLUSIVE_PROCESS = 3
STALE_AFTER_S = 15.0
BUSY, FREE, TAKEN, HELD = "busy", "free", "taken", "held"
_CHANGING = ("memory_used_mib", "utilization", "temperature_c", "power_w")


def why_not_free(
    gpu: Gpu,
    *,
    leased_by_us: int,
    max_utilization: float = 50,
    max_foreign_share: float = 0.1,
) -> str | None:
    """Return why no job may start on this GPU; None if one may."""
    return (
        _unfit(gpu)
        or _mode_forbids(gpu, leased_by_us)
        or (None if leased_by_us else _busy(gpu, max_utilization))
        or _held(gpu, max_foreign_share, leased=leased_by_us > 0)
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


def _held(gpu: Gpu, max_foreign_share: float, *, leased: bool) -> str | None:
    """Return who holds too much foreign memory. If foreign memory is unknown, return None and trust our leases."""
    foreign_mib, total_mib = foreign_memory_mib(gpu, leased=leased), gpu.memory_total_mib or 0
    if not foreign_mib or foreign_mib < max_foreign_share * total_mib:
        return None
    return f"{foreign_mib / 1024:.1f} of {total_mib / 1024:.1f} GiB held by {holders(gpu, foreign=leased)}"


def room_of(gpu: Gpu, leases: Sequence[Lease], slots: int, why_not: str | None) -> Room:
    """Return the room left on a GPU with these leases. `why_not` says why no job may start there, None if one may."""
    total_mib = gpu.memory_total_mib
    usable_mib = None if total_mib is None else total_mib - (gpu.memory_reserved_mib or 0)
    share_mib = None if usable_mib is None else usable_mib // slots
    return Room(
        index=gpu.index,
        uuid=gpu.uuid,
        node=gpu.node,
        name=gpu.name,
        free_slots=free_slots(slots, {lease.slot for lease in leases}),
        slots=slots,
        memory_mib=_left_mib(gpu, leases, usable_mib, share_mib),
        share_mib=share_mib,
        why_not=why_not,
        sick=gpu.health is not GpuHealth.OK,
    )


def _left_mib(gpu: Gpu, leases: Sequence[Lease], usable_mib: int | None, share_mib: int | None) -> int | None:
    """Return the MiB left: usable minus leased, whether used yet or not. Without leases, usable minus used."""
    if usable_mib is None or share_mib is None:
        return None
    if not leases:
        return None if gpu.memory_used_mib is None else max(0, usable_mib - gpu.memory_used_mib)
    promised = sum(share_mib if lease.memory_mib is None else lease.memory_mib for lease in leases)
    return max(0, usable_mib - promised)


class StartRules(NamedTuple):
    """The runner's settings that decide whether a job may start on a GPU."""

    slots: int = 1
    max_utilization: float = 50.0
    max_foreign_percent: float = 10.0


def start_rules(box: Box) -> StartRules:
    """Return the rules that the runner of this box has stored."""
    return StartRules(slots=int(box.get(BoxKey.SLOTS, 1)), **box.get(BoxKey.FREE, {}))


def current_gpu_states(home: str, box: Box, leases: Sequence[Lease]) -> GpuStates:
    """Return the GPUs of a state folder, from the last published reading."""
    return GpuStates(read_published(home), leases, start_rules(box))


def gpu_trouble(home: str) -> str | None:
    """Return the driver's error if not even the list of GPUs is known; None if it is, or the box has no GPUs."""
    published = read_published(home)
    return published[0].trouble if published and not published[0].gpus else None


class GpuStates:
    """All GPUs as of the last reading."""

    def __init__(self, published: tuple[Snapshot, float] | None, leases: Sequence[Lease], rules: StartRules) -> None:
        self._snapshot = published[0] if published else None
        self._age_s = published[1] if published else 0.0
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
        extra = {"simulated": snapshot.simulated, "age_s": None if self._age_s == math.inf else self._age_s}
        return [{**self._described(gpu), **extra} for gpu in snapshot.gpus]

    def rooms(self) -> list[Room]:
        """Return the room on each GPU, as the scheduler sees it."""
        return [self._room(gpu) for gpu in self._snapshot.gpus] if self._snapshot else []

    def _described(self, gpu: Gpu) -> dict[str, Any]:
        jobs = sorted({lease.job_id for lease in self._on(gpu)})
        state, detail = self._state(gpu, bool(jobs))
        return {
            **{name: getattr(gpu, name) for name in ("index", "uuid", "name", "memory_total_mib")},
            **{name: getattr(gpu, name) if self.is_current else None for name in _CHANGING},
            "state": state,
            "detail": detail,
            "jobs": jobs,
            "node": gpu.node,
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
        held_by_others = gpu.detail if gpu.health is GpuHealth.OK else None  # as a cluster tells
        return (
            self._snapshot.trouble
            or held_by_others
            or why_not_free(
                gpu,
                leased_by_us=leased,
                max_utilization=self._rules.max_utilization,
                max_foreign_share=self._rules.max_foreign_percent / 100,
            )
        )

    def _when_read(self, gpu: Gpu) -> str:
        """Say how old the readings are and what is wrong with the driver; no trouble from before the last boot."""
        assert self._snapshot is not None
        from runner.gpu.inventory import is_identified

        if not is_identified(gpu):  # it was never read
            return self._snapshot.trouble or gpu.detail or "has never been read"
        if self._age_s == math.inf:
            return "last read before the last boot"
        read = f"last read {format_duration(self._age_s)} ago"
        return f"{read}. {self._snapshot.trouble}" if self._snapshot.trouble else read

    def _on(self, gpu: Gpu) -> list[Lease]:
        return [lease for lease in self._leases if lease.resource == gpu.uuid]
