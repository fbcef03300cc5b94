"""The processes of one job: start them, write their output, keep their time limit, stop the whole tree.

Stopping is SIGTERM for every process below the supervisor, SIGKILL after the grace. Processes that left their parents
(double fork, setsid) become children of the supervisor, so none is missed.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import NamedTuple

from runner import clock, rundir
from runner.errors import JobError
from runner.model import Exit
from runner.processes import linux
from runner.supervisor import launch
from runner.supervisor.output import OutputWriter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket

    from runner.rundir import AttemptSpec, StartRecord
    from runner.supervisor.cgroup import Leaf

CHUNK = 1 << 16
STRAY_GRACE_S = 2.0
KILL_EVERY_S = 0.01
KILL_EVERY_AT_MOST_S = 1.0
QUICK_LOOKS = 30
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)  # the code of a killed program, and the code a shell returns for it
LONGEST_WAIT_S = 3600.0  # the kernel counts milliseconds in 32 bits


class Ready(NamedTuple):
    """What a supervisor has prepared while it waits for its order."""

    started: StartRecord  # with the supervisor's own fields
    wake: int  # readable when a signal has come
    drain: int  # the supervisor reads the job's output here
    pipe: int  # the job writes its output here


class Since(NamedTuple):
    """When an attempt began: as UTC text, and in monotonic time."""

    at: str
    moment: float


class Execution:
    """The job's processes: starts, watches and stops them, and knows how they ended."""

    def __init__(
        self, folder: str, spec: AttemptSpec, ready: Ready, since: Since | None = None, orders: socket | None = None
    ) -> None:  # fmt: skip
        self._spec, self._orders = spec, orders
        _, self._wake, self._drain, self._pipe = ready
        self._since = since
        self._main: int | None = None
        self._status: int | None = None  # the main process' wait status, once it has ended
        self._ended_at = 0.0
        self._spawn_error: str | None = None
        self._stopped = self._timed_out = self._drained = self.asked_to_stop = False
        self._kill_at: float | None = None
        self._kill_every_s = KILL_EVERY_S
        self._strays: set[int] = set()
        self._folder = folder
        self._leaf: Leaf | None = None
        self.kills = 0
        self._cpu_s, self._max_rss_kib = 0.0, 0

    def start(self) -> None:
        """Execute the job first, then prepare for its output, so that the job does not wait."""
        self._launch()
        os.close(self._pipe)
        self._output = OutputWriter(self._folder, self._spec.log_limit_bytes, self._spec.log_tail_bytes)
        self._listen()

    def _launch(self) -> None:
        self._launched = time.monotonic()
        self._since = self._since or Since(clock.text(clock.now()), self._launched)
        limit_s = self._spec.time_limit_s
        self._deadline = self._since.moment + limit_s if limit_s is not None else None
        if self._spec.cpus or self._spec.ram_mib:
            from runner.supervisor.cgroup import enter_leaf  # imported late: most jobs do not need it

            self._leaf = enter_leaf(self._spec)
        try:
            self._main = launch.launch(self._spec, self._pipe)
        except JobError as error:
            self._spawn_error = str(error)
            self._ended_at = time.monotonic()
        finally:
            if self._leaf is not None:
                self._leaf.leave()

    def _listen(self) -> None:
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(self._drain, select.POLLIN)
        if self._orders is not None:
            self._poll.register(self._orders, 0)  # only to notice its hang-up

    def watch(self) -> None:
        """Return when all of the job's processes are gone and all of its output is written."""
        self._host_kills = linux.host_kills()
        while self._reap():
            for descriptor, _ in self._poll.poll(self._wait_ms()):
                self._hear(descriptor)
            self._keep_time()
        while self._take_output():
            pass
        self._see_kills()

    def _hear(self, descriptor: int) -> None:
        if descriptor == self._wake:
            self._take_signals()
        elif descriptor == self._drain:
            self._take_output()
        else:
            self._close_orders()

    def _close_orders(self) -> None:
        """Let go of the runner's socket: it is gone, and orders that nobody took must not stay in it."""
        assert self._orders is not None
        self._poll.unregister(self._orders)
        self._orders.close()

    def _see_kills(self) -> None:
        """Count out-of-memory kills: in the job's own group, which is then removed, or else on the host.

        On the host they count only if the job's main process was killed.
        """
        if self._leaf is not None:
            self.kills = self._leaf.kills()
            self._leaf.remove()
        elif self._status is not None and os.waitstatus_to_exitcode(self._status) in KILLED:
            self.kills = linux.host_kills() - self._host_kills

    def _reap(self) -> bool:
        """Reap ended children. Once the main process has ended, stop the rest. Return False if no child is left."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                break
            self._cpu_s += used.ru_utime + used.ru_stime
            self._max_rss_kib = max(self._max_rss_kib, used.ru_maxrss)
            if pid == self._main:
                self._status, self._ended_at = status, time.monotonic()
                self._deadline = None
        if self._status is not None and not self._strays:
            self._end_strays()
        return True

    def _end_strays(self) -> None:
        """Stop the processes that the main process left behind: SIGTERM now, SIGKILL after at most 2 s."""
        strays = linux.descendants(os.getpid())
        self._strays.update(strays)
        linux.send(strays, signal.SIGTERM, signal.SIGCONT)
        kill_at = time.monotonic() + min(STRAY_GRACE_S, self._spec.stop_grace_s)
        self._kill_at = min(kill_at, self._kill_at) if self._kill_at is not None else kill_at

    def _take_signals(self) -> None:
        if signal.SIGTERM in os.read(self._wake, 256):
            self.asked_to_stop = True
            self._stop()

    def _stop(self) -> None:
        """Send SIGTERM to the whole tree now, and SIGKILL after the grace. A second call does nothing."""
        if self._stopped or self._status is not None:
            return
        self._stopped, self._deadline = True, None
        self._end_within(self._spec.stop_grace_s)

    def _end_within(self, grace_s: float) -> None:
        self._kill_at = time.monotonic() + grace_s
        linux.send(linux.descendants(os.getpid()), signal.SIGTERM, signal.SIGCONT)

    def _take_output(self) -> bool:
        """Read and write one part of the output. Return False if there is none now or the output has ended."""
        if self._drained:
            return False
        try:
            data = os.read(self._drain, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._poll.unregister(self._drain)
            self._drained = True
            return False
        self._keep_output(data)
        return True

    def _keep_output(self, data: bytes) -> None:
        self._output.append(data)

    def _due(self) -> tuple[float | None, ...]:
        """Return when `_keep_time` has something to do."""
        return self._deadline, self._kill_at

    def _wait_ms(self) -> float | None:
        times = [t for t in self._due() if t is not None]
        if not times:
            return None
        return min(max(0.0, min(times) - time.monotonic()), LONGEST_WAIT_S) * 1000

    def _keep_time(self) -> None:
        now = time.monotonic()
        if self._deadline is not None and now >= self._deadline and not self._was_extended(now):
            self._timed_out = True
            self._stop()
        if self._kill_at is not None and now >= self._kill_at:
            self._kill()
            self._kill_at = now + self._kill_every_s
            self._kill_every_s = min(self._kill_every_s * 1.2, KILL_EVERY_AT_MOST_S)

    def _was_extended(self, now: float) -> bool:
        """Return whether the job got more time. Limits only grow, so it is enough to look when one is over."""
        limit_s = rundir.limit_s(self._folder, self._spec.run_id)
        if limit_s is None or self._since is None:
            return False
        self._deadline = self._since.moment + limit_s
        return now < self._deadline

    def _kill(self) -> None:
        """Kill the tree."""
        linux.kill_all(linux.descendants(os.getpid()))
        for _ in range(QUICK_LOOKS):  # for processes that keep forking and exiting: each is our child, but only briefly
            linux.send(linux.own_children(), signal.SIGSTOP, signal.SIGKILL)

    @property
    def is_clean(self) -> bool:
        """Return whether the job came and went by itself, and left nothing that had to be stopped or removed."""
        return not (self._stopped or self._strays or self._leaf or self._spawn_error)

    def close(self) -> None:
        """Close all files of the job, and leave its folder."""
        self._output.close()
        os.close(self._drain)
        os.chdir("/")

    def exit(self) -> Exit:
        """Return how the attempt ended."""
        code = os.waitstatus_to_exitcode(self._status) if self._status is not None else None
        assert self._since is not None
        return Exit(
            run_id=self._spec.run_id,
            exit_code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            spawn_error=self._spawn_error,
            stopped=self._stopped,
            timed_out=self._timed_out,
            started_at=self._since.at,
            finished_at=clock.text(clock.now()),
            duration_s=round(self._ended_at - self._since.moment, 6),
            run_s=round(self._ended_at - self._launched, 6),
            output_bytes=self._output.bytes,
            dropped_bytes=self._output.dropped_bytes,
            strays=len(self._strays),
            cpu_s=round(self._cpu_s, 3),
            host_kills=self.kills,
            enforced=tuple(self._leaf.enforced) if self._leaf is not None else (),
            max_rss_mib=round(self._max_rss_kib / 1024, 1),
        )
