"""A box to test on: a state folder of its own, the real command, a real runner."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.api import Queue
from runner.notices import Notice
from runner.processes.process_lock import holder
from runner.store.connection import DATABASE
from tests import nursery
from tests.jobs import KEY, VARIABLES, a_spec
from tests.wait import eventually

COMMAND = [sys.executable, str(Path(__file__).parents[1] / "nightshift.py")]


class Box:
    """What a person with a terminal has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.homes: list[Path] = []
        self.runner: nursery.Process | None = None
        self._view: tuple[str, int, Queue] | None = None
        kept = ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYENV_VERSION")
        self.environ = {key: os.environ[key] for key in kept if key in os.environ}
        person = folder / "person"
        person.mkdir()
        self.environ |= {"HOME": str(person), "TERM": "dumb"}
        self.use_home(folder / "home")

    def use_home(self, home: Path) -> None:
        self.home = home
        self.homes.append(home)
        self.environ["NIGHTSHIFT_HOME"] = str(home)

    def command(self, *words: str) -> list[str]:
        return [*COMMAND, *words]

    def run(
        self, *words: str, input: str | None = None, env: Mapping[str, str] | None = None, cwd: Path | str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The real command, to its end."""
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write((input or "").encode())
            given.seek(0)
            environ, folder = {**self.environ, **(env or {})}, str(cwd or self.folder)
            with open(os.devnull) as nothing:
                called = nursery.start(words, environ, folder, nothing if input is None else given, out, err)
            code = called.wait(100)
            out.seek(0), err.seek(0)
            said, complained = out.read().decode(), err.read().decode()
            return subprocess.CompletedProcess(self.command(*words), code, said, complained)

    def start_runner(self, gpus: str = "sim:2x24GiB", **settings: str) -> nursery.Process:
        """A real runner, up when this returns."""
        assert self.runner is None or self.runner.poll() is not None
        chosen = {f"NIGHTSHIFT_{name.upper()}": value for name, value in settings.items()}
        if not self.home.exists() and "NIGHTSHIFT_BACKUP_DIR" not in {**self.environ, **chosen}:
            with self.queue():
                pass  # the tables are made here: the runner would first have to import what makes them
        with (self.folder / "runner.out").open("ab") as output:
            environ = {**self.environ, "NIGHTSHIFT_GPUS": gpus, **chosen}
            with open(os.devnull) as nothing:
                self.runner = nursery.start(["runner"], environ, str(self.folder), nothing, output, output)
        eventually(self._runner_is_up, 60, "the runner is up")
        return self.runner

    def _runner_is_up(self) -> bool:
        assert self.runner is not None
        assert self.runner.poll() is None, (self.folder / "runner.out").read_text()
        lock = self.home / "runner.lock"
        mine = lock.exists() and lock.read_text().strip() == str(self.runner.pid)
        return mine and f"pid {self.runner.pid} up" in (self.folder / "runner.out").read_text()

    def stop_runner(self, number: int = signal.SIGTERM) -> None:
        assert self.runner is not None
        self.runner.send_signal(number)
        self.runner.wait(60)

    @contextlib.contextmanager
    def queue(self) -> Iterator[Queue]:
        yield self._look()

    def _look(self) -> Queue:
        """One that stays open as long as the file is there: to open it takes ten times as long as to read a job."""
        home = str(self.home)
        if self._view is not None:
            where, database, queue = self._view
            with contextlib.suppress(FileNotFoundError):
                if (where, database) == (home, (self.home / DATABASE).stat().st_ino):
                    return queue
            self._look_away()
        queue = Queue(home, actor="somebody", begin=True)
        self._view = home, (self.home / DATABASE).stat().st_ino, queue
        return queue

    def _look_away(self) -> None:
        if self._view is not None:
            self._view[2].store.close()
            self._view = None

    def submit(self, command: str = "", *options: str, argv: Sequence[str] | None = None) -> int:
        """One job, with the options as they are typed."""
        from runner.config.option_reader import read_words

        values, rest, _ = read_words(options)
        assert rest == []
        with self.queue() as queue:
            spec = a_spec(command, argv=argv, folder=str(self.folder), **values)
            return queue.submit([spec], {KEY: VARIABLES})[0]

    def job(self, job_id: int) -> dict[str, Any]:
        queue = self._look()
        return queue.view.describe([queue.job(job_id)])[0]

    def log(self, job_id: int) -> str:
        queue = self._look()
        return queue.view.log(job_id).read().decode() if queue.job(job_id).attempt else ""

    def notices(self, job_id: int | None) -> list[Notice]:
        """All notices of a job, or those that are of no job."""
        queue = self._look()
        if job_id is not None:
            return queue.notices.about(job_id)
        return [notice for notice in queue.notices.open(10_000) if notice.job_id is None]

    def wait_state(self, job_id: int, *states: str, timeout: float = 50) -> dict[str, Any]:
        """The job, once it is in one of these states."""

        def look() -> dict[str, Any] | None:
            job = self.job(job_id)
            if job["state"] in ("SUCCEEDED", "FAILED", "CANCELLED", "LOST") and job["state"] not in states:
                raise AssertionError(
                    f"job {job_id} ended as {job['state']} {job['reason']}: {self.log(job_id)[-2000:]}"
                )
            return job if job["state"] in states else None

        return eventually(look, timeout, f"job {job_id} is {' or '.join(states)}")  # type: ignore[return-value]

    def processes(self) -> dict[int, str]:
        """Everything of this box that is alive, by pid, with its name."""
        markers = {f"NIGHTSHIFT_HOME={home}".encode() for home in self.homes}
        found = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                with contextlib.suppress(OSError):
                    if markers & set(Path(f"/proc/{name}/environ").read_bytes().split(b"\0")):
                        found[int(name)] = Path(f"/proc/{name}/comm").read_text().strip()
        if self.runner and self.runner.poll() is None:
            found[self.runner.pid] = "nightshift"
        for home in self.homes:  # those that guard the token cannot be looked into
            for lock in ("keeper.lock", "bot.lock"):
                if pid := holder(str(home), lock):
                    found.setdefault(pid, lock)
        return found

    def close(self) -> None:
        """End everything; nothing may be left."""
        self._look_away()
        if self.runner and self.runner.poll() is None:
            self.stop_runner()
        deadline = time.monotonic() + 10
        while (left := self.processes()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        assert not left, left


@contextlib.contextmanager
def a_box() -> Iterator[Box]:
    """In a folder with a short name: some of what we test depends on the length of paths."""
    with tempfile.TemporaryDirectory(prefix="ns", ignore_cleanup_errors=True) as folder:
        box = Box(Path(folder))
        try:
            yield box
        finally:
            box.close()
