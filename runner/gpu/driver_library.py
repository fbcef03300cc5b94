"""Notices when the driver is upgraded under an open session: that one may keep working while new ones fail."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING

from runner.gpu import driver_check, nvml_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.gpu.nvml_errors import NvmlUnavailableError

_NAME = "libnvidia-ml.so"


class LibraryFile:
    """The library file this process has loaded, as it was at the last look."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._before = _identity(path)

    def was_replaced(self) -> bool:
        """Return whether the file was replaced or removed since the last look. Each change is reported once."""
        now = _identity(self._path)
        replaced = now != self._before
        self._before = now
        return replaced


class UpgradeWatch:
    """Looks at the library file regularly. When it was replaced, checks NVML in a new process."""

    def __init__(self, post: Callable[[Callable[[], None]], None], every_s: float) -> None:
        self.trouble: str | None = None
        self._post = post
        self._every_s = every_s
        self._next = 0.0
        self._file: LibraryFile | None = None
        self._asking = False

    def session_opened(self) -> None:
        """Clear the trouble: a session that opens proves that the library and the driver match."""
        self.trouble = None
        self._file = loaded_library()

    def turn(self, now: float) -> None:
        """Look at the file if it is time to. The check runs in a thread and posts its result as an event."""
        if self._file is None or self._asking or now < self._next:
            return
        self._next = now + self._every_s
        if self._file.was_replaced() or self.trouble:
            self._asking = True
            threading.Thread(target=self._ask, daemon=True).start()

    def _ask(self) -> None:
        self._post(partial(self._told, driver_check.check()))

    def _told(self, error: NvmlUnavailableError | None) -> None:
        self._asking = False
        self.trouble = None if error is None else _starts_held(error)
        if error is not None:
            self._next += 5 * self._every_s  # a person must fix this, so check less often


def _starts_held(error: NvmlUnavailableError) -> str:
    if error.code == nvml_errors.LIB_RM_VERSION_MISMATCH:
        return nvml_errors.DRIVER_REPLACED
    return f"The NVIDIA driver's library was replaced and new starts are held. {error}"


def loaded_library() -> LibraryFile | None:
    """Return the NVML library this process has loaded; None if it has none, as with the simulated driver."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if _NAME in line}
    except OSError:
        return None
    return LibraryFile(min(paths)) if paths else None


def _identity(path: str) -> tuple[int, int, int, bool] | None:
    """Return what tells apart two files at one path; None if there is no file.

    The link count is part of it because a bind mount keeps showing a file that was deleted on the host.
    """
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_nlink == 0
