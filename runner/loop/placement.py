"""Finds the free slots: leases come from the database, health and foreign use from the sampler."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.gpu.availability import room_of
from runner.loop.freed_gpus import FreedGpus
from runner.loop.shared_gpu_settling import MemorySettling
from runner.schedule.room import free_slots
from runner.step import Step
from runner.store.scheduling_queries import CPU

if TYPE_CHECKING:
    from collections.abc import Collection

    from runner.model import Exit, Gpu, Job, State
    from runner.schedule.room import Room
    from runner.step import Context
    from runner.store.scheduling_queries import Lease


class Placement(Step):
    """Finds free slots. A lease makes a slot ours; the sampler's reading says whether a free slot is usable."""

    def __init__(self, context: Context) -> None:
        self._context, self._settings = context, context.settings
        self._settling = MemorySettling(context.waiter, context.settings.settle)
        self._freed = FreedGpus(context)

    @property
    def slots(self) -> int:
        """Return the number of GPU slots of the box."""
        return len(self._context.gpus()) * self._settings.slots_per_gpu

    def on_end(self, job: Job, state: State | None, end: Exit | None, gone_at: float) -> None:  # noqa: ARG002
        """Note that a job left its GPUs."""
        self._freed.add(job.gpus, gone_at)

    def free_cpu_slots(self, leases: list[Lease]) -> list[int]:
        """Return the free slots for jobs without a GPU."""
        taken = {lease.slot for lease in leases if lease.resource == CPU}
        return list(free_slots(self._settings.cpu_slots, taken))

    def rooms(self, leases: list[Lease], probing: Collection[int] = ()) -> list[Room]:
        """Return every GPU with its free slots, or why it cannot be used. `probing`: jobs whose memory is measured."""
        return [
            self._room(gpu, leases, probing, node.trouble)
            for node in self._context.engine.nodes()
            for gpu in (node.snapshot.gpus if node.snapshot else ())
        ]

    def _room(self, gpu: Gpu, leases: list[Lease], probing: Collection[int], trouble: str | None) -> Room:
        on_it = [lease for lease in leases if lease.resource == gpu.uuid]
        room = room_of(gpu, on_it, self._settings.slots_per_gpu, None)
        settling = self._settling.why_not(gpu, on_it, probing)  # always called: it must see every job come and go
        taken = self._freed.why_not(gpu, len(on_it)) if room.free_slots and not trouble else None
        why_not = (trouble or taken or settling) if room.free_slots else None
        lasting = taken is not None and gpu.uuid not in self._freed  # a foreign process may stay for ever
        return replace(room, why_not=why_not, sick=room.sick or lasting)
