"""One thread per GPU, so that a driver call that blocks on one GPU does not block the others."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.gpu.nvml import Reading
from runner.gpu.unread import unread
from runner.model import GpuHealth

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.gpu.nvml import Device
    from runner.model import Gpu


class Reader:
    """Reads one GPU when asked. Only the reading itself happens outside the sampler's main thread."""

    def __init__(self, device: Device, done: Callable[[Reader, Reading], None]) -> None:
        self.device = device
        self.last: Reading | None = None
        self._done = done
        self._busy_since: float | None = None
        self._go = threading.Semaphore(0)
        self._leaving = False
        threading.Thread(target=self._work, name=f"gpu-{device.index}", daemon=True).start()

    def ask(self, now: float) -> None:
        """Start a reading, unless one is running."""
        if self._busy_since is None:
            self._busy_since = now
            self._go.release()

    def take(self, reading: Reading) -> None:
        """Store a finished reading."""
        self._busy_since = None
        self.last = reading

    def leave(self) -> None:
        """End the thread: now, or when its current driver call returns."""
        self._leaving = True
        self._go.release()

    def answered_since(self, moment: float) -> bool:
        """Return whether the last reading began at this moment or later."""
        return self.last is not None and self.last.gpu.sampled_at >= moment

    def silent_s(self, now: float) -> float:
        """Return how many seconds the current reading has taken so far; 0 if none is running."""
        return 0.0 if self._busy_since is None else now - self._busy_since

    def report(self, now: float, slow_s: float) -> Gpu:
        """Return the GPU to publish: as last read, or UNKNOWN if the current reading has taken `slow_s` or longer."""
        gpu = self.last.gpu if self.last else self.device.last
        silent_s = self.silent_s(now)
        if silent_s < slow_s:
            return gpu
        return unread(gpu, GpuHealth.UNKNOWN, f"has not answered for {silent_s:.0f} s")

    def _work(self) -> None:
        while True:
            self._go.acquire()
            if self._leaving:
                return
            self._done(self, self._read())

    def _read(self) -> Reading:
        at = time.monotonic()
        try:
            return self.device.read()
        except Exception as error:  # if the thread died, the GPU would seem to block
            gpu = unread(self.device.last, GpuHealth.UNKNOWN, f"could not be read ({error!r})")
            return Reading(replace(gpu, sampled_at=at), broken=True)
