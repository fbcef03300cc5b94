"""The process behind `nightshift up`: restarts the runner and the bot when they die. A closed terminal stops none."""

from __future__ import annotations

import logging
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.errors import OperatorError
from runner.processes.process_lock import KEEPER_LOCK, held
from runner.processes.waiter import Waiter
from runner.terminal import service_log, spawn, takeover

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence

log = logging.getLogger("nightshift")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
SOUND_AFTER_S = 60.0  # a process that lasted this long did not fail at start-up: the pause is short again
SETTLED_AFTER_S = 5.0  # once a part was up this long, its failure no longer stops the others
LEAVES_WITHIN_S = 20.0
LOOK_EVERY_S = 0.05
SHORTEN_EVERY_S = 600.0
MUST_BE_MENDED = 2
IS_OFF = "THE {} IS OFF"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A process to keep up."""

    name: str
    command: Sequence[str]
    is_ready: Callable[[int], bool]  # takes its pid
    meanwhile: str  # in words: what continues while it is down
    handed: Sequence[spawn.Handed] = ()
    worked_before: bool = False  # on an earlier day: if it fails at once now, the others must still run


class _Kept:
    """A part, its process, and how its starts went."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.child: subprocess.Popen[bytes] | None = None
        self.began = 0.0
        self.pause_s = FIRST_PAUSE_S
        self.starts = 0
        self.up_since: float | None = None  # when one of its processes was first ready

    def ran_s(self) -> float:
        """Return the seconds since its last start."""
        return time.monotonic() - self.began

    def refuses(self, code: int) -> bool:
        """Return whether its first start failed in a way that a restart will not fix."""
        if self.part.worked_before:
            return False
        if self.up_since is None:
            return code > 0 and self.starts == 1
        settled = time.monotonic() - self.up_since > SETTLED_AFTER_S
        return code == MUST_BE_MENDED and self.starts == 1 and not settled


class Keeper:
    """Starts each part, and restarts it when it dies, after a pause that grows."""

    def __init__(
        self, folder: str, parts: Sequence[Part], output: int, on_ready: Callable[[], None] | None = None
    ) -> None:
        self._folder, self._output, self._on_ready = folder, output, on_ready
        self._kept = [_Kept(part) for part in parts]
        self._waiter = Waiter()
        self._leaving = False
        self._code = 0

    def run(self) -> int:
        """Run until SIGTERM or SIGINT, or until a part cannot be started at all. Return the exit code."""
        with held(self._folder, KEEPER_LOCK):
            self._listen()
            self._shorten_log()
            for kept in self._kept:
                self._start(kept)
            while not self._leaving or any(kept.child for kept in self._kept):
                self._waiter.wait()
            return self._code

    def _listen(self) -> None:
        hear, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
        self._waiter.add(hear, lambda: self._hear(hear))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)  # read from the pipe; SIGHUP, from a closed terminal, is ignored

    def _hear(self, pipe: int) -> None:
        if {signal.SIGTERM, signal.SIGINT} & set(os.read(pipe, 64)):
            self._leave()

    def _leave(self) -> None:
        if self._leaving:
            return
        self._leaving = True
        for kept in self._kept:
            if kept.child:
                kept.child.terminate()
        self._waiter.after(LEAVES_WITHIN_S, self._make_leave)

    def _make_leave(self) -> None:
        for kept in self._kept:
            if kept.child:
                log.warning("the %s has not left within %.0f s and is killed", kept.part.name, LEAVES_WITHIN_S)
                kept.child.kill()

    def _shorten_log(self) -> None:
        service_log.shorten(self._folder)
        self._waiter.after(SHORTEN_EVERY_S, self._shorten_log)

    # -- one part ----------------------------------------------------------------------------------

    def _start(self, kept: _Kept) -> None:
        if self._leaving:
            return
        kept.began, kept.starts = time.monotonic(), kept.starts + 1
        try:
            kept.child = spawn.start(kept.part.command, self._output, kept.part.handed)
        except OperatorError as error:  # something to be passed to it, like a socket, is not available
            log.error("%s", error)
            self._down(kept, error.exit_code)
            return
        takeover.remember(self._folder, {one.part.name: one.child.pid for one in self._kept if one.child})
        handle = os.pidfd_open(kept.child.pid)
        self._waiter.add(handle, lambda: self._ended(kept, handle))
        self._look(kept)

    def _look(self, kept: _Kept) -> None:
        if kept.child is None:
            return
        if not kept.part.is_ready(kept.child.pid):
            self._waiter.after(LOOK_EVERY_S, lambda: self._look(kept))
            return
        kept.up_since = kept.up_since or time.monotonic()
        if self._on_ready and all(other.up_since for other in self._kept):
            tell, self._on_ready = self._on_ready, None
            tell()

    def _ended(self, kept: _Kept, handle: int) -> None:
        self._waiter.remove(handle)
        os.close(handle)
        assert kept.child is not None
        code = kept.child.wait()
        kept.child = None
        self._down(kept, code)

    def _down(self, kept: _Kept, code: int) -> None:
        if self._leaving or kept.refuses(code):
            self._code = max(self._code, code)
            self._leave()
            return
        self._start_again(kept, code)

    def _start_again(self, kept: _Kept, code: int) -> None:
        if kept.ran_s() > SOUND_AFTER_S:
            kept.pause_s = FIRST_PAUSE_S
        if code == MUST_BE_MENDED:
            kept.pause_s = LONGEST_PAUSE_S
        name, pause_s = kept.part.name, kept.pause_s
        if code == MUST_BE_MENDED:
            log.error(
                "%s until somebody fixes what it says above; %s", IS_OFF.format(name.upper()), kept.part.meanwhile
            )
            log.error("starting the %s again in %.0f s", name, pause_s)
        else:
            log.warning("the %s %s; %s; starting it again in %.0f s", name, _how(code), kept.part.meanwhile, pause_s)
        self._waiter.after(pause_s, lambda: self._start(kept))
        kept.pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _how(code: int) -> str:
    if code == 0:
        return "left unasked"
    return f"died (exit {code})" if code > 0 else f"died (signal {-code})"
