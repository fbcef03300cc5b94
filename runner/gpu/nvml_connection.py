"""Keeps NVML open. Opens it in a thread, because that may block, and opens it again with back-off when it fails."""

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
        self.worn_out = False  # a new process can open NVML and this one cannot
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

    def took(self, reader: Reader, reading: Reading) -> None:
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
            session = self._open_or_prove_worn_out(seen)
        except NvmlUnavailableError as error:
            self._post(partial(self._failed, error))
            return
        self._post(partial(self._opened, session))

    def _open_or_prove_worn_out(self, seen: dict[int, Gpu]) -> Session:
        """Open a session. If that fails again while a new process can do it, set `worn_out` and raise.

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
        """Pass a reading to the main thread. Called in the reader's thread."""
        self._post(partial(self.took, reader, reading))
