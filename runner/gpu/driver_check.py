"""Checks in a new process whether NVML can be opened, and notices when the driver is upgraded under an open session.

A session that is already open proves nothing: it may keep working while new ones fail.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING

from runner.gpu import nvml_errors
from runner.gpu.nvml_errors import NvmlUnavailableError
from runner.processes.interpreter import python_command

if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE_S = 15.0
_LIBRARY = "libnvidia-ml.so"


def check() -> NvmlUnavailableError | None:
    """Return why a new process cannot open NVML; None if it can. Wait at most 15 s for the driver."""
    try:
        done = subprocess.run(
            python_command(__name__),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return NvmlUnavailableError(f"A new process got no answer from NVML in {_PATIENCE_S:.0f} s: see `dmesg`.")
    try:
        result = json.loads(done.stdout)
    except ValueError:
        return NvmlUnavailableError("A new process could not load NVML: see `nvidia-smi` and `dmesg`.")
    return NvmlUnavailableError(result["trouble"], result["code"]) if result["trouble"] else None


def main(_argv: list[str]) -> None:
    """Open NVML and print as one line of JSON why it cannot be opened, and NVML's error code."""
    from runner.gpu.nvml import open_session

    trouble, code = None, None
    try:
        open_session().close()
    except NvmlUnavailableError as error:
        trouble, code = str(error), error.code
    sys.stdout.write(json.dumps({"trouble": trouble, "code": code}) + "\n")


class UpgradeWatch:
    """Looks at the library file regularly. When it was replaced, checks NVML in a new process."""

    def __init__(self, post: Callable[[Callable[[], None]], None], every_s: float) -> None:
        self.trouble: str | None = None
        self._post = post
        self._every_s = every_s
        self._next = 0.0
        self._library: str | None = None  # the file that this process has loaded
        self._before: tuple[int, int, int, bool] | None = None
        self._checking = False

    def session_opened(self) -> None:
        """Clear the trouble: a session that opens proves that the library and the driver match."""
        self.trouble = None
        self._library = loaded_library()
        self._before = _identity(self._library)

    def turn(self, now: float) -> None:
        """Look at the file if it is time to. The check runs in a thread and posts its result as an event."""
        if self._library is None or self._checking or now < self._next:
            return
        self._next = now + self._every_s
        before, self._before = self._before, _identity(self._library)
        if before != self._before or self.trouble:
            self._checking = True
            threading.Thread(target=self._check, daemon=True).start()

    def _check(self) -> None:
        self._post(partial(self._take_result, check()))

    def _take_result(self, error: NvmlUnavailableError | None) -> None:
        self._checking = False
        self.trouble = None
        if error is None:
            return
        self._next += 5 * self._every_s  # a person must fix this, so check less often
        if error.code == nvml_errors.LIB_RM_VERSION_MISMATCH:
            self.trouble = nvml_errors.DRIVER_REPLACED
        else:
            self.trouble = f"The NVIDIA driver's library was replaced and new starts are held. {error}"


def loaded_library() -> str | None:
    """Return the NVML library that this process has loaded; None if it has none, as with the simulated driver."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if _LIBRARY in line}
    except OSError:
        return None
    return min(paths, default=None)


def _identity(path: str | None) -> tuple[int, int, int, bool] | None:
    """Return what tells apart two files at one path; None if there is no file.

    The link count is part of it because a bind mount keeps showing a file that was deleted on the host.
    """
    try:
        stat = os.stat(path or "")
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_nlink == 0
