"""Reads all GPUs through a sampler of our own, at the moment a reading is wanted."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.errors import OperatorError, TransientError
from runner.gpu.inventory import unread
from runner.gpu.sampler_client import FIRST_ANSWER_S, SILENT_AFTER_S, SamplerClient
from runner.idle import idle_rule
from runner.model import GpuHealth
from runner.processes import linux

if TYPE_CHECKING:
    from runner.model import Gpu, Snapshot

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

    def answer(self, threshold_percent: float) -> idle_rule.LoadReading | None:
        """Return the reading that was asked for, or None if it has not come. Its time is that of the question."""
        try:
            while (snapshot := self._client.snapshot()) is not None:
                if self.asked_at is not None and snapshot.answers == self._number:
                    asked_at, self.asked_at = self.asked_at, None
                    return self._reading(snapshot, asked_at, threshold_percent)
        except (EOFError, OperatorError):
            self._die()
        return None

    def _reading(self, snapshot: Snapshot, asked_at: float, threshold_percent: float) -> idle_rule.LoadReading:
        gpus = [_since(asked_at, gpu) for gpu in snapshot.gpus]
        asleep_s = linux.asleep_s()
        # a GPU that was silent at first reports its UUID later
        self.uuids = tuple(gpu.uuid for gpu in gpus) or self.uuids
        reading = idle_rule.read_own(gpus, self.uuids, threshold_percent=threshold_percent, asleep_s=asleep_s)
        if reading is None:
            why = snapshot.trouble or "the driver lists no GPU"
            return idle_rule.LoadReading(asked_at, dict.fromkeys(self.uuids), why, asleep_s)
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
