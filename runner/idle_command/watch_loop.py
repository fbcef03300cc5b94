"""The loop of `nightshift watch`: starts the command, reads GPUs at each tick, kills it after an idle window.

It reads all GPUs through a sampler of its own, at the moment a reading is wanted.
"""

from __future__ import annotations

import logging
import math
import select
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.errors import OperatorError, TransientError
from runner.gpu.inventory import unread
from runner.gpu.sampler_client import FIRST_ANSWER_S, SILENT_AFTER_S, SamplerClient
from runner.idle.idle_rule import IdleAction, LoadReading, Window, read_own
from runner.idle_command.child import Child, SignalReader
from runner.model import GpuHealth
from runner.processes import linux

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.idle.policy import IdlePolicy
    from runner.model import Gpu, Snapshot

# The original's name, so that tools that search logs for its lines also find ours.
log = logging.getLogger("gpu_idle_timeout")

KILLED_IDLE = 1
_FLAGS = ("--private", "--period-s", "3600")


class GpuReadings:
    """Asks one question at a time. A missing reading is unknown, never zero."""

    def __init__(self, home: str, gpus: str) -> None:
        self._home, self._gpus = home, gpus
        self._dead = False
        self.asked_at: float | None = None  # None: no answer is expected
        self._client = SamplerClient(home, gpus, *_FLAGS)
        try:
            first = self._client.sample(FIRST_ANSWER_S)
        except TransientError as error:
            self.close()
            raise OperatorError("The GPU driver gave no reading. Does nvidia-smi answer?") from error
        except BaseException:
            self.close()
            raise
        self._number = 0  # of the latest question
        self.uuids = tuple(gpu.uuid for gpu in first.gpus)

    @property
    def pid(self) -> int:
        """Return the pid of the sampler."""
        return self._client.process.pid

    def sources(self) -> list[int]:
        """Return what is readable when there may be an answer. Empty while the sampler is dead."""
        return [] if self._dead else [self._client.fileno()]

    def ask(self) -> None:
        """Ask for a reading of all GPUs. First replace a sampler that died or is silent."""
        now = time.monotonic()
        if self._dead or now - (self.asked_at or now) > SILENT_AFTER_S:
            self._replace()
        if self.asked_at is None:
            self.asked_at = now
            try:
                self._number = self._client.ask()
            except OSError:
                self._die()

    def answer(self, threshold_percent: float) -> LoadReading | None:
        """Return the reading that was asked for, or None if it has not come. Its time is that of the question."""
        try:
            while (snapshot := self._client.snapshot()) is not None:
                if self.asked_at is not None and snapshot.answers == self._number:
                    asked_at, self.asked_at = self.asked_at, None
                    return self._reading(snapshot, asked_at, threshold_percent)
        except (EOFError, OperatorError):
            self._die()
        return None

    def _reading(self, snapshot: Snapshot, asked_at: float, threshold_percent: float) -> LoadReading:
        gpus = [_since(asked_at, gpu) for gpu in snapshot.gpus]
        asleep_s = linux.asleep_s()
        # a GPU that was silent at first reports its UUID later
        self.uuids = tuple(gpu.uuid for gpu in gpus) or self.uuids
        reading = read_own(gpus, self.uuids, threshold_percent=threshold_percent, asleep_s=asleep_s)
        if reading is None:
            why = snapshot.trouble or "the driver lists no GPU"
            return LoadReading(asked_at, dict.fromkeys(self.uuids), why, asleep_s)
        return replace(reading, at=asked_at)

    def _die(self) -> None:
        """Note that the sampler has ended. The next question goes to a new one."""
        self._dead, self.asked_at = True, None

    def _replace(self) -> None:
        self._client.close()
        self._client = SamplerClient(self._home, self._gpus, *_FLAGS, "--wait-for-driver")
        self._dead, self.asked_at = False, None

    def close(self) -> None:
        """Stop the sampler."""
        self._client.close()


def _since(moment: float, gpu: Gpu) -> Gpu:
    """Return the GPU, marked as unread if its reading is older than the question."""
    if gpu.health is GpuHealth.OK and gpu.sampled_at < moment:
        return unread(gpu, GpuHealth.UNKNOWN, "has not answered")
    return gpu


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
