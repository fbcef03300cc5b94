"""One thread per GPU, so that a driver call that blocks on one GPU does not hold the others."""

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
    """Reads one GPU when asked. All but the reading itself happens in the sampler's main thread."""

    def __init__(self, device: Device, done: Callable[[Reader, Reading], None]) -> None:
        self.device = device
        self.last: Reading | None = None
        self._done = done
        self._busy_since: float | None = None
        self._go = threading.Semaphore(0)
        self._leaving = False
        threading.Thread(target=self._work, name=f"gpu-{device.index}", daemon=True).start()

    def ask(self, now: float) -> None:
        """Start a reading, unless one is under way."""
        if self._busy_since is None:
            self._busy_since = now
            self._go.release()

    def take(self, reading: Reading) -> None:
        """The reading under way is finished."""
        self._busy_since = None
        self.last = reading

    def leave(self) -> None:
        """Let the thread end, at once or when the driver gives it back."""
        self._leaving = True
        self._go.release()

    def answered_since(self, moment: float) -> bool:
        """Whether the last reading was begun at this moment or later."""
        return self.last is not None and self.last.gpu.sampled_at >= moment

    def silent_s(self, now: float) -> float:
        """For how long the reading under way has taken."""
        return 0.0 if self._busy_since is None else now - self._busy_since

    def report(self, now: float, slow_s: float) -> Gpu:
        """The GPU as it is to be published: as last read, or unknown if it has been silent for too long."""
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
        except Exception as error:  # a thread that dies of a surprise would look like a GPU that blocks
            gpu = unread(self.device.last, GpuHealth.UNKNOWN, f"could not be read ({error!r})")
            return Reading(replace(gpu, sampled_at=at), broken=True)
