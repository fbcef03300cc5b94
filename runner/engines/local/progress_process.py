"""The engine's side of the process that reads progress: started when a job prints, told what to follow, heard."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import time
from typing import TYPE_CHECKING

from runner.model import Ref
from runner.processes.interpreter import python_command
from runner.rundir import ProgressRecord

if TYPE_CHECKING:
    from runner.processes.waiter import Waiter

log = logging.getLogger(__name__)

FOLLOWS_AFTER_S = 0.5  # most failures and all no-ops are over by then
LEAVES_AFTER_S = 30.0
TRY_AGAIN_S = 5.0
CHUNK = 1 << 16


class ProgressReaders:
    """What is known of how far attempts are. Keeps one process while there are attempts to follow."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._started_at = self._used_at = 0.0
        self._soon: dict[Ref, tuple[float, str]] = {}  # attempts to follow later, and their run directories
        self._followed: dict[Ref, str] = {}
        self._records: dict[Ref, ProgressRecord] = {}
        self._news: dict[Ref, ProgressRecord] = {}
        self._looks = self._leaves = False  # whether a timer is set

    def listen(self, waiter: Waiter) -> None:
        """Use this waiter from now on."""
        self._waiter = waiter

    def expect(self, ref: Ref, folder: str) -> None:
        """Follow an attempt soon, unless it ends before."""
        if ref not in self._followed and ref not in self._soon:
            self._soon[ref] = time.monotonic() + FOLLOWS_AFTER_S, folder
            self._look_in(FOLLOWS_AFTER_S)

    def ended(self, ref: Ref, folder: str, *, printed: bool) -> None:
        """Take in that an attempt has ended. One that was too short to be followed is read now."""
        self._soon.pop(ref, None)
        if printed and ref not in self._followed and ref not in self._records:
            self._follow({ref: folder})

    def read_now(self) -> None:
        """Have everything read that is followed, in case nothing tells of its changes."""
        if self._process is not None and self._followed:
            self._tell(self._followed)

    def forget(self, ref: Ref) -> None:
        """Forget what was read, except what nobody has asked for yet."""
        self._soon.pop(ref, None)
        self._records.pop(ref, None)

    def latest(self, ref: Ref) -> ProgressRecord | None:
        """Return what was last read of an attempt."""
        return self._records.get(ref)

    def news(self) -> dict[Ref, ProgressRecord]:
        """Return the attempts that ended or broke a rule since the last call."""
        news, self._news = self._news, {}
        return news

    def close(self) -> None:
        """End the process. The next one goes on where it stopped."""
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._waiter.remove(self._process.stdout.fileno())
            self._process.stdout.close()
            self._process.stdin.close()
            self._process.kill()
            self._process.wait()
            self._process = None

    def _look_in(self, seconds: float) -> None:
        if not self._looks:
            self._looks = True
            self._waiter.after(seconds, self._look)

    def _look(self) -> bool:
        """Follow what has run long enough."""
        self._looks, now = False, time.monotonic()
        due = {ref: folder for ref, (at, folder) in self._soon.items() if at <= now}
        for ref in due:
            del self._soon[ref]
        if due:
            self._follow(due)
        if self._soon:
            self._look_in(min(at for at, _ in self._soon.values()) - now)
        return False

    def _leave_in(self, seconds: float) -> None:
        if not self._leaves:
            self._leaves = True
            self._waiter.after(seconds, self._leave)

    def _leave(self) -> bool:
        """End the process if there was nothing to follow for a while."""
        self._leaves, idle_s = False, time.monotonic() - self._used_at
        if self._process is not None and not self._followed and idle_s >= LEAVES_AFTER_S:
            self.close()
        elif self._process is not None:
            self._leave_in(LEAVES_AFTER_S)
        return False

    def _follow(self, attempts: dict[Ref, str]) -> None:
        self._used_at = time.monotonic()
        self._followed |= attempts
        if self._process is None:
            self._start()
        else:
            self._tell(attempts)

    def _start(self) -> bool:
        """Start a process, and let it follow everything that is to be followed."""
        if self._process is not None or not self._followed:
            return False
        self._started_at = time.monotonic()
        try:
            self._process = subprocess.Popen(
                python_command("runner.supervisor.read_progress"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "NIGHTSHIFT_HOME": self._home},
                cwd="/",
            )
        except OSError as error:
            log.error("nothing can read progress now: %s", error)
            self._waiter.after(TRY_AGAIN_S, self._start)
            return False
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._buffer = b""
        self._waiter.add(self._process.stdout.fileno(), self._hear)
        self._tell(self._followed)
        self._leave_in(LEAVES_AFTER_S)
        return False

    def _tell(self, attempts: dict[Ref, str]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        orders = b"".join(os.fsencode(folder) + b"\n" for folder in attempts.values())
        with contextlib.suppress(OSError):  # it died, and its end is heard next
            if self._process.stdin.write(orders) != len(orders):
                self._process.kill()  # it does not read

    def _hear(self) -> bool:
        """Read what the process has written. Return whether the loop should act on it."""
        assert self._process is not None
        assert self._process.stdout is not None
        data = os.read(self._process.stdout.fileno(), CHUNK)
        if not data:
            self._replace()
            return False
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        taken = [self._take(ProgressRecord.from_json(json.loads(line))) for line in lines]
        return any(taken)

    def _take(self, record: ProgressRecord) -> bool:
        ref = Ref(record.job_id, record.attempt, record.run_id)
        before = self._records.get(ref)
        if ref not in self._followed:
            return False
        self._records[ref] = record
        is_news = record.final or record.broken != (before.broken if before else {})
        if is_news:
            self._news[ref] = record
        if record.final:
            del self._followed[ref]
            self._used_at = time.monotonic()
        return is_news

    def _replace(self) -> None:
        """Start another process, at once if the last one worked for a while."""
        wait_s = 0.0 if time.monotonic() - self._started_at > TRY_AGAIN_S else TRY_AGAIN_S
        assert self._process is not None
        log.warning("the reader of progress (pid %s) died; another in %.0f s", self._process.pid, wait_s)
        self.close()
        self._waiter.after(wait_s, self._start)
