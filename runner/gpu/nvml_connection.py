"""NVML kept open: opened in a thread, since that may block, and again with back-off when it dies."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from runner.gpu import driver_check, nvml_errors
from runner.gpu.nvml import open_session
from runner.gpu.nvml_errors import NvmlUnavailableError
from runner.gpu.readers import Reader
from runner.gpu.unread import is_identified

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runner.gpu.nvml import Reading, Session
    from runner.model import Gpu

    Post = Callable[[Callable[[], None]], None]

RETRY_MAX_S = 30.0
_WORN_OUT = "NVML works for new processes but no longer for this one."


class Connection:
    """The session, its readers, and what keeps it from being open. Only opening leaves the main thread."""

    def __init__(self, simulated: object | None, post: Post, retry_s: float, clock: Callable[[], float]) -> None:
        self.readers: list[Reader] = []
        self.never_read: list[Gpu] = []  # that the driver listed last, but that did not even tell their UUIDs
        self.driver: str | None = None
        self.outage: str | None = None  # why there is no session; None while one is open or opened for the first time
        self.opening_since: float | None = None
        self.sessions = 0  # opened so far
        self.failures = 0  # in a row, since the last good reading
        self.retry_at: float | None = None
        self.worn_out = False  # a new process could do what this one cannot
        self._simulated = simulated
        self._post = post
        self._retry_s = retry_s
        self._clock = clock
        self._session: Session | None = None

    def open(self, seen: Mapping[int, Gpu]) -> None:
        """Try to open NVML; how that went comes as an event."""
        self.opening_since, self.retry_at = self._clock(), None
        threading.Thread(target=self._try, args=(dict(seen), self._session), daemon=True).start()
        self._session = None

    def keep(self, indices: set[int]) -> None:
        """Read only these GPUs from now on."""
        for reader in self.readers:
            if reader.device.index not in indices:
                reader.leave()
        self.readers = [reader for reader in self.readers if reader.device.index in indices]

    def lose(self, why: str) -> None:
        """Give the session up, and try again after a pause that grows."""
        for reader in self.readers:
            reader.leave()
        self.readers = []
        self.outage = why
        self.retry_at = self._clock() + min(RETRY_MAX_S, self._retry_s * 2 ** min(self.failures, 10))
        self.failures += 1

    def took(self, reader: Reader, reading: Reading) -> None:
        """One GPU was read. When no GPU answers any more it is the session that is broken."""
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
            session = self._open_or_prove_worn_out(seen)
        except NvmlUnavailableError as error:
            self._post(partial(self._failed, error))
            return
        self._post(partial(self._opened, session))

    def _open_or_prove_worn_out(self, seen: dict[int, Gpu]) -> Session:
        """A library that was loaded long ago may fail for ever where a new one would not."""
        try:
            return open_session(self._simulated, seen)
        except NvmlUnavailableError:
            if self._simulated is not None or not self.failures or driver_check.check() is not None:
                raise
        try:
            return open_session(self._simulated, seen)
        except NvmlUnavailableError as error:
            self.worn_out = True
            raise NvmlUnavailableError(_WORN_OUT, error.code) from error

    def _failed(self, error: NvmlUnavailableError) -> None:
        self.opening_since = None
        self.lose(str(error))

    def _opened(self, session: Session) -> None:
        self.opening_since = None
        self.sessions += 1
        self._session, self.driver = session, session.driver
        self.readers, self.never_read = [Reader(device, self._read) for device in session.devices], []

    def _read(self, reader: Reader, reading: Reading) -> None:
        """Called in the reader's thread."""
        self._post(partial(self.took, reader, reading))
