"""The log of `nightshift up` and its parts, and its copy on the terminal."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from typing import TYPE_CHECKING

from runner.processes.file_changes import Changes

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG, OLD_LOG = "nightshift.log", "nightshift.log.1"
LARGE_LOG = 16 << 20
STDERR = 2


def log_path(folder: str) -> str:
    """Return the path of the log."""
    return os.path.join(folder, LOG)


@contextlib.contextmanager
def opened_log(folder: str) -> Iterator[int]:
    """Open the log for appending, and close it at the end."""
    shorten(folder)
    log = os.open(log_path(folder), os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        yield log
    finally:
        os.close(log)


def said_since(folder: str, begin: int) -> str:
    """Return what was added to the log after its first `size` bytes."""
    with open(log_path(folder), encoding="utf-8", errors="replace") as file:
        file.seek(begin)
        return file.read()


def shorten(folder: str) -> None:
    """If the log is large, copy it to OLD_LOG and empty it. Processes that have it open keep writing to it."""
    path, old = log_path(folder), os.path.join(folder, OLD_LOG)
    with contextlib.suppress(OSError):
        if os.path.getsize(path) > LARGE_LOG:
            os.close(os.open(old, os.O_CREAT | os.O_WRONLY, 0o600))
            shutil.copyfile(path, old)
            os.truncate(path, 0)


class LogOnTerminal:
    """Copies the log to the terminal as it grows, until the terminal closes. If the terminal blocks, only this does."""

    def __init__(self, folder: str, log: int) -> None:
        self._log, self._at = log, os.fstat(log).st_size
        self._changes = Changes(folder)
        self._turn = threading.Lock()
        self._open = not os.path.samestat(os.fstat(log), os.fstat(STDERR))

    def __enter__(self) -> LogOnTerminal:
        if self._open:
            threading.Thread(target=self._follow, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.catch_up()
        self._open = False

    def catch_up(self) -> None:
        """Copy everything logged so far to the terminal, unless the terminal blocks."""
        if self._turn.acquire(timeout=1.0):
            try:
                self._copy()
            finally:
                self._turn.release()

    def _follow(self) -> None:
        while self._open:
            with self._turn:
                self._copy()
            self._changes.wait()

    def _copy(self) -> None:
        self._at = min(self._at, os.fstat(self._log).st_size)
        while self._open and (text := os.pread(self._log, 1 << 16, self._at)):
            self._at += len(text)
            try:
                while text:
                    text = text[os.write(STDERR, text) :]
            except OSError:
                self._open = False  # the terminal is gone; nightshift goes on
