"""Finds the free slots: leases come from the database, health and foreign use from the sampler."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.gpu.availability import room_of
from runner.loop.freed_gpus import FreedGpus
from runner.loop.shared_gpu_settling import MemorySettling
from runner.schedule.room import free_cpu_slots
from runner.step import Step

if TYPE_CHECKING:
    from collections.abc import Collection

    from runner.model import Exit, Gpu, Job, State
    from runner.schedule.room import CpuSlot, Room
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

    @property
    def cpu_slots(self) -> int:
        """Return the number of slots for jobs without a GPU."""
        return sum(node.cpu_slots for node in self._context.engine.nodes())

    def free_cpu_slots(self, leases: list[Lease]) -> list[CpuSlot]:
        """Return the free slots for jobs without a GPU, of each node."""
        nodes = self._context.nodes()
        shown = {node.name: name for name, node in nodes.items()}
        taken = [lease.cpu_slot for lease in leases if lease.is_cpu]
        counts = {name: node.cpu_slots for name, node in nodes.items()}
        return free_cpu_slots(counts, [slot._replace(node=shown[slot.node]) for slot in taken if slot.node in shown])

    def rooms(self, leases: list[Lease], probing: Collection[int] = ()) -> list[Room]:
        """Return every GPU with its free slots, or why it cannot be used. `probing`: jobs whose memory is measured."""
        if self._context.engine.can.places:
            return []  # the engine finds the GPUs
        return [
            self._room(gpu, leases, probing, node.trouble, name)
            for name, node in self._context.nodes().items()
            for gpu in (node.snapshot.gpus if node.snapshot else ())
        ]

    def _room(
        self, gpu: Gpu, leases: list[Lease], probing: Collection[int], trouble: str | None, node: str | None
    ) -> Room:
        on_it = [lease for lease in leases if lease.resource == gpu.uuid]
        room = room_of(gpu, on_it, self._settings.slots_per_gpu, None)
        settling = self._settling.why_not(gpu, on_it, probing)  # always called: it must see every job come and go
        taken = self._freed.why_not(gpu, len(on_it)) if room.free_slots and not trouble else None
        why_not = (trouble or taken or settling) if room.free_slots else None
        lasting = taken is not None and gpu.uuid not in self._freed  # a foreign process may stay for ever
        return replace(room, node=node, why_not=why_not, sick=room.sick or lasting)
