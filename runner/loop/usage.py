"""Measures how much attempts use their GPUs, from the sampler's readings."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runner.model import GpuHealth, Record
from runner.step import Step
from runner.store.measurements import Used
from runner.supervisor.gpu_memory import own_memory_mib

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runner.model import Gpu, Job
    from runner.step import Context

FIRST_SAVE_S, SAVE_EVERY_S = 5.0, 30.0  # a crash loses at most the readings since the last save
WAYS = ("process", "device")  # how memory is attributed, the more reliable way first


@dataclass(slots=True)
class Sums(Record):
    """The measurements of one attempt. Saved as JSON while it runs, so that the next runner can continue them."""

    before_mib: dict[str, int] = field(default_factory=dict)  # memory used before it started, on GPUs it has to itself
    samples: int = 0
    utilization_sum: int = 0
    utilization_count: int = 0
    memory_total_mib: int | None = None
    peak_mib: dict[str, int] = field(default_factory=dict)  # way -> peak on one GPU
    peak_sum_mib: dict[str, int] = field(default_factory=dict)  # way -> peak of all its GPUs together

    def add(self, gpus: Iterable[Gpu], held: Mapping[str, tuple[int, str]], alone: Mapping[str, bool]) -> None:
        """Add one reading of its GPUs. `held` maps a GPU to the MiB the attempt holds there and how that is known."""
        gpus = list(gpus)
        self.samples += 1
        for gpu in gpus:
            if gpu.utilization is not None and alone[gpu.uuid]:  # the load of a shared GPU cannot be split
                self.utilization_sum += gpu.utilization
                self.utilization_count += 1
            if gpu.uuid in held:
                self._memory(gpu, *held[gpu.uuid])
            elif self.memory_total_mib is None:
                self.memory_total_mib = gpu.memory_total_mib
        ways = {way for _, way in held.values()}
        if len(held) == len(gpus) and len(ways) == 1:
            way = ways.pop()
            self.peak_sum_mib[way] = max(self.peak_sum_mib.get(way, 0), sum(mib for mib, _ in held.values()))

    def _memory(self, gpu: Gpu, mib: int, way: str) -> None:
        if mib >= self.peak_mib.get(way, 0):
            self.peak_mib[way] = mib
            self.memory_total_mib = gpu.memory_total_mib

    def report(self) -> dict[str, Any]:
        """Return the summary for people. Unknown values are None."""
        # prefer "process" even if early readings were by device: the driver lists a process once it uses the GPU
        way = next((way for way in WAYS if way in self.peak_mib), None)
        count = self.utilization_count
        return {
            "peak_memory_mib": self.peak_mib[way] if way else None,
            "peak_memory_sum_mib": self.peak_sum_mib.get(way) if way else None,
            "memory_total_mib": self.memory_total_mib,
            "mean_utilization": round(self.utilization_sum / count, 1) if count else None,
            "samples": self.samples,
            "attributed_by": way,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the report so far and the sums it is computed from."""
        return {**self.report(), "sums": Record.to_json(self)}


@dataclass(slots=True)
class Metered:
    """One attempt and its sums."""

    attempt: int
    gpus: tuple[str, ...]
    sums: Sums
    since: float  # readings before this monotonic time do not count
    unsaved: bool = False


