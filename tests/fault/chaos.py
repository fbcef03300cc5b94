"""A runner under random SIGKILLs of all its parts, with jobs whose outcome is known beforehand."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from runner import rundir
from runner.api import Queue, job_spec
from runner.config.job_environment import captured, fingerprint
from runner.model import FINAL_STATES, Job, State

SETTINGS = {
    "NIGHTSHIFT_GPUS": "sim:2x24GiB",
    "NIGHTSHIFT_SLOTS_PER_GPU": "2",
    "NIGHTSHIFT_SETTLE": "0s",
    "NIGHTSHIFT_BREAKER": "0",
    "NIGHTSHIFT_STOP_GRACE": "1s",
}
NAMES = {"runner": "runner", "ns-zygote": "zygote", "ns-supervisor": "supervisor", "ns-sampler": "sampler"}


@dataclass
class Report:
    jobs: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{name} {count}" for name, count in sorted(self.kills.items()))
        states = ", ".join(f"{name} {count}" for name, count in sorted(self.states.items()))
        shot = f"{sum(self.kills.values())} SIGKILLs ({kills})"
        return f"{self.jobs} jobs, {shot} -> {states}; {len(self.problems)} problems"


class Chaos:
    """One box that is being shot at."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.home = str(folder / "home")
        self.ledger = folder / "ledger"
        self.log = folder / "runner.out"
        self.random = random.Random(seed)
        self.nap = f"300.{os.getpid()}"  # by which our strays are told from everybody else's
        self.environ = {**os.environ, **SETTINGS, "NIGHTSHIFT_HOME": self.home}
        self.runner: subprocess.Popen[bytes] | None = None
        self.expected: dict[int, int] = {}
        self.killed: set[int] = set()

    def command(self) -> tuple[str, int]:
        code = self.random.choice((0, 0, 0, 1, 3, 7, 42))
        note = f'echo "$NIGHTSHIFT_JOB_ID" >> {self.ledger}'
        rest = self.random.choice(
            (
                "true",
                f"sleep {self.random.uniform(0, 0.3):.3f}",
                f"(setsid sleep {self.nap} &) ; sleep 0.05",  # a stray that has left its parents behind
                f"for i in 1 2 3; do (env -i setsid sleep {self.nap} &) ; done",  # strays that even lost their mark
                "seq 2000",
            )
        )
        return f"{note}; {rest}; exit {code}", code

    def submit(self, count: int) -> None:
        variables = captured({"PATH": os.environ["PATH"]})
        key = fingerprint(variables)
        drawn = [self.command() for _ in range(count)]
        specs = [
            job_spec({"gpus": self.random.choice((0, 1, 1, 1, 2))}, command=command, owner="chaos", folder="/",
                     environment_key=key, umask=0o022)
            for command, _ in drawn
        ]  # fmt: skip
        with Queue(self.home, actor="chaos") as queue:
            ids = queue.submit(specs, {key: variables})
        self.expected |= {job_id: code for job_id, (_, code) in zip(ids, drawn, strict=True)}

    def keep_runner_up(self) -> None:
        if self.runner is None or self.runner.poll() is not None:
            with self.log.open("ab") as log:
                self.runner = subprocess.Popen(
                    [sys.executable, str(Path(__file__).parents[2] / "nightshift.py"), "runner"],
                    env=self.environ, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                )  # fmt: skip

    def processes(self) -> dict[int, str]:
        """Everything of this box that is alive: our own parts, and jobs' processes."""
        marker = f"NIGHTSHIFT_HOME={self.home}".encode()
        found = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    if marker in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                        found[int(name)] = Path(f"/proc/{name}/comm").read_text().strip()
                except OSError:
                    continue
        return found

    def shoot(self, report: Report) -> None:
        assert self.runner is not None
        victims: dict[str, list[int]] = {}
        for pid, comm in self.processes().items():
            if comm in NAMES and not _is_about_to_be_a_job(pid):
                victims.setdefault(NAMES[comm], []).append(pid)
        victims["runner"] = [self.runner.pid]
        part = self.random.choice(sorted(set(NAMES.values())))  # each as often, though there are more of some
        try:
            victim = self.random.choice(victims[part])
            os.kill(victim, signal.SIGKILL)
        except (KeyError, ProcessLookupError):
            return  # none is up just now
        self.killed.add(victim)
        report.kills[part] += 1

    def run(self, jobs: int, kills: int, timeout_s: float) -> Report:
        """Keep jobs coming until there were enough of both; then wait for the last."""
        report = Report()
        deadline = time.monotonic() + timeout_s
        with Queue(self.home, actor="chaos") as queue:
            while time.monotonic() < deadline:
                self.keep_runner_up()
                shooting = sum(report.kills.values()) < kills
                left = len(self.expected) - queue.jobs.count(*FINAL_STATES)
                if left < 40 and (shooting or len(self.expected) < jobs):
                    self.submit(40)
                elif left == 0:
                    break
                if shooting:
                    self.shoot(report)
                time.sleep(self.random.uniform(0, 0.5))
            self.stop()
            self.check(queue, report)
        return report

    def stop(self) -> None:
        assert self.runner is not None
        self.keep_runner_up()
        if self.runner.poll() is None:
            self.runner.terminate()
            self.runner.wait(60)

    def check(self, queue: Queue, report: Report) -> None:
        runs = Counter(int(line) for line in self.ledger.read_text().split())
        problems = report.problems
        for job in queue.jobs.find():
            report.jobs += 1
            report.states[job.state.value] += 1
            if not job.state.final:
                problems.append(f"job {job.id} is {job.state.value}")
            if runs[job.id] > 1:
                problems.append(f"job {job.id} ran {runs[job.id]} times")
            expected = self.expected[job.id]
            if job.state in (State.SUCCEEDED, State.FAILED) and job.exit_code != expected:
                problems.append(f"job {job.id}: exit code {job.exit_code}, not {expected} ({job.reason})")
            if job.state is State.LOST and self.supervisor_of(job) not in self.killed:
                problems.append(f"job {job.id} is lost, though nobody shot at its supervisor")
            ended = [n for n in queue.notices.about(job.id) if n.kind == "ended"]
            if [n.payload.state for n in ended] != [job.state.value]:
                problems.append(f"job {job.id} is {job.state.value}; told: {[n.data for n in ended]}")
        problems += [f"left alive: {pid} {name}" for pid, name in self.left_alive().items()]
        problems += [f"lease left: {lease}" for lease in queue.line.leases()]
        integrity = queue.store.row("PRAGMA integrity_check")[0]
        if integrity != "ok":
            problems.append(integrity)

    def supervisor_of(self, job: Job) -> int | None:
        started = rundir.read_started(rundir.folder_of(self.home, job.id, job.attempt))
        return started.pid if started else None

    def left_alive(self) -> dict[int, str]:
        """Processes of jobs, or of ours, that should be gone; those that are just leaving get a moment."""
        deadline = time.monotonic() + 40
        while (left := {**self.processes(), **_orphaned_sleeps(self.nap)}) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left


def _is_about_to_be_a_job(pid: int) -> bool:
    """Between fork and exec a job's process still bears its supervisor's name."""
    try:
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        return Path(f"/proc/{parent}/comm").read_text().strip() == "ns-supervisor"
    except OSError:
        return True


def _orphaned_sleeps(nap: str) -> dict[int, str]:
    """The strays without a mark, by the time they sleep."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if Path(f"/proc/{name}/cmdline").read_bytes() == f"sleep\0{nap}\0".encode():
                    found[int(name)] = f"sleep {nap}"
            except OSError:
                continue
    return found


def main(arguments: list[str]) -> None:
    folder, seed, jobs, kills = Path(arguments[0]), *map(int, arguments[1:4])
    folder.mkdir(parents=True, exist_ok=True)
    chaos = Chaos(folder, seed)
    report = chaos.run(jobs, kills, timeout_s=3000)
    print(report)
    for problem in report.problems[:50]:
        print(" ", problem)


if __name__ == "__main__":
    main(sys.argv[1:])
