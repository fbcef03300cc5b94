"""The watched command: starts it as if we were not there, passes signals on, and can kill its whole process tree."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from runner.processes import linux

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

READ_SIGNALS = frozenset(
    {
        *(signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
        *(signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
    }
)
# Python ignores these for itself; its children must not inherit that.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
KILL_WITHIN_S = 10.0  # a process that hangs in the driver cannot be killed, so do not wait for ever
KILL_EVERY_S = 0.01


class ReceivedSignal(NamedTuple):
    """A signal, and whether it came from the terminal, which then sends it to the command as well."""

    number: signal.Signals
    from_terminal: bool


class SignalReader:
    """Makes signals pollable. A thread waits for them, because only sigwaitinfo tells who sent one."""

    def __init__(self) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, READ_SIGNALS)
        self._reading_end, self._writing_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reading_end, False)
        threading.Thread(target=self._listen, daemon=True).start()

    def fileno(self) -> int:
        """Return a descriptor that is readable after a signal."""
        return self._reading_end

    def received(self) -> list[ReceivedSignal]:
        """Return the signals since the last call, oldest first."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._reading_end, 1 << 12)
        return [ReceivedSignal(signal.Signals(data[at]), bool(data[at + 1])) for at in range(0, len(data) - 1, 2)]

    def _listen(self) -> None:
        while True:
            info = signal.sigwaitinfo(READ_SIGNALS)
            os.write(self._writing_end, bytes([info.si_signo, info.si_code > 0]))  # above 0: sent by the kernel


class Child:
    """The command and everything it starts. We are the subreaper, so that none of its processes escapes us."""

    def __init__(self, words: Sequence[str], mask: Iterable[int], sampler_pid: Callable[[], int | None]) -> None:
        self._sampler_pid = sampler_pid  # returns the pid of our sampler
        linux.become_subreaper()
        self.pid = os.posix_spawnp(words[0], list(words), os.environ, setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON)

    def reap(self) -> int | None:
        """Reap ended processes. Return the command's exit code (128 + signal if killed by one), None while it runs."""
        ended = None
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            ended = os.waitstatus_to_exitcode(status) if pid else None
        with contextlib.suppress(ChildProcessError):
            while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if dead.si_pid == self._sampler_pid():
                    break  # its starter reaps it
                os.waitpid(dead.si_pid, 0)
        return ended if ended is None or ended >= 0 else 128 - ended

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all its processes, as the terminal does."""
        linux.send(self._living(), number)

    def kill(self) -> list[int]:
        """Kill all its processes. Return those that could not be killed."""
        deadline = time.monotonic() + KILL_WITHIN_S
        while (alive := self._living()) and time.monotonic() < deadline:
            linux.kill_all(alive)
            time.sleep(KILL_EVERY_S)
            self.reap()
        return alive

    def _living(self) -> list[int]:
        family = linux.Family()
        sampler_pid = self._sampler_pid()
        spared = {sampler_pid, *(family.descendants(sampler_pid) if sampler_pid else ())}
        return [pid for pid in family.descendants(os.getpid()) if pid not in spared]


def to_execute(words: Sequence[str]) -> list[str]:
    """Return the argument list. A single word is shell text, unless it names a program."""
    if len(words) == 1 and shutil.which(words[0]) is None:
        return ["bash", "-c", words[0]]
    return list(words)
