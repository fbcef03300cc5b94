"""Our side of a measurement: a real runner on simulated GPUs, and a client that stays connected."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from runner.api import Queue, job_spec
from runner.environment import captured, fingerprint
from runner.model import FINAL_STATES, JobSpec, State

COMMAND = [sys.executable, str(Path(__file__).parents[1] / "nightshift.py")]
VARIABLES = captured({"PATH": "/usr/local/bin:/usr/bin:/bin"})
KEY = fingerprint(VARIABLES)


def until(look: Callable[[], object], timeout: float = 120) -> None:
    deadline = time.monotonic() + timeout
    while not look():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.001)


class Box:
    def __init__(self, home: str, runner: subprocess.Popen[bytes]) -> None:
        self.home, self.runner = home, runner
        self.queue = Queue(home, actor="bench")

    def spec(self, command: str, **values: object) -> JobSpec:
        return job_spec(values, command=command, owner="bench", folder="/", environment_key=KEY, umask=0o022)

    def submit(self, *specs: JobSpec) -> list[int]:
        return self.queue.submit(specs, {KEY: VARIABLES})

    def finished(self) -> int:
        return self.queue.jobs.count(*FINAL_STATES)

    def is_over(self, job_id: int) -> bool:
        return self.queue.job(job_id).state in FINAL_STATES

    def is_running(self, job_id: int) -> bool:
        return self.queue.job(job_id).state is State.RUNNING

    def pids(self) -> list[int]:
        marker = f"NIGHTSHIFT_HOME={self.home}".encode()
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    if marker in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                        found.append(int(name))
        return found


@contextlib.contextmanager
def a_box(gpus: str = "sim:2x24GiB", **settings: str) -> Iterator[Box]:
    with tempfile.TemporaryDirectory(prefix="nsbench", ignore_cleanup_errors=True) as home:
        environ = {**os.environ, "NIGHTSHIFT_HOME": home, "NIGHTSHIFT_GPUS": gpus, "NIGHTSHIFT_BREAKER": "0"}
        environ |= {f"NIGHTSHIFT_{name.upper()}": value for name, value in settings.items()}
        with (Path(home) / "out").open("wb") as out:
            runner = subprocess.Popen([*COMMAND, "runner"], env=environ, stdout=out, stderr=out)
        try:
            until(lambda: b" up: " in (Path(home) / "out").read_bytes())
            box = Box(home, runner)
            yield box
            box.queue.store.close()
        finally:
            runner.terminate()
            runner.wait()
            until(lambda: not _others(home))


def _others(home: str) -> bool:
    marker = f"NIGHTSHIFT_HOME={home}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                if marker in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    return True
    return False
