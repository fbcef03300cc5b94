"""The loop of `nightshift watch`: starts the command, reads GPUs at each tick, kills it after an idle window."""

from __future__ import annotations

import logging
import math
import select
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.idle.idle_rule import IdleAction, Window
from runner.idle_command.child import Child, SignalReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.idle.idle_rule import LoadReading
    from runner.idle.policy import IdlePolicy
    from runner.idle_command.gpu_readings import GpuReadings

# The original's name, so that tools that search logs for its lines also find ours.
log = logging.getLogger("gpu_idle_timeout")

KILLED_IDLE = 1


class IdleWatcher:
    """Watches one command. Ticks are at whole multiples of the period since the start, however long a reading takes."""

    def __init__(self, policy: IdlePolicy, readings: GpuReadings) -> None:
        self._policy, self._readings = policy, readings
        self._next = 1  # tick
        self._asked_tick = 0
        self._unknown: str | None = None

    def run(self, words: Sequence[str]) -> int:
        """Run the command until it ends or is killed. Return the exit code. Raise OSError if it cannot be started."""
        signals = SignalReader()
        self._child = Child(words, signals.mask_before, lambda: self._readings.pid)
        self._started_at = time.monotonic()
        self._window = Window(self._policy, self._readings.uuids, self._started_at)
        self._announce()
        while True:
            answers = self._readings.sources()
            ready, _, _ = select.select([signals.fileno(), *answers], [], [], self._until_tick_s())
            for received in signals.received():
                if received.number is not signal.SIGCHLD and not received.from_terminal:
                    self._child.send(received.number)
            code = self._child.reap()
            if code is not None:
                return code
            if set(ready) & set(answers) and self._is_idle():
                self._end()
                return KILLED_IDLE
            self._keep_time()

    def _announce(self) -> None:
        policy = self._policy
        log.info(
            "Starting GPU idle watcher: threshhold_percentage=%g%%, sample_freq=%g, num_samples=%d, "
            "delay_samples=%d, window_size=%g",
            *(policy.threshold_percent, policy.period_s, policy.window, policy.delay, policy.window_s),
        )

    def _until_tick_s(self) -> float:
        return max(0.0, self._started_at + self._next * self._policy.period_s - time.monotonic())

    def _keep_time(self) -> None:
        """Do what is due. Ticks that we missed are skipped, not made up for."""
        period_s = self._policy.period_s
        now_tick = math.floor((time.monotonic() - self._started_at) / period_s)
        while self._next <= now_tick and self._next < self._policy.first_tick:
            log.info("waiting for delay samples. %g seconds left", (self._policy.delay - self._next) * period_s)
            self._next += 1
        if self._next <= now_tick:
            self._ask(now_tick)

    def _ask(self, tick: int) -> None:
        if self._readings.asked_at is not None:
            self._say_unknown("the driver has not answered")
        self._readings.ask()
        self._asked_tick, self._next = tick, tick + 1

    def _is_idle(self) -> bool:
        """Take the answer. Return whether it completes a whole idle window."""
        answer = self._readings.answer(self._policy.threshold_percent)
        if answer is None:
            return False
        reading = replace(answer, at=self._started_at + self._asked_tick * self._policy.period_s)
        self._report(reading)
        if tuple(reading.percent) != self._window.gpus:
            self._window = Window(self._policy, tuple(reading.percent), self._started_at)
        sample = self._window.take(reading)
        if sample is not None and sample.interruption:
            log.warning("%s: the window starts over", sample.interruption)
        return sample is not None and self._window.judge(reading.at).action is IdleAction.STOP

    def _report(self, reading: LoadReading) -> None:
        for uuid, percent in reading.percent.items():
            if percent is None:
                log.debug("%s usage unknown", uuid)
            else:
                log.debug("%s usage %g%%", uuid, percent)
        self._say_unknown(reading.unknown)

    def _say_unknown(self, why: str | None) -> None:
        """Log the reason once, when it is new or has changed."""
        if why != self._unknown and why is not None:
            log.warning("usage is unknown: %s. Nothing is killed for that; the window starts over.", why)
        self._unknown = why

    def _end(self) -> None:
        policy = self._policy
        log.error(
            "usage for all GPUs: %s was below threshhold %g%% for last %g seconds. Killing process.",
            *(list(self._readings.uuids), policy.threshold_percent, policy.window_s),
        )
        log.error("process still alive, maybe hung, killing.")
        if alive := self._child.kill():
            log.error("could not be killed: %s", ", ".join(map(str, alive)))
