"""Keeps NVML open and reads the GPUs, in threads, because driver calls may block: one to open it, one for each GPU."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from runner.gpu import driver_check, nvml_errors
from runner.gpu.inventory import is_identified, unread
from runner.gpu.nvml import DeviceReading, open_session
from runner.gpu.nvml_errors import NvmlUnavailableError
from runner.model import GpuHealth

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runner.gpu.nvml import Device, Session
    from runner.model import Gpu

    Post = Callable[[Callable[[], None]], None]

RETRY_MAX_S = 30.0
_BROKEN_HERE = "NVML works for new processes but no longer for this one."


class Reader:
    """Reads one GPU when asked. Only the reading itself happens outside the sampler's main thread."""

    def __init__(self, device: Device, done: Callable[[Reader, DeviceReading], None]) -> None:
        self.device = device
        self.last: DeviceReading | None = None
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

    def take(self, reading: DeviceReading) -> None:
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

    def _read(self) -> DeviceReading:
        at = time.monotonic()
        try:
            return self.device.read()
        except Exception as error:  # if the thread died, the GPU would seem to block
            gpu = unread(self.device.last, GpuHealth.UNKNOWN, f"could not be read ({error!r})")
            return DeviceReading(replace(gpu, sampled_at=at), broken=True)


class Connection:
    """The session, its readers, and why it is not open. Only opening and closing it happen outside the main thread."""

    def __init__(self, simulated: object | None, post: Post, retry_s: float, clock: Callable[[], float]) -> None:
        self.readers: list[Reader] = []
        self.never_read: list[Gpu] = []  # listed by the driver, but even their UUIDs could not be read
        self.driver: str | None = None
        self.outage: str | None = None  # why there is no session; None if one works or the first is being opened
        self.opening_since: float | None = None
        self.sessions = 0  # opened so far
        self.failures = 0  # in a row, since the last good reading
        self.retry_at: float | None = None
        self.is_broken = False  # a new process can open NVML and this one cannot
        self._simulated = simulated
        self._post = post
        self._retry_s = retry_s
        self._clock = clock
        self._session: Session | None = None

    def open(self, seen: Mapping[int, Gpu]) -> None:
        """Try to open NVML in a thread, which posts the result as an event. Close the old session first."""
        self.opening_since, self.retry_at = self._clock(), None
        threading.Thread(target=self._try, args=(dict(seen), self._session), daemon=True).start()
        self._session = None

    def keep(self, indices: set[int]) -> None:
        """Stop reading all GPUs except these."""
        for reader in self.readers:
            if reader.device.index not in indices:
                reader.leave()
        self.readers = [reader for reader in self.readers if reader.device.index in indices]

    def lose(self, why: str) -> None:
        """Give up the session and set the time of the next try. The pause grows with each failure, up to 30 s."""
        for reader in self.readers:
            reader.leave()
        self.readers = []
        self.outage = why
        self.retry_at = self._clock() + min(RETRY_MAX_S, self._retry_s * 2 ** min(self.failures, 10))
        self.failures += 1

    def take(self, reader: Reader, reading: DeviceReading) -> None:
        """Take the reading of one GPU. If no GPU answers any more, the session is broken: give it up."""
        if reader not in self.readers:
            return
        reader.take(reading)
        if not reading.broken:
            self.failures, self.outage = 0, None
        elif len(silent := [r.last.gpu for r in self.readers if r.last and r.last.broken]) == len(self.readers):
            self.lose(nvml_errors.all_silent(silent))
            self.never_read = [replace(gpu, sampled_at=0.0) for gpu in silent if not is_identified(gpu)]

    def _try(self, seen: dict[int, Gpu], old: Session | None) -> None:
        if old is not None:
            old.close()
        try:
            session = self._open_or_prove_broken(seen)
        except NvmlUnavailableError as error:
            self._post(partial(self._failed, error))
            return
        self._post(partial(self._opened, session))

    def _open_or_prove_broken(self, seen: dict[int, Gpu]) -> Session:
        """Open a session. If that fails again while a new process can do it, set `is_broken` and raise.

        A library that was loaded before a driver change may keep failing in this process.
        """
        try:
            return open_session(self._simulated, seen)
        except NvmlUnavailableError:
            if self._simulated is not None or not self.failures or driver_check.check() is not None:
                raise
        try:
            return open_session(self._simulated, seen)
        except NvmlUnavailableError as error:
            self.is_broken = True
            raise NvmlUnavailableError(_BROKEN_HERE, error.code) from error

    def _failed(self, error: NvmlUnavailableError) -> None:
        self.opening_since = None
        self.lose(str(error))

    def _opened(self, session: Session) -> None:
        self.opening_since = None
        self.sessions += 1
        self._session, self.driver = session, session.driver
        self.readers, self.never_read = [Reader(device, self._read) for device in session.devices], []

    def _read(self, reader: Reader, reading: DeviceReading) -> None:
        """Pass a reading to the main thread. Called in the reader's thread."""
        self._post(partial(self.take, reader, reading))
