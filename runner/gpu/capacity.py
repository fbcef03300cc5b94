"""How much room a GPU has: its slots and memory, minus what its leases take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.model import GpuHealth
from runner.schedule.choice import Room, free_slots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.model import Gpu
    from runner.store.scheduling_queries import Lease


def room_of(gpu: Gpu, leases: Sequence[Lease], slots: int, why_not: str | None) -> Room:
    """Return the room left on a GPU with these leases. `why_not` says why no job may start there, None if one may."""
    usable_mib = _usable_mib(gpu)
    share_mib = None if usable_mib is None else usable_mib // slots
    return Room(
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        free_slots=free_slots(slots, {lease.slot for lease in leases}),
        slots=slots,
        memory_mib=_left_mib(gpu, leases, usable_mib, share_mib),
        share_mib=share_mib,
        why_not=why_not,
        sick=gpu.health is not GpuHealth.OK,
    )


def _usable_mib(gpu: Gpu) -> int | None:
    return None if gpu.memory_total_mib is None else gpu.memory_total_mib - (gpu.memory_reserved_mib or 0)


def _left_mib(gpu: Gpu, leases: Sequence[Lease], usable_mib: int | None, share_mib: int | None) -> int | None:
    """Return the MiB left: usable minus leased, whether used yet or not. Without leases, usable minus used."""
    if usable_mib is None or share_mib is None:
        return None
    if not leases:
        return None if gpu.memory_used_mib is None else max(0, usable_mib - gpu.memory_used_mib)
    promised = sum(share_mib if lease.memory_mib is None else lease.memory_mib for lease in leases)
    return max(0, usable_mib - promised)
