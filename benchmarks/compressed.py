"""A night on the real runner: real processes on simulated GPUs, ten times as fast as it would be.

Everything that is a setting is a tenth of its default, and so are the jobs and the times of the stall rule. The rest is
not: a reading of the GPUs each second, a look for hung jobs each ten, the start of a process. So each of these counts
ten times as much as in a night at its own pace, and the share is a lower bound of what it would be there.

`python -m benchmarks.compressed 1` plays night 1, which takes an hour; `--hours 2` only its first two of ten. With
`--progress 0.9`, nine of ten jobs print their progress.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from operator import itemgetter
from pathlib import Path

from benchmarks.box import Box, a_box
from benchmarks.compressed_runner import FASTER
from benchmarks.night import BOOT_S, GPUS, NIGHT_S, OK, Job, Night
from benchmarks.night_box import ORACLE, SHIPPED, Ours
from benchmarks.night_job import Work
from runner.config.option_reader import read_words
from runner.gpu.sim import state
from runner.gpu.sim.state import Claim
from runner.model import State

Act = tuple[float, Callable[[], None]]
REPOSITORY = Path(__file__).parents[1]
SETTINGS = {
    "gpus": f"sim:{GPUS}x24GiB",
    "breaker": "3",
    "breaker_within": "1s",
    "breaker_again": "30s",
    "idle": "5%:1s:30:6",
    "hung": "yield:1m",
    "stop_grace": "1s",
    "settle": "1s",
    "age": "8640s",
    "probe_quiet": "1s",
    "probe_limit": "12s",
}
RUNNER = [sys.executable, "-m", "benchmarks.compressed_runner"]
PRIORITIES = {-1: "low", 0: "normal", 1: "high"}


@dataclass
class Play:
    """One night on one box."""

    night: Night  # already compressed
    box: Box
    folder: Path
    ids: dict[int, int] = field(default_factory=dict)  # of the night's jobs, in the queue
    _neighbours: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)  # by GPU

    def run(self) -> tuple[float, dict[int, str]]:
        """The share of GPU time that was spent on work that counted, and what had become of each job by then."""
        began = time.monotonic()
        for at_s, act in self._timeline():
            time.sleep(max(0.0, began + at_s - time.monotonic()))
            act()
        jobs = {number: self.box.queue.job(job_id) for number, job_id in self.ids.items()}
        self.box.crash()
        for process in self._neighbours.values():
            process.kill()
            process.wait()
        counted_s = sum(self._counted_s(one, jobs[one.id].state) for one in self.night.jobs if one.id in jobs)
        ends = {number: " ".join([job.state, *([job.reason] if job.reason else [])]) for number, job in jobs.items()}
        return counted_s / (GPUS * self.night.length_s), ends

    def _timeline(self) -> list[Act]:
        acts: list[Act] = [(job.at_s, partial(self._submit, job)) for job in self.night.jobs]
        for gpu, start_s, end_s, mib in self.night.neighbours:
            acts.append((start_s, partial(self._neighbour_comes, gpu, mib)))
            acts.append((end_s, partial(self._neighbour_goes, gpu)))
        acts.append((self.night.reboot_s, self._reboot))
        acts.append((self.night.reboot_s + self.night.boot_s, self.box.start))
        acts = [(at_s, act) for at_s, act in acts if at_s < self.night.length_s]
        return sorted([*acts, (self.night.length_s, lambda: None)], key=itemgetter(0))

    def _submit(self, job: Job) -> None:
        # a program of its own, so that nobody takes two jobs for the same; but for those that are
        place = self.folder / f"project_{job.kind or -job.id}"
        place.mkdir(exist_ok=True)
        program = place / f"train_{job.id}.py"
        program.write_text("import sys\nfrom benchmarks.night_job import main\nsys.exit(main())\n")
        (self.folder / f"{job.id}.json").write_text(json.dumps(asdict(job)))
        values, _, _ = read_words(_options(job))
        command = f"{sys.executable} {program if not job.kind else program.name} {self.folder}"
        spec = self.box.spec(command, owner=job.owner, folder=str(place), env={"PYTHONPATH": str(REPOSITORY)}, **values)
        (self.ids[job.id],) = self.box.submit(spec)

    def _neighbour_comes(self, gpu: int, mib: int) -> None:
        """Its memory is taken whether there is room or not: the next of ours that asks for some finds none."""
        process = subprocess.Popen(["sleep", "1d"])
        self._neighbours[gpu] = process
        claim = Claim(process.pid, state.start_time(process.pid) or 0, mib, 60)
        state.write_claim(self._sim, f"{gpu}.{process.pid}", claim)

    def _neighbour_goes(self, gpu: int) -> None:
        process = self._neighbours.pop(gpu)
        process.kill()
        process.wait()
        state.drop_claim(self._sim, f"{gpu}.{process.pid}")

    @property
    def _sim(self) -> str:
        return state.folder_of(self.box.home)

    def _reboot(self) -> None:
        """Power fails; what is found when it is back was written by another boot."""
        self.box.crash()
        for started in Path(self.box.home, "runs").glob("*/*/started.json"):
            if not started.with_name("exit.json").exists():
                started.write_text(json.dumps({**json.loads(started.read_text()), "boot_id": "another"}))

    def _counted_s(self, job: Job, state: State) -> float:
        """GPU seconds, as benchmarks.night_box counts them."""
        work = Work.at(self.folder, job.id)
        if state is State.SUCCEEDED:
            return job.work_s * job.gpus
        comes_to_its_end = job.fault == OK or work.healed or job.fault_s < work.saved_s
        if state is State.RUNNING and comes_to_its_end:
            return work.done_s * job.gpus
        return work.saved_s * job.gpus if state in (State.QUEUED, State.STARTING) else 0.0


def _options(job: Job) -> list[str]:
    words = ["--gpus", str(job.gpus), "--priority", PRIORITIES[job.rank]]
    words += ["--time", f"{job.limit_s:.3f}s"] if job.limit_s is not None else []
    words += ["--retries", "1000" if job.filler else "1"] if job.retries else []
    words += ["--preemptible"] if job.filler else []
    return [*words, "--probe"] if job.probes else words


def compressed(night: Night, hours: float) -> Night:
    """So much of it, in a tenth of the time. Jobs that would begin later do not come."""
    jobs = tuple(
        replace(
            job,
            at_s=job.at_s / FASTER,
            work_s=job.work_s / FASTER,
            fault_s=job.fault_s / FASTER,
            limit_s=job.limit_s and job.limit_s / FASTER,
            saves_every_s=job.saves_every_s and job.saves_every_s / FASTER,
            prints=job.prints and replace(job.prints, step_s=job.prints.step_s / FASTER),
        )
        for job in night.jobs
    )
    neighbours = tuple((gpu, start_s / FASTER, end_s / FASTER, mib) for gpu, start_s, end_s, mib in night.neighbours)
    return Night(night.number, jobs, neighbours, night.reboot_s / FASTER, hours * 3600 / FASTER, BOOT_S / FASTER)


def play(night: Night) -> tuple[float, dict[int, str]]:
    """The share that counted in a night that is compressed already, and what became of its jobs."""
    with tempfile.TemporaryDirectory(prefix="nsnight") as folder, a_box(runner=RUNNER, **SETTINGS) as box:
        return Play(night, box, Path(folder)).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("night", type=int, nargs="?", default=1)
    parser.add_argument("--hours", type=float, default=NIGHT_S / 3600)
    parser.add_argument("--progress", type=float, default=0.0, help="share of the jobs that print their progress")
    given = parser.parse_args()
    night = replace(Night.of(given.night).with_progress(given.progress), length_s=given.hours * 3600)
    with contextlib.suppress(KeyboardInterrupt):
        share, ends = play(compressed(night, given.hours))
        print(f"night {given.night}, {given.hours:g} of its hours in {given.hours * 60 / FASTER:g} minutes")
        print(f"  print their progress {100 * given.progress:.0f} %")
        print(f"  the real runner     {100 * share:.1f} %")
        print(f"  as computed         {100 * Ours(night, SHIPPED).share():.1f} %")
        print(f"  the oracle          {100 * Ours(night, ORACLE).share():.1f} %")
        print("  jobs: " + ", ".join(f"{count} {how}" for how, count in Counter(ends.values()).most_common()))


if __name__ == "__main__":
    main()
