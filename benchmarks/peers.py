"""The peers: task-spooler (tsp), simple_gpu_scheduler and HyperQueue, each started as its documentation says."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TSP = shutil.which("tsp")
HYPERQUEUE = importlib.util.find_spec("hyperqueue") is not None and os.geteuid() == 0 and shutil.which("unshare")
SCHEDULER = Path(sys.executable).parent / "simple_gpu_scheduler"


class Tsp:
    """A queue in the memory of one C process; one waiting client process per queued job."""

    name = "tsp"

    def __init__(self, environ: dict[str, str]) -> None:
        self._environ = environ

    def submit(self, command: str) -> None:
        assert TSP
        subprocess.run([TSP, "-n", "bash", "-c", command], env=self._environ, check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def tsp(folder: str, slots: int) -> Iterator[Tsp]:
    assert TSP
    environ = {**os.environ, "TS_SOCKET": f"{folder}/tsp.socket", "TS_MAXFINISHED": "10"}
    subprocess.run([TSP, "-S", str(slots)], env=environ, check=True)
    try:
        yield Tsp(environ)
    finally:
        subprocess.run([TSP, "-K"], env=environ, check=True)


class Scheduler:
    """Commands by pipe to threads, one per GPU; the queue is in memory."""

    name = "simple_gpu_scheduler"

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def submit(self, command: str) -> None:
        assert self._process.stdin
        # it runs commands through /bin/sh; the jobs compared are bash's
        self._process.stdin.write(f"exec bash -c {shlex.quote(command)}\n")
        self._process.stdin.flush()


@contextlib.contextmanager
def scheduler(slots: int) -> Iterator[Scheduler]:
    gpus = [str(number) for number in range(slots)]
    with subprocess.Popen(
        [str(SCHEDULER), "--gpus", *gpus], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        env={**os.environ, "SHELL": "/bin/bash"},
    ) as process:  # fmt: skip
        yield Scheduler(process)
        assert process.stdin
        process.stdin.close()
        process.wait()


# Its server listens on all addresses, so it gets a network of its own. No journal: its queue is in memory.
_HYPERQUEUE = """
import sys, time
from pathlib import Path
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
count, last = int(sys.argv[1]), Path(sys.argv[2])
with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=2))
    job = Job()
    for _ in range(count - 1):
        job.program(["bash", "-c", "true"])
    job.program(["touch", str(last)])
    began = time.monotonic()
    cluster.client().submit(job)
    while not last.exists():
        time.sleep(0.001)
    print("rate", count / (time.monotonic() - began), flush=True)
"""


def hyperqueue_rate(count: int, folder: str) -> float:
    """Return how many no-ops per second HyperQueue runs on two slots. The last one is the witness of all."""
    inside = (
        f"ip link set lo up; exec {shlex.quote(sys.executable)} -c {shlex.quote(_HYPERQUEUE)} {count} {folder}/last"
    )
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", inside], cwd=folder, env={**os.environ, "HOME": folder}, text=True, check=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return next(float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("rate "))
