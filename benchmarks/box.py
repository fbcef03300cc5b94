"""Our side of a measurement: a real runner on simulated GPUs, and a client that stays connected."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from runner.api import Queue, job_spec
from runner.config.job_environment import captured, fingerprint
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
    def __init__(self, home: str, command: Sequence[str], **settings: str) -> None:
        self.home, self._command = home, command
        self._environ = {**os.environ, "NIGHTSHIFT_HOME": home}
        self._environ |= {f"NIGHTSHIFT_{name.upper()}": value for name, value in settings.items()}
        self.queue = Queue(home, actor="bench")

    def start(self) -> None:
        """A runner, up when this returns."""
        with (Path(self.home) / "out").open("wb") as out:
            self.runner = subprocess.Popen(self._command, env=self._environ, stdout=out, stderr=out)
        until(lambda: b" up: " in (Path(self.home) / "out").read_bytes())

    def spec(self, command: str, *, owner: str = "bench", folder: str = "/", **values: object) -> JobSpec:
        return job_spec(values, command=command, owner=owner, folder=folder, environment_key=KEY, umask=0o022)

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

    def crash(self) -> None:
        """Everything ends at once, as when the power fails: nobody sees another end."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            until(lambda number=number: not self._signal(number))
        self.runner.wait()

    def _signal(self, number: int) -> set[int]:
        """Those that had not got it yet."""
        alive = set(self.pids())
        if number == signal.SIGSTOP:
            alive = {pid for pid in alive if _state(pid) not in ("T", "Z")}
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return alive


@contextlib.contextmanager
def a_box(gpus: str = "sim:2x24GiB", runner: Sequence[str] = (*COMMAND, "runner"), **settings: str) -> Iterator[Box]:
    with tempfile.TemporaryDirectory(prefix="nsbench", ignore_cleanup_errors=True) as home:
        box = Box(home, runner, **{"gpus": gpus, "breaker": "0", **settings})
        try:
            box.start()
            yield box
            box.queue.store.close()
        finally:
            box.runner.terminate()
            box.runner.wait()
            until(lambda: not box.pids())


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
