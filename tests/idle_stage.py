"""The watch over jobs' GPUs without a runner: readings as a test wants them, time that passes as it is told."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from runner import clock
from runner.api import Queue
from runner.config.settings import Settings
from runner.model import Gpu, GpuHealth, Snapshot
from runner.processes import linux
from runner.store.connection import StoreError
from runner.watchdogs.idle import IdleWatch
from tests.step_context import Readings, a_context


class IdleStage:
    """One watch after another over the jobs of a queue; begin them with `tests.attempts.begin`."""

    def __init__(self, queue: Queue, patch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.queue, self.asleep_s, self.passed_s = queue, 0.0, 0.0
        self._began, self._settings = time.monotonic(), Settings(home=queue.home, **settings)
        self._wall = clock.now()
        self.fails = False
        passing = SimpleNamespace(monotonic=lambda: self.now, time=lambda: self._wall.timestamp() + self.passed_s)
        for module in ("runner.watchdogs.idle.time", "runner.api.queue.time", "tests.idle_stage.time"):
            patch.setattr(module, passing)
        patch.setattr("runner.clock.now", lambda: self.wall)
        patch.setattr("runner.clock.monotonic", lambda: self.now)
        patch.setattr("runner.processes.linux.asleep_s", lambda: self.asleep_s)
        self.restart()

    @property
    def now(self) -> float:
        return self._began + self.passed_s

    @property
    def wall(self) -> Any:
        return self._wall + timedelta(seconds=self.passed_s)

    def restart(self) -> None:
        """Another runner takes over, as after kill -9."""
        self.readings = Readings()
        self.context = a_context(self.queue.store, self._settings, self.readings)
        self.watch = IdleWatch(self.context)

    def pass_by(self, seconds: float, percent: Mapping[str, int | None], step_s: int = 1, **of_gpus: Any) -> None:
        """Second by second, or in larger steps, with a reading and a tick in each."""
        for _ in range(round(seconds / step_s)):
            self.passed_s += step_s
            self.read(percent, **of_gpus)
            self.tick()

    def read(self, percent: Mapping[str, int | None], **of_gpus: Any) -> None:
        """The sampler speaks."""
        gpus = tuple(
            Gpu(index=index, uuid=uuid, utilization=value, sampled_at=self.now, **{"health": GpuHealth.OK, **of_gpus})
            for index, (uuid, value) in enumerate(percent.items())
        )
        self.readings.snapshot = Snapshot(at="", boot_id=linux.boot_id(), simulated=True, gpus=gpus)
        self.watch.read()

    def tick(self) -> None:
        """What the runner does with it, in its transaction."""
        try:
            with self.queue.store.transaction():
                self.context.begin()
                self.watch.tick()
                if self.fails:
                    raise StoreError("The disk is full.")
        except StoreError:
            self.watch.rolled_back()

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Nothing is written while this lasts."""
        self.fails = True
        yield
        self.fails = False

    def kinds(self, job_id: int) -> list[str]:
        """The notices of a job."""
        return [notice.kind for notice in self.queue.notices.about(job_id)]

    def warnings(self, job_id: int) -> list[dict[str, Any]]:
        """What was warned of."""
        return [
            notice.payload.to_json() for notice in self.queue.notices.about(job_id) if notice.kind == "idle warning"
        ]

    def stopped_at(self, job_id: int) -> Any:
        """When it was asked to stop, if it was."""
        stop = self.queue.job(job_id).stop
        return stop.at if stop else None
