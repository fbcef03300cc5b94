"""What attempts use of their GPUs, gathered from the sampler's readings as they come."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.gpu.attribution import own_memory_mib
from runner.model import GpuHealth
from runner.processes.linux import is_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runner.gpu.telemetry import Telemetry
    from runner.model import Gpu, Job
    from runner.store.gpu_usage import Used
    from runner.store.scheduling_queries import UnderWay

FIRST_SAVE_S, SAVE_EVERY_S = 5.0, 30.0  # a crash loses at most what came since
WAYS = ("process", "device")  # how memory is attributed, the surer first


class Live(NamedTuple):
    """An attempt whose processes are there."""

    job_id: int
    attempt: int
    supervisor: int  # its pid


@dataclass(slots=True)
class Sums:
    """What has been seen of one attempt; JSON while it runs, so that another runner can go on with it."""

    before_mib: dict[str, int] = field(default_factory=dict)  # on GPUs it has alone: what was used when it came
    samples: int = 0
    utilization_sum: int = 0
    utilization_count: int = 0
    memory_total_mib: int | None = None
    peak_mib: dict[str, int] = field(default_factory=dict)  # way -> the most on one GPU
    peak_sum_mib: dict[str, int] = field(default_factory=dict)  # way -> the most on all its GPUs together

    def add(self, gpus: Iterable[Gpu], held: Mapping[str, tuple[int, str]], alone: Mapping[str, bool]) -> None:
        """One reading of its GPUs; `held` has what it holds on those where that is known, and how."""
        gpus = list(gpus)
        self.samples += 1
        for gpu in gpus:
            if gpu.utilization is not None and alone[gpu.uuid]:  # what two share cannot be told apart
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
        """For people; None is what is not known."""
        # one whose processes are listed later was not listed before only because it had not used the GPU yet
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
        """The report so far, and what it is reckoned from."""
        return {**self.report(), "sums": asdict(self)}


@dataclass(slots=True)
class Metered:
    """One attempt and its sums."""

    attempt: int
    gpus: tuple[str, ...]
    sums: Sums
    since: float  # readings from before it are not its own, by the monotonic clock
    unsaved: bool = False


class Usage:
    """The sums of all that runs."""

    def __init__(self, used: Used, telemetry: Telemetry) -> None:
        self._used, self._telemetry = used, telemetry
        self._metered: dict[int, Metered] = {}
        self._read_at: dict[str, float] = {}  # GPU -> its last reading that was counted
        self._save_at = time.monotonic() + FIRST_SAVE_S

    def follow(self, under_way: Iterable[UnderWay]) -> None:
        """Take up what is under way, from where the runner before us left it, and let go of what is not."""
        rows = {row.id: row.attempt for row in under_way}
        for job_id in self._metered.keys() - rows.keys():
            del self._metered[job_id]
        for job_id, attempt in rows.items():
            self._of(job_id, attempt)

    def before(self, gpus: Iterable[str]) -> Sums:
        """To go by for an attempt that is to have these GPUs now."""
        snapshot = self._telemetry.snapshot
        shared = self._holders()
        used = {gpu.uuid: gpu.memory_used_mib for gpu in (snapshot.gpus if snapshot else ())}
        alone = [uuid for uuid in gpus if not shared[uuid]]
        return Sums(before_mib={uuid: mib for uuid in alone if (mib := used.get(uuid)) is not None})

    def begin(self, job_id: int, attempt: int, gpus: tuple[str, ...], sums: Sums) -> None:
        """An attempt was claimed."""
        now = time.monotonic()
        self._metered[job_id] = Metered(attempt, gpus, sums, since=now)
        self._save_at = min(self._save_at, now + FIRST_SAVE_S)

    def before_mib(self, job_id: int) -> dict[str, int]:
        """What was used, when the job came, of the GPUs that it has alone."""
        found = self._metered.get(job_id)
        return found.sums.before_mib if found else {}

    def begin_anew(self, job: Job) -> None:
        """The real run begins: what its probes used is none of its use."""
        metered = self._of(job.id, job.attempt)
        metered.sums, metered.since = Sums(before_mib=metered.sums.before_mib), time.monotonic()
        metered.unsaved = True

    def read(self, live: Iterable[Live]) -> None:
        """Take the sampler's latest reading into the sums of everything that runs."""
        fresh, holders = self._fresh(), self._holders()
        for one in live:
            metered = self._of(one.job_id, one.attempt)
            gpus = [fresh[u] for u in metered.gpus if u in fresh and fresh[u].sampled_at > metered.since]
            if gpus:
                alone = {gpu.uuid: holders[gpu.uuid] == 1 for gpu in gpus}
                metered.sums.add(gpus, _held(gpus, metered.sums.before_mib, one.supervisor, alone), alone)
                metered.unsaved = True

    def _fresh(self) -> dict[str, Gpu]:
        """The GPUs that were read since they were last looked at."""
        snapshot = self._telemetry.snapshot
        gpus = snapshot.gpus if snapshot else ()
        found = {
            gpu.uuid: gpu
            for gpu in gpus
            if gpu.health is GpuHealth.OK and gpu.sampled_at > self._read_at.get(gpu.uuid, 0.0)
        }
        self._read_at |= {uuid: gpu.sampled_at for uuid, gpu in found.items()}
        return found

    def _holders(self) -> Counter[str]:
        return Counter(uuid for metered in self._metered.values() for uuid in metered.gpus)

    def _of(self, job_id: int, attempt: int) -> Metered:
        """The sums of an attempt: those kept here, or those that the runner before us left."""
        found = self._metered.get(job_id)
        if found is None or found.attempt != attempt:
            gpus, kept = self._used.kept(job_id, attempt)
            found = self._metered[job_id] = Metered(attempt, gpus, Sums(**kept.get("sums", {})), since=0.0)
        return found

    def report(self, job: Job) -> dict[str, Any] | None:
        """What the job's attempt used; None for one that had no GPU."""
        return self._of(job.id, job.attempt).sums.report() if job.gpus else None

    def save(self, *, now: bool = False) -> None:
        """Write down the sums where that is due, as part of the caller's transaction."""
        if not now and time.monotonic() < self._save_at:
            return
        for job_id, metered in self._metered.items():
            if metered.unsaved:
                self._used.keep(job_id, metered.attempt, json.dumps(metered.sums.to_json()))
                metered.unsaved = False
        self._save_at = time.monotonic() + SAVE_EVERY_S


def _held(
    gpus: Iterable[Gpu], before_mib: Mapping[str, int], supervisor: int, alone: Mapping[str, bool]
) -> dict[str, tuple[int, str]]:
    """What an attempt holds on each GPU, where that can be told, and how it is known."""
    is_own = partial(is_below, root=supervisor)
    told = {g.uuid: own_memory_mib(g, is_own, before_mib.get(g.uuid) if alone[g.uuid] else None) for g in gpus}
    return {uuid: held for uuid, held in told.items() if held is not None}
