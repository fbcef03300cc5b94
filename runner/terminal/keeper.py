"""The process behind `nightshift up`: restarts the runner and the bot when they die. A closed terminal stops none.

If the keeper itself is killed, the next one takes over: it stops the processes that are left, because nobody would
restart them if they died. For that, the keeper records the pid and the start time of each part. Locks are not enough: a
part that has not come up yet holds none, and could take the lock before the next keeper's part does. Processes that
somebody started by hand are not recorded, and are left alone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from runner.config import home
from runner.errors import OperatorError
from runner.processes import linux
from runner.processes.interpreter import python_command
from runner.processes.process_lock import KEEPER_LOCK, held, holder, make_leave
from runner.processes.waiter import Waiter
from runner.terminal import service_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

log = logging.getLogger("nightshift")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
SOUND_AFTER_S = 60.0  # a process that lasted this long did not fail at start-up: the pause is short again
SETTLED_AFTER_S = 5.0  # once a part was up this long, its failure no longer stops the others
LEAVES_WITHIN_S = 20.0
LOOK_EVERY_S = 0.05
SHORTEN_EVERY_S = 600.0
NEEDS_FIXING = 2
IS_OFF = "THE {} IS OFF"
RECORD = "kept.json"
PARTS = ("bot", "runner")  # in the order in which they are stopped


class Handed(Protocol):
    """Something a process gets through a descriptor. An environment variable tells it how to find that."""

    variable: str

    def open(self) -> tuple[str, int]:
        """Return the variable's value, and a descriptor for one process. Our copy is closed after the start."""

    def started(self, pid: int) -> None:
        """Take note of the pid of the started process."""


def command(word: str) -> list[str]:
    """Return the argument list that runs another nightshift command with the same settings."""
    file = home.env_file()
    return python_command("nightshift", *(["--env-file", file] if file else []), word)


def start(words: Sequence[str], log: int, handed: Sequence[Handed]) -> subprocess.Popen[bytes]:
    """Start a process in its own session, so that it gets no signal on Ctrl-C or when the terminal closes."""
    descriptors: list[int] = []
    environ = dict(os.environ)
    try:
        for thing in handed:
            environ[thing.variable], descriptor = thing.open()
            descriptors.append(descriptor)
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, pass_fds=descriptors,
            start_new_session=True,
        )  # fmt: skip
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    for thing in handed:
        thing.started(process.pid)
    return process


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A process to keep up."""

    name: str
    command: Sequence[str]
    is_ready: Callable[[int], bool]  # takes its pid
    meanwhile: str  # in words: what continues while it is down
    handed: Sequence[Handed] = ()
    worked_before: bool = False  # on an earlier day: if it fails at once now, the others must still run


class _Running:
    """A part, its process, and how its starts went."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.child: subprocess.Popen[bytes] | None = None
        self.began = 0.0
        self.pause_s = FIRST_PAUSE_S
        self.starts = 0
        self.up_since: float | None = None  # when one of its processes was first ready

    def refuses(self, code: int) -> bool:
        """Return whether its first start failed in a way that a restart will not fix."""
        if self.part.worked_before:
            return False
        if self.up_since is None:
            return code > 0 and self.starts == 1
        settled = time.monotonic() - self.up_since > SETTLED_AFTER_S
        return code == NEEDS_FIXING and self.starts == 1 and not settled


