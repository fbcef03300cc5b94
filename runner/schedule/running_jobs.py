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
        self._places: dict[int, int] = {}
        self.preemptible = [job for job in self._new if job.request.preemptible]

    def add(self, job: Running) -> None:
        """Add a job that has just started."""
        self._new.append(job)
        if job.request.preemptible:
            self.preemptible.append(job)

    def on(self, room: Room) -> Sequence[Running]:
        """Return the jobs on a GPU."""
        self._take_in()
        return self._by_gpu.get(room.uuid, ())

    def preemptible_on(self, rooms: Iterable[Room]) -> list[Running]:
        """Return the preemptible jobs on these GPUs."""
        if not self.preemptible:
            return []
        jobs = {job.id: job for room in rooms for job in self.on(room) if job.request.preemptible}
        return sorted(jobs.values(), key=lambda job: self._places[job.id])

    def _take_in(self) -> None:
        for job in self._new:
            self._places[job.id] = len(self._places)
            for uuid in dict.fromkeys(job.gpus):
                self._by_gpu[uuid].append(job)
        self._new.clear()
