"""`nightshift up`: keeps the runner up. A closed terminal stops neither of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from runner.presence import KEEPER_LOCK, held, is_ready
from runner.wait import Waiter

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
SOUND_AFTER_S = 60.0  # one that ran so long did not fail at starting
LOOK_EVERY_S = 0.05


class Keeper:
    """Starts a runner, and another whenever it dies, after a pause that grows."""

    def __init__(self, folder: str, command: Sequence[str]) -> None:
        self._folder, self._command = folder, command
        self._waiter = Waiter()
        self._child: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._was_up = False  # at least once: until then a mistake is not worth repeating
        self._leaving = False
        self._code: int | None = None

    def run(self) -> int:
        """Until a signal says to leave, or the runner cannot be started at all; the exit code."""
        with held(self._folder, KEEPER_LOCK):
            self._listen()
            self._start()
            while self._code is None:
                self._waiter.wait()
            return self._code

    def _listen(self) -> None:
        hear, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
        self._waiter.add(hear, lambda: self._hear(hear))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)  # heard through the pipe; a closed terminal means nothing

    def _hear(self, pipe: int) -> None:
        if {signal.SIGTERM, signal.SIGINT} & set(os.read(pipe, 64)):
            self._leaving = True
            if self._child is None:
                self._code = 0
            else:
                self._child.terminate()

    def _start(self) -> None:
        if self._leaving:
            return
        # In a session of its own: what the terminal sends on Ctrl-C or when it closes is for us to judge.
        self._child = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, start_new_session=True)
        self._began = time.monotonic()
        handle = os.pidfd_open(self._child.pid)
        self._waiter.add(handle, lambda: self._ended(handle))
        self._look()

    def _look(self) -> None:
        if self._child is None:
            return
        if is_ready(self._folder, self._child.pid):
            self._was_up = True
        else:
            self._waiter.after(LOOK_EVERY_S, self._look)

    def _ended(self, handle: int) -> None:
        self._waiter.remove(handle)
        os.close(handle)
        assert self._child is not None
        code = self._child.wait()
        self._child = None
        if self._leaving or code == 0 or (code > 0 and not self._was_up):
            self._code = max(code, 0)
            return
        if time.monotonic() - self._began > SOUND_AFTER_S:
            self._pause_s = FIRST_PAUSE_S
        how = f"exit {code}" if code > 0 else f"signal {-code}"
        _say(f"the runner died ({how}); running jobs go on; starting it again in {self._pause_s:.0f} s")
        self._waiter.after(self._pause_s, self._start)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)


def _say(text: str) -> None:
    try:
        print(f"nightshift: {text}", file=sys.stderr, flush=True)
    except OSError:
        return  # the terminal is gone; we are not