class Keeper:
    """Starts each part, and restarts it when it dies, after a pause that grows."""

    def __init__(
        self, folder: str, parts: Sequence[Part], output: int, on_ready: Callable[[], None] | None = None
    ) -> None:
        self._folder, self._output, self._on_ready = folder, output, on_ready
        self._parts = [_Running(part) for part in parts]
        self._waiter = Waiter()
        self._leaving = False
        self._code = 0

    def run(self) -> int:
        """Run until SIGTERM or SIGINT, or until a part cannot be started at all. Return the exit code."""
        with held(self._folder, KEEPER_LOCK):
            self._listen()
            self._shorten_log()
            for running in self._parts:
                self._start(running)
            while not self._leaving or any(running.child for running in self._parts):
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
        for running in self._parts:
            if running.child:
                running.child.terminate()
        self._waiter.after(LEAVES_WITHIN_S, self._make_leave)

    def _make_leave(self) -> None:
        for running in self._parts:
            if running.child:
                log.warning("the %s has not left within %.0f s and is killed", running.part.name, LEAVES_WITHIN_S)
                running.child.kill()

    def _shorten_log(self) -> None:
        service_log.shorten(self._folder)
        self._waiter.after(SHORTEN_EVERY_S, self._shorten_log)

    # -- one part ----------------------------------------------------------------------------------

    def _start(self, running: _Running) -> None:
        if self._leaving:
            return
        running.began, running.starts = time.monotonic(), running.starts + 1
        try:
            running.child = start(running.part.command, self._output, running.part.handed)
        except OperatorError as error:  # something to be passed to it, like a socket, is not available
            log.error("%s", error)
            self._down(running, error.exit_code)
            return
        record(self._folder, {other.part.name: other.child.pid for other in self._parts if other.child})
        handle = os.pidfd_open(running.child.pid)
        self._waiter.add(handle, lambda: self._ended(running, handle))
        self._look(running)

    def _look(self, running: _Running) -> None:
        if running.child is None:
            return
        if not running.part.is_ready(running.child.pid):
            self._waiter.after(LOOK_EVERY_S, lambda: self._look(running))
            return
        running.up_since = running.up_since or time.monotonic()
        if self._on_ready and all(other.up_since for other in self._parts):
            tell, self._on_ready = self._on_ready, None
            tell()

    def _ended(self, running: _Running, handle: int) -> None:
        self._waiter.remove(handle)
        os.close(handle)
        assert running.child is not None
        code = running.child.wait()
        running.child = None
        self._down(running, code)

    def _down(self, running: _Running, code: int) -> None:
        if self._leaving or running.refuses(code):
            self._code = max(self._code, code)
            self._leave()
            return
        self._start_again(running, code)

    def _start_again(self, running: _Running, code: int) -> None:
        name, meanwhile, pause_s = running.part.name, running.part.meanwhile, running.pause_s
        if code == NEEDS_FIXING:
            pause_s = LONGEST_PAUSE_S
            log.error("%s until somebody fixes what it says above; %s", IS_OFF.format(name.upper()), meanwhile)
            log.error("starting the %s again in %.0f s", name, pause_s)
        else:
            pause_s = FIRST_PAUSE_S if time.monotonic() - running.began > SOUND_AFTER_S else pause_s
            log.warning("the %s %s; %s; starting it again in %.0f s", name, _how(code), meanwhile, pause_s)
        self._waiter.after(pause_s, lambda: self._start(running))
        running.pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _how(code: int) -> str:
    if code == 0:
        return "left, though nobody asked it to"
    return f"died (exit {code})" if code > 0 else f"died (signal {-code})"


def record(folder: str, pids: Mapping[str, int]) -> None:
    """Record the pids of the parts. If that fails, as on a full disk, the keeper goes on without."""
    path = os.path.join(folder, RECORD)
    with contextlib.suppress(OSError):
        parts = {name: [pid, linux.start_time(pid)] for name, pid in pids.items()}
        with open(f"{path}.tmp", "w", encoding="ascii") as draft:
            json.dump({"boot": linux.boot_id(), "parts": parts}, draft)
        os.replace(f"{path}.tmp", path)


def take_over(folder: str, *, insist: bool = True) -> list[str]:
    """Stop the parts whose keeper is gone, and return their names. Running jobs go on.

    With `insist`, a part that hangs is killed, as its keeper would have done, so that the next one can come up.
    Otherwise OperatorError is raised.
    """
    if holder(folder, KEEPER_LOCK) is not None:
        return []
    recorded = _recorded(folder)
    return [
        name
        for name in PARTS
        if name in recorded and make_leave(folder, recorded[name][0], partial(_is_it, *recorded[name]), insist=insist)
    ]


def _recorded(folder: str) -> dict[str, tuple[int, int]]:
    try:
        with open(os.path.join(folder, RECORD), encoding="ascii") as file:
            written = json.load(file)
        if written["boot"] != linux.boot_id():
            return {}
        return {name: (int(pid), int(began)) for name, (pid, began) in written["parts"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _is_it(pid: int, began: int) -> bool:
    try:
        return linux.start_time(pid) == began
    except OSError:
        return False
