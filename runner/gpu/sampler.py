"""The sampler: the only process that talks to the driver, so that a driver call that blocks stops no other process.

It reads requests as lines from stdin and writes snapshots as lines of JSON to stdout and into `gpus.json`:

    sample 17       read all GPUs now and answer with a snapshot that carries this number
    period 2.0      seconds between the snapshots it takes without a request

The sampler ends when stdin ends or its parent dies. If NVML cannot be opened at the start, or the selected GPUs are
not there, it prints `{"fatal": "<why, and how to fix it>"}` and ends with exit code 2, unless it was started with
--wait-for-driver. Exit code 3 asks for a new sampler: a new process can open NVML and this one no longer can.
"""

from __future__ import annotations

import math
import os
import queue
import select
import signal
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from runner import clock
from runner.errors import NightshiftError, OperatorError
from runner.gpu import published
from runner.gpu.driver_check import UpgradeWatch
from runner.gpu.inventory import KnownGpus, Selection, is_identified, parse_selection
from runner.gpu.nvml_connection import Connection
from runner.gpu.sim.driver import simulate
from runner.model import Snapshot
from runner.processes import linux

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from runner.model import Gpu

FATAL = 2
START_AGAIN = 3
SHORTEST_PERIOD_S = 0.05


class _Round(NamedTuple):
    """A snapshot to publish: the answer to a request, or a regular one (`number` is None)."""

    number: int | None
    asked_at: float
    deadline: float


class Sampler:
    """The loop: handle an event, start what is due, publish what is complete."""

    def __init__(self, options: Namespace, emit: Callable[[str, bool], None]) -> None:
        self._options = options
        self._emit = emit
        self._simulated = options.gpus.startswith("sim:")
        self._selection = parse_selection(options.gpus, os.environ)
        self._settled = False  # each GPU has told its UUID, so it is certain which ones are ours
        self._known = KnownGpus.from_last_time(options.home, simulated=self._simulated)
        self._boot_id = linux.boot_id()
        self._parent = os.getppid()
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._rounds: list[_Round] = []
        self._next_tick = time.monotonic() + options.slow_s
        self._sessions_seen = 0
        self._outage_seen: str | None = None
        self._patient_until: float | None = None  # GPUs may take seconds to wake for the first reading
        self._exit_code: int | None = None
        driver = simulate(options.home, options.gpus) if self._simulated else None
        self._watch = UpgradeWatch(self._events.put, options.library_check_s)
        self._connection = Connection(driver, self._events.put, options.retry_s, time.monotonic)

    def run(self) -> int:
        """Sample until stdin ends or an error ends the sampler. Return the exit code."""
        threading.Thread(target=self._listen, daemon=True).start()
        self._connection.open(self._known.by_index())
        while self._exit_code is None:
            self._take_event()
            self._turn(time.monotonic())
        return self._exit_code

    def _listen(self) -> None:
        """Turn lines on stdin into events. Runs in its own thread."""
        for line in sys.stdin.buffer:
            self._events.put(partial(self._handle_request, line.decode(errors="replace").split()))
        self._events.put(partial(self._leave, 0))

    def _take_event(self) -> None:
        not_before = self._not_before()
        moments = [self._next_tick, *(max(owed.deadline, not_before) for owed in self._rounds)]
        until = min([*moments, self._connection.retry_at or math.inf])
        try:
            event = self._events.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return
        event()

    def _handle_request(self, words: list[str]) -> None:
        """Carry out one request. Ignore a line that is not a request."""
        now = time.monotonic()
        if len(words) == 2 and words[0] == "sample" and words[1].isdigit():
            self._rounds.append(_Round(int(words[1]), now, now + self._options.answer_s))
        elif len(words) == 2 and words[0] == "period":
            try:
                self._options.period_s = max(SHORTEST_PERIOD_S, float(words[1]))
            except ValueError:
                return
            self._next_tick = min(self._next_tick, now + self._options.period_s)

    def _turn(self, now: float) -> None:
        """Start the readings that are due and publish the snapshots that are complete."""
        if os.getppid() != self._parent:
            self._leave(0)
        self._watch_connection(now)
        self._watch.turn(now)
        if now >= self._next_tick:
            self._begin_unasked(now)
        self._ask_readers(now)
        for owed in [owed for owed in self._rounds if self._is_over(owed, now)]:
            self._rounds.remove(owed)
            self._publish(owed.number, now)

    def _watch_connection(self, now: float) -> None:
        connection = self._connection
        if connection.is_broken:
            self._leave(START_AGAIN)
        elif connection.outage and not connection.sessions and not self._options.wait_for_driver:
            self._fatal(connection.outage)
        elif connection.retry_at is not None and now >= connection.retry_at:
            connection.open(self._known.by_index())
        elif connection.outage != self._outage_seen:
            self._outage_seen = connection.outage
            self._begin_unasked(now)
        elif connection.sessions != self._sessions_seen:
            self._sessions_seen = connection.sessions
            self._patient_until = now + self._options.patience_s
            self._watch.session_opened()
            self._begin_unasked(now)

    def _begin_unasked(self, now: float) -> None:
        self._next_tick = now + self._options.period_s
        if all(owed.number is not None for owed in self._rounds):
            self._rounds.append(_Round(None, now, now + self._options.answer_s))

    def _ask_readers(self, now: float) -> None:
        """Ask for the readings that the rounds still need: they must begin after the round was asked for."""
        if not self._rounds:
            return
        newest = max(owed.asked_at for owed in self._rounds)
        for reader in self._connection.readers:
            if not reader.answered_since(newest):
                reader.ask(now)

    def _not_before(self) -> float:
        """Return the earliest time for a snapshot. At the start, GPUs get time to wake and tell their UUIDs."""
        if self._settled or self._options.wait_for_driver:
            return 0.0
        if self._patient_until is None:
            return math.inf
        return 0.0 if all(reader.last for reader in self._connection.readers) else self._patient_until

    def _is_over(self, owed: _Round, now: float) -> bool:
        """Return whether to publish: all GPUs have answered or are too slow, the deadline is over, or NVML is down."""
        if now < self._not_before():
            return False
        if now >= owed.deadline:
            return True
        readers = self._connection.readers
        if not readers:
            return self._connection.outage is not None
        slow_s = self._options.slow_s
        return all(r.answered_since(owed.asked_at) or r.silent_s(now) >= slow_s for r in readers)

    def _publish(self, number: int | None, now: float) -> None:
        live = self._live(now)
        why_gone = "is not listed by the driver any more" if self._connection.readers else "cannot be read without NVML"
        gpus = self._known.merged(live, why_gone)
        if self._exit_code is not None:
            return
        snapshot = Snapshot(
            at=clock.text(clock.now()),
            boot_id=self._boot_id,
            simulated=self._simulated,
            gpus=gpus,
            driver=self._connection.driver,
            trouble=self._trouble(now),
            answers=number,
        )
        line = published.line_of(snapshot)
        if not self._options.private:
            published.publish(self._options.home, line)
        self._emit(line, number is not None)

    def _live(self, now: float) -> list[Gpu]:
        """Return our GPUs as last read. Settle which ones are ours once all have told their UUIDs."""
        connection = self._connection
        reports = [reader.report(now, self._options.slow_s) for reader in connection.readers] or connection.never_read
        if self._settled or not reports or not all(map(is_identified, reports)):
            return self._ours(reports)
        try:
            return self._settle(self._selection.choose(reports))
        except OperatorError as error:
            if self._options.wait_for_driver:
                self._connection.lose(str(error))
            else:
                self._fatal(str(error))
            return []

    def _ours(self, reports: list[Gpu]) -> list[Gpu]:
        """Return the GPUs that the selection allows. Once that is settled, stop reading the others."""
        ours = [gpu for gpu in reports if self._selection.allows(gpu)]
        if self._settled:
            nameless = [gpu for gpu in reports if not is_identified(gpu)]
            self._connection.keep({gpu.index for gpu in [*ours, *nameless]})
        return ours

    def _settle(self, chosen: list[Gpu]) -> list[Gpu]:
        self._settled = True
        self._connection.keep({gpu.index for gpu in chosen})
        if self._simulated or self._selection.entries is not None:
            # select by UUID from now on: an index may mean another GPU once the driver is opened again
            self._selection = Selection(tuple(gpu.uuid for gpu in chosen))
        self._known.forget_others(self._selection)
        return chosen

    def _trouble(self, now: float) -> str | None:
        since = self._connection.opening_since
        if self._connection.outage is None and since is not None:
            return f"NVML is being opened and has not answered for {now - since:.0f} s."
        return self._connection.outage or self._watch.trouble

    def _fatal(self, sentence: str) -> None:
        self._emit(published.fatal_line(sentence), True)
        self._leave(FATAL)

    def _leave(self, code: int) -> None:
        if self._exit_code is None:
            self._exit_code = code


