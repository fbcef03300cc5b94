"""The peers: task-spooler (tsp) and simple_gpu_scheduler, each started as its own documentation says."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TSP = shutil.which("tsp")
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
