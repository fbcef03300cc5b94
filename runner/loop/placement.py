"""Finds the free slots: leases come from the database, health and foreign use from the sampler."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.gpu.availability import room_of, why_not_free
from runner.loop.memory_settling import MemorySettling
from runner.model import GpuHealth
from runner.notices import GpuBack, GpuHeld, GpuLost
from runner.schedule.room import free_slots
from runner.step import Step
from runner.store.box import BoxKey
from runner.store.scheduling_queries import CPU

if TYPE_CHECKING:
    from collections.abc import Collection

    from runner.model import Exit, Gpu, Job, State
    from runner.schedule.room import Room
    from runner.step import Context
    from runner.store.scheduling_queries import Lease

ECHO_S = 2.0
SETTLES_WITHIN_S = 10.0
LOOK_AGAIN_S = 0.05


class Placement(Step):
    """Finds free slots. A lease makes a slot ours; the sampler's reading says whether a free slot is usable."""

    def __init__(self, context: Context) -> None:
        self._context, self._settings = context, context.settings
        self._will_ask = False
        self._settling = MemorySettling(context.waiter, context.settings.settle)
        self._told_lost = True  # True until the database has been read once
        self._released: dict[str, float] = {}  # GPU -> when our last job there ended, monotonic clock

    @property
    def slots(self) -> int:
        """Return the number of GPU slots of the box."""
        return len(self._context.gpus()) * self._settings.slots_per_gpu

    def on_end(self, job: Job, state: State | None, end: Exit | None, gone_at: float) -> None:  # noqa: ARG002
        """Note that a job left its GPUs. Nothing starts there until a later reading shows that its memory is free."""
        self._released |= dict.fromkeys(job.gpus, gone_at)

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
        taken = self._why_not(gpu, len(on_it)) if room.free_slots and not trouble else None
        why_not = (trouble or taken or settling) if room.free_slots else None
        lasting = taken is not None and gpu.uuid not in self._released  # a foreign process may stay for ever
        return replace(room, why_not=why_not, sick=room.sick or lasting)

    def _why_not(self, gpu: Gpu, leased: int) -> str | None:
        released_at = self._released.get(gpu.uuid)
        if released_at is not None and gpu.sampled_at <= released_at:
            self._context.engine.read_gpus()
            return "is being read to see that its memory is back"
        # the driver still reports the load of our own job for a moment after its end
        echo = released_at is not None and time.monotonic() - released_at < ECHO_S
        why_not = why_not_free(
            gpu,
            leased_by_us=leased,
            max_utilization=math.inf if echo else self._settings.free_utilization,
            max_foreign_share=self._settings.free_memory / 100,
        )
        if released_at is not None and not leased:
            self._await_memory(gpu, released_at, why_not)
        return why_not

    def _await_memory(self, gpu: Gpu, released_at: float, why_not: str | None) -> None:
        """Wait for the memory of an ended job to come back. After too long, send a notice that says who holds it."""
        since_s = time.monotonic() - released_at
        if why_not is None:
            if since_s > ECHO_S:
                del self._released[gpu.uuid]
        elif since_s < SETTLES_WITHIN_S:
            self._ask_again()
        else:
            del self._released[gpu.uuid]
            self._context.notices.add(GpuHeld(gpu=gpu.uuid, index=gpu.index, why=why_not))

    def _ask_again(self) -> None:
        """Ask for a reading in a moment. One timer serves all GPUs."""
        if self._will_ask:
            return
        self._will_ask = True

        def ask() -> bool:
            self._will_ask = False
            self._context.engine.read_gpus()
            return False

        self._context.waiter.after(LOOK_AGAIN_S, ask)

    def tick(self) -> None:
        """Send one notice when a GPU is lost, and one when it is back."""
        gpus = self._context.gpus().values()
        lost = {gpu.uuid: gpu for gpu in gpus if gpu.health is GpuHealth.LOST}
        known = set(self._context.box.get(BoxKey.LOST_GPUS, ())) if lost or self._told_lost else set()
        well = {gpu.uuid for gpu in gpus if gpu.health is GpuHealth.OK}
        now = (known - well) | set(lost)  # a GPU that only stopped answering is not back
        self._told_lost = bool(now)
        if now == known:
            return
        for uuid in now - known:
            self._context.notices.add(GpuLost(gpu=uuid, index=lost[uuid].index, why=lost[uuid].detail))
        for uuid in known - now:
            self._context.notices.add(GpuBack(gpu=uuid))
        self._context.box.set(BoxKey.LOST_GPUS, sorted(now) or None)
