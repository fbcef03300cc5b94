"""Makes the state folder of an older release from tests/data/upgrade/, as if that release had just been stopped.

Its running jobs are there too: for each, a stand-in holds the lock as the old supervisor did, and in the end leaves the
exit.json that the old supervisor has written.
"""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from runner.gpu.sim import state
from runner.processes.linux import boot_id, start_time

DATA = Path(__file__).parents[1] / "data" / "upgrade"
QUEUE, ABOUT = "queue.sql", "about.json"
HOME, GPU, BOOT_ID, KERNEL_BOOT_ID = "@HOME@", "@GPU_{}@", "@BOOT_ID@", "@KERNEL_BOOT_ID@"  # placeholders
GPUS = "sim:4x24GiB"
LIVE = (5, 6, 7, 8)  # the jobs that were running when the release was stopped
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00")
RECORDED_FOR_S = 300.0  # the recording took less
AUDIT, WATCHES = 'INSERT INTO "audit"', 'INSERT INTO "watches"'

STAND_IN = """
import fcntl, os, select, signal, sys
lock, reserved, end, target = sys.argv[1:]
hear, tell = os.pipe2(os.O_NONBLOCK)
signal.set_wakeup_fd(tell)
signal.signal(signal.SIGTERM, lambda *_: None)
handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
select.select([0, hear], [], [])
with open(end) as source, open(reserved, "w") as record:
    record.write(source.read())
    record.flush()
    os.fsync(record.fileno())
os.rename(reserved, target)
"""


def gpus_of(home: Path) -> list[str]:
    """Return the UUIDs of the four simulated GPUs in this state folder."""
    folder = state.folder_of(str(home))
    state.build(folder, GPUS)
    return [card.uuid for card in state.cards(folder)]


class StandIn:
    """Does what is seen of an old supervisor: holds the lock, and writes exit.json when its job ends or is stopped."""

    def __init__(self, folder: Path, end: Path) -> None:
        files = [str(folder / "lock"), str(folder / "exit.reserved"), str(end), str(folder / "exit.json")]
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", STAND_IN, *files], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"held\n"
        path = folder / "started.json"
        identity = {"pid": self._process.pid, "start_time": start_time(self._process.pid)}
        path.write_text(json.dumps({**json.loads(path.read_text()), **identity}))

    def end(self) -> None:
        """Have the job end by itself."""
        assert self._process.stdin is not None
        self._process.communicate(b"\n", timeout=20)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class OldStateFolder:
    """The state folder of a release. A context manager: its running jobs live as long as it is entered."""

    def __init__(self, commit: str, home: Path) -> None:
        self.home, self._data = home, DATA / commit
        about = json.loads((self._data / ABOUT).read_text())
        self._later = datetime.now(timezone.utc) - datetime.fromisoformat(about["recorded_at"])
        self._monotonic = about["monotonic"]
        self.running: dict[int, StandIn] = {}

    def __enter__(self) -> OldStateFolder:
        self.home.mkdir(mode=0o700)
        self._gpus = gpus_of(self.home)
        lines = (self._data / QUEUE).read_text().split(";\n")
        self._dump = ";\n".join(self._as_of_now(line) for line in lines)
        with closing(sqlite3.connect(self.home / "nightshift.db")) as database:
            database.executescript(self._dump)
        for source in sorted(self._data.glob("runs/*/*/*")):
            target = self.home / source.relative_to(self._data)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.write_text(self._as_of_now(source.read_text(encoding="latin-1")), encoding="latin-1")
        for job_id in LIVE:
            folder = self.home / f"runs/{job_id}/1"
            end = (folder / "exit.json").rename(self.home.parent / f"end-of-{job_id}.json")
            self.running[job_id] = StandIn(folder, end)
        return self

    def __exit__(self, *_exception: object) -> None:
        for stand_in in self.running.values():
            stand_in.close()

    def _as_of_now(self, text: str) -> str:
        text = text.replace(HOME, str(self.home)).replace(BOOT_ID, boot_id())
        for index, uuid in enumerate(self._gpus):
            text = text.replace(GPU.format(index), uuid)
        text = text.replace(KERNEL_BOOT_ID, boot_id().partition(".")[0])
        if text.startswith(AUDIT):  # a chain of hashes over its times
            return text
        if text.startswith(WATCHES):
            text = re.sub(r"\d+\.\d+", self._monotonic_of_now, text)
        return TIME.sub(self._time_of_now, text)

    def _time_of_now(self, match: re.Match[str]) -> str:
        return (datetime.fromisoformat(match[0]) + self._later).isoformat(timespec="microseconds")

    def _monotonic_of_now(self, match: re.Match[str]) -> str:
        """Move a time of the monotonic clock. Other numbers are far from it."""
        before = float(match[0])
        near = abs(before - self._monotonic) < RECORDED_FOR_S
        return repr(before - self._monotonic + time.monotonic()) if near else match[0]

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Read from the queue as the old release left it."""
        with closing(sqlite3.connect(":memory:")) as database:
            database.executescript(self._dump)
            return database.execute(sql, values).fetchall()