def _write(line: str, must: bool) -> None:
    """Write a line to stdout. If the pipe is full, drop the line unless it `must` be written."""
    if not must and not select.select([], [1], [], 0)[1]:
        return
    rest = line.encode()
    while rest:
        rest = rest[os.write(1, rest) :]


def _options(argv: list[str]) -> Namespace:
    import argparse

    parser = argparse.ArgumentParser(prog="sampler", description=__doc__)
    parser.add_argument("home")
    parser.add_argument("gpus", help="auto, indices or UUIDs, or sim:2x24GiB")
    parser.add_argument("--wait-for-driver", action="store_true", help="no failure at the start is fatal")
    parser.add_argument("--private", action="store_true", help="leave gpus.json alone")
    parser.add_argument("--period-s", type=float, default=1.0)
    parser.add_argument("--slow-s", type=float, default=2.0, help="a GPU silent for this long is unknown")
    parser.add_argument("--patience-s", type=float, default=10.0, help="time to wake, before the first snapshot")
    parser.add_argument("--answer-s", type=float, default=1.0, help="a request waits this long for slow GPUs")
    parser.add_argument("--retry-s", type=float, default=1.0, help="first pause before NVML is opened again")
    parser.add_argument("--library-check-s", type=float, default=10.0)
    return parser.parse_args(argv)


def run(argv: list[str]) -> int:
    """Run the sampler and return its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner handles Ctrl-C
    try:
        return Sampler(_options(argv), _write).run()
    except NightshiftError as error:
        _write(published.fatal_line(str(error)), True)
        return FATAL
    except BrokenPipeError:
        return 0


def main(argv: list[str]) -> NoReturn:
    """Run the sampler and exit without waiting for threads that may hang in the driver."""
    linux.set_name("ns-sampler")
    os._exit(run(argv))
