"""One job of a compressed night: it holds memory of simulated GPUs, works, saves, and goes wrong as it is told to.

python train_7.py FOLDER     reads FOLDER/7.json, a Job with its seconds already compressed, and writes to
                             FOLDER/7.work how much work is done, how much of it is saved, and whether its
                             fault is behind it
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.night import CRASH, IDLES, OK, OOM, SPINS, Job, Printing
from benchmarks.night_rules import printed
from runner.gpu.sim.load import Hold, SimulatedOutOfMemoryError, hold

STEP_S = 0.25
ALLOCATED_ANEW_MIB = 100  # in each step: a neighbour that leaves no room is met here
BASE_MIB, DEFAULT_BATCH = 1_500, 20


@dataclass
class Work:
    """What a job has to show for itself, over all its attempts."""

    path: Path
    done_s: float = 0.0
    saved_s: float = 0.0
    healed: bool = False

    @classmethod
    def at(cls, folder: Path, number: int) -> Work:
        path = folder / f"{number}.work"
        with contextlib.suppress(FileNotFoundError):
            return cls(path, *json.loads(path.read_text()))
        return cls(path)

    def write(self) -> None:
        draft = self.path.with_suffix(".tmp")
        draft.write_text(json.dumps([self.done_s, self.saved_s, self.healed]))
        os.replace(draft, self.path)


def run(job: Job, work: Work) -> int:
    """All of it, from where the last attempt was saved; the exit code."""
    work.done_s = work.saved_s
    memory_mib = job.mib
    if job.probes:
        memory_mib = BASE_MIB + int(os.environ["NIGHTSHIFT_BATCH_SIZE"]) * job.mib // DEFAULT_BATCH
    if os.environ.get("NIGHTSHIFT_PROBE"):
        time.sleep(1.5)  # it loads
    with hold(memory_mib=memory_mib, load=95) as held:
        if os.environ.get("NIGHTSHIFT_PROBE"):
            signal.pause()
        return _work(job, work, held)


def _work(job: Job, work: Work, held: Hold) -> int:
    if job.filler:
        signal.signal(signal.SIGTERM, lambda *_: _save_and_leave(work))
    faulty = job.fault != OK and not work.healed and job.fault_s >= work.done_s
    until_s = job.fault_s if faulty else job.work_s
    began, had_s = time.monotonic(), work.done_s
    lines = deque((at_s, line) for at_s, line in progress_lines(job) if at_s > had_s)
    while work.done_s < until_s:
        time.sleep(min(STEP_S, until_s - work.done_s))
        work.done_s = min(until_s, had_s + time.monotonic() - began)
        if job.saves_every_s:
            work.saved_s = max(work.saved_s, work.done_s // job.saves_every_s * job.saves_every_s)
        work.write()
        if not job.prints:
            print(f"step {work.done_s:.2f}", flush=True)
        while lines and lines[0][0] <= work.done_s:
            print(lines.popleft()[1], flush=True)
        held.resize(held.memory_mib - ALLOCATED_ANEW_MIB)
        held.resize(held.memory_mib + ALLOCATED_ANEW_MIB)
    return _go_wrong(job, work, held) if faulty else 0


def progress_lines(job: Job) -> Iterator[tuple[float, str]]:
    """What a job that prints its progress prints, and after how many seconds of work."""
    steps = list(printed(job, job.work_s / job.prints.epochs)) if job.prints else []
    for position, (at_s, evaluated) in enumerate(steps, start=1):
        if evaluated:
            yield at_s, "Evaluating: 100%|██████████| 1/1 [00:01<00:00,  1.00it/s]"
        yield at_s, f"step {position}/{len(steps)} loss 2.31"


def _go_wrong(job: Job, work: Work, held: Hold) -> int:
    if job.fault == OOM:
        work.healed = job.probes  # with the next batch, which is smaller
        work.write()
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", flush=True)
    if job.fault == SPINS:
        held.spin()
    if job.fault == IDLES:
        held.resize(held.memory_mib, 0)
    while job.fault in (SPINS, IDLES):
        signal.pause()
    return job.exit_code if job.fault == CRASH else 1


def _save_and_leave(work: Work) -> None:
    work.saved_s = work.done_s
    work.write()
    sys.exit(0)


def main() -> int:
    folder, number = Path(sys.argv[1]), int(Path(sys.argv[0]).stem.rpartition("_")[2])
    told = json.loads((folder / f"{number}.json").read_text())
    job = Job(**{**told, "prints": Printing(**told["prints"]) if told["prints"] else None})
    try:
        return run(job, Work.at(folder, number))
    except SimulatedOutOfMemoryError as error:
        print(f"torch.OutOfMemoryError: {error}", flush=True)
        return 1