class Usage(Step):
    """The sums of all running attempts."""

    def __init__(self, context: Context) -> None:
        self._context, self._used = context, Used(context.store)
        self._metered: dict[int, Metered] = {}
        self._read_at: dict[str, float] = {}  # GPU -> time of its last counted reading
        self._save_at = time.monotonic() + FIRST_SAVE_S

    def tick(self) -> None:
        """Meter the live attempts, continuing what an earlier runner saved. Save what changed if it is time to."""
        rows = {row.id: row.attempt for row in self._context.live()}
        for job_id in self._metered.keys() - rows.keys():
            del self._metered[job_id]
        for job_id, attempt in rows.items():
            self._of(job_id, attempt)
        if time.monotonic() >= self._save_at:
            self.leave()

    def before(self, gpus: Iterable[str]) -> Sums:
        """Return new sums for an attempt that is about to get these GPUs, with the memory used now as its base."""
        shared = self._holders()
        used = {uuid: gpu.memory_used_mib for uuid, gpu in self._context.gpus().items()}
        alone = [uuid for uuid in gpus if not shared[uuid]]
        return Sums(before_mib={uuid: mib for uuid in alone if (mib := used.get(uuid)) is not None})

    def begin(self, job_id: int, attempt: int, gpus: tuple[str, ...], sums: Sums) -> None:
        """Start to meter an attempt that was just claimed."""
        now = time.monotonic()
        self._metered[job_id] = Metered(attempt, gpus, sums, since=now)
        self._save_at = min(self._save_at, now + FIRST_SAVE_S)

    def before_mib(self, job_id: int) -> dict[str, int]:
        """Return the MiB used before the job started, by UUID, on the GPUs it has to itself."""
        metered = self._metered.get(job_id)
        return metered.sums.before_mib if metered else {}

    def restart(self, job: Job) -> None:
        """Reset the sums when the real run begins: what its probes used does not count."""
        metered = self._of(job.id, job.attempt)
        metered.sums, metered.since = Sums(before_mib=metered.sums.before_mib), time.monotonic()
        metered.unsaved = True

    def read(self) -> None:
        """Add the latest reading to the sums of the attempts whose processes are running."""
        fresh, holders = self._fresh(), self._holders()
        for ref in self._context.running if fresh else ():
            metered = self._of(ref.job_id, ref.attempt)
            gpus = [fresh[u] for u in metered.gpus if u in fresh and fresh[u].sampled_at > metered.since]
            if gpus:
                alone = {gpu.uuid: holders[gpu.uuid] == 1 for gpu in gpus}
                metered.sums.add(gpus, _held(gpus, metered.sums.before_mib, ref.mark, alone), alone)
                metered.unsaved = True

    def _fresh(self) -> dict[str, Gpu]:
        """Return the healthy GPUs with a new reading since the last call."""
        fresh = {
            gpu.uuid: gpu
            for gpu in self._context.gpus().values()
            if gpu.health is GpuHealth.OK and gpu.sampled_at > self._read_at.get(gpu.uuid, 0.0)
        }
        self._read_at |= {uuid: gpu.sampled_at for uuid, gpu in fresh.items()}
        return fresh

    def _holders(self) -> Counter[str]:
        return Counter(uuid for metered in self._metered.values() for uuid in metered.gpus)

    def _of(self, job_id: int, attempt: int) -> Metered:
        """Return an attempt's sums: those in memory, or those that an earlier runner saved."""
        metered = self._metered.get(job_id)
        if metered is None or metered.attempt != attempt:
            gpus, stored = self._used.stored(job_id, attempt)
            metered = self._metered[job_id] = Metered(attempt, gpus, Sums.from_json(stored.get("sums", {})), since=0.0)
        return metered

    def report(self, job: Job) -> dict[str, Any] | None:
        """Return what the job's attempt used; None if it had no GPU."""
        return self._of(job.id, job.attempt).sums.report() if job.gpus else None

    def leave(self) -> None:
        """Save changed sums."""
        for job_id, metered in self._metered.items():
            if metered.unsaved:
                self._used.keep(job_id, metered.attempt, json.dumps(metered.sums.to_json()))
                metered.unsaved = False
        self._save_at = time.monotonic() + SAVE_EVERY_S


def _held(
    gpus: Iterable[Gpu], before_mib: Mapping[str, int], mark: str, alone: Mapping[str, bool]
) -> dict[str, tuple[int, str]]:
    """Return what an attempt holds on each GPU and how that is known, without GPUs where it is unknown."""
    own = {
        gpu.uuid: own_memory_mib(
            gpu, lambda process: process.of == mark, before_mib.get(gpu.uuid) if alone[gpu.uuid] else None
        )
        for gpu in gpus
    }
    return {uuid: held for uuid, held in own.items() if held is not None}
