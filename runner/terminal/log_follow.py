"""Reads the output in a run directory while it grows."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from datetime import datetime, timezone
from typing import IO, TYPE_CHECKING

from runner import rundir
from runner.supervisor.log_reader import Log, last_position
from runner.supervisor.output import INDEX_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 1 << 18
LEFT_OUT = b"\n[nightshift: part of the output was not kept here]\n"


class Growing:
    """Reads the output across its files: the supervisor fills the first file, then one tail after the other."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._in_head = True
        self.position = 0  # of the next byte in the attempt's whole output, as far as that is known

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()

    def read(self) -> Iterator[bytes]:
        """Yield everything that came since the last call."""
        while True:
            if self._file is None and not self._open(rundir.OUTPUT):
                return
            yield from self._rest()
            following = self._next()
            if following is None:
                return
            yield from self._rest()  # written before the supervisor switched to the next file
            name, gap = following
            if gap:
                yield LEFT_OUT
                self._catch_up()
            self._in_head = False
            if not self._open(name):
                return

    def skip_to_last_lines(self, count: int) -> None:
        """Begin at the last `count` lines of the output so far."""
        newest = True
        for name in (*reversed(rundir.TAILS), rundir.OUTPUT):
            if not self._open(name):
                continue
            self._in_head = name == rundir.OUTPUT
            assert self._file is not None
            end = self._file.seek(0, os.SEEK_END)
            if count <= 0:
                return
            # the newline at the very end does not begin another line
            count -= _back_up(self._file, count, end - 1 if newest else end)
            if count <= 0:
                return
            newest = False

    def _rest(self) -> Iterator[bytes]:
        assert self._file is not None
        while piece := self._file.read(CHUNK):
            self.position += len(piece)
            yield piece

    def _next(self) -> tuple[str, bool] | None:
        """Return the next file and whether output before it is missing, or None if this file is the newest."""
        older, newer = rundir.TAILS
        assert self._file is not None
        here = os.fstat(self._file.fileno()).st_ino
        inodes = {self._inode(newer): newer, self._inode(older): older}
        inodes.pop(None, None)
        if not inodes or inodes.get(here) == newer:
            return None
        if inodes.get(here) == older:
            return newer, False
        first = older if older in inodes.values() else newer
        return first, not self._in_head or self._is_behind()

    def _is_behind(self) -> bool:
        """Return whether the index of times covers more output than all files together contain."""
        size = sum(self._size(name) for name in (rundir.OUTPUT, *rundir.TAILS))
        return last_position(self._path(rundir.TIMES)) > size

    def _catch_up(self) -> None:
        """Set `position` to where the kept tail begins in the whole output."""
        self.position = max(self.position, Log(self._folder).tail_position())

    def _open(self, name: str) -> bool:
        try:
            file = open(self._path(name), "rb", buffering=0)  # noqa: SIM115 - read on until there is a next one
        except FileNotFoundError:
            return False
        self.close()
        self._file = file
        return True

    def _inode(self, name: str) -> int | None:
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self._path(name)).st_ino
        return None

    def _size(self, name: str) -> int:
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self._path(name)).st_size
        return 0

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)


class Stamps:
    """Finds when each byte came, in the index of times, which grows too."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, rundir.TIMES)
        self._read = 0
        self._records: deque[tuple[int, int]] = deque()
        self._ns: int | None = None

    def of(self, position: int) -> tuple[datetime | None, int | None]:
        """Return when this byte came, and the position where bytes of a later moment begin; None if unknown.

        Positions must not decrease from call to call.
        """
        if not self._records or self._records[-1][0] <= position:
            self._extend()
        while self._records and self._records[0][0] <= position:
            self._ns = self._records.popleft()[1]
        moment = None if self._ns is None else datetime.fromtimestamp(self._ns / 1e9, timezone.utc)
        return moment, self._records[0][0] if self._records else None

    def _extend(self) -> None:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._read)
                data = file.read()
        except FileNotFoundError:
            return
        whole = len(data) - len(data) % INDEX_RECORD.size
        self._records += INDEX_RECORD.iter_unpack(data[:whole])
        self._read += whole


def _back_up(file: IO[bytes], newlines: int, end: int) -> int:
    """Seek back from `end` to just after the given number of newlines, or to the start. Return how many were found."""
    at, count = end, 0
    while at > 0:
        start = max(0, at - CHUNK)
        file.seek(start)
        data = file.read(at - start)
        newline = len(data)
        while (newline := data.rfind(b"\n", 0, newline)) >= 0:
            count += 1
            if count == newlines:
                file.seek(start + newline + 1)
                return count
        at = start
    file.seek(0)
    return count
