"""The running jobs of one pass, those that started in it included: all, by GPU, and the preemptible ones. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from runner.schedule.choice import Running
    from runner.schedule.room import Room


class RunningJobs:
    """The jobs that hold GPUs, in the order in which the pass heard of them."""

    def __init__(self, running: Iterable[Running]) -> None:
        self._new = list(running)  # not in `_by_gpu` yet: many passes never ask for it
        self._by_gpu: defaultdict[str, list[Running]] = defaultdict(list)
        self.preemptible = [job for job in self._new if job.request.preemptible]

    def add(self, job: Running) -> None:
        """Add a job that has just started."""
        self._new.append(job)
        if job.request.preemptible:
            self.preemptible.append(job)

    def on(self, room: Room) -> Sequence[Running]:
        """Return the jobs on a GPU."""
        for job in self._new:
            for uuid in dict.fromkeys(job.gpus):
                self._by_gpu[uuid].append(job)
        self._new.clear()
        return self._by_gpu.get(room.uuid, ())
