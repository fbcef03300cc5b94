"""A run directory's output as it grows: read as far as it goes, again and again."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from datetime import datetime, timezone
from typing import IO, TYPE_CHECKING

from runner import rundir
from runner.supervisor.output import INDEX_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 1 << 18
LEFT_OUT = b"\n[nightshift: part of the output was not kept here]\n"


class Growing:
    """Reads on from file to file, as the supervisor goes on from its first file to one tail after the other."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._in_head = True
        self.position = 0  # of the next byte in the job's whole output, as far as that is known

    def close(self) -> None:
        """Let go of the file."""
        if self._file:
            self._file.close()

    def read(self) -> Iterator[bytes]:
        """All that came since the last time."""
        while True:
            if self._file is None and not self._open(rundir.OUTPUT):
                return
            yield from self._rest()
            following = self._next()
            if following is None:
                return
            yield from self._rest()  # what was written before the supervisor went on
            name, gap = following
            if gap:
                yield LEFT_OUT
                self._catch_up()
            self._in_head = False
            if not self._open(name):
                return

    def skip_to_last_lines(self, count: int) -> None:
        """Begin so many lines before the end."""
        newest = True
        for name in (*reversed(rundir.TAILS), rundir.OUTPUT):
            if not self._open(name):
                continue
            self._in_head = name == rundir.OUTPUT
            assert self._file is not None
            end = self._file.seek(0, os.SEEK_END)
            if count <= 0:
                return
            # the newline that ends the last line begins none
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
        """The file that follows on the one being read, if there is one, and whether something in between is gone."""
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
        """Whether the index of times knows of more output than the files hold together."""
        kept = sum(self._size(name) for name in (rundir.OUTPUT, *rundir.TAILS))
        return last_position(self._path(rundir.TIMES)) > kept

    def _catch_up(self) -> None:
        """Reckon where in the whole output the kept tail begins."""
        tail = sum(self._size(name) for name in rundir.TAILS)
        self.position = max(self.position, last_position(self._path(rundir.TIMES)) - tail)

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
    """When each byte came, from an index that grows too."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, rundir.TIMES)
        self._read = 0
        self._records: deque[tuple[int, int]] = deque()
        self._ns: int | None = None

    def of(self, position: int) -> tuple[datetime | None, int | None]:
        """The moment of the byte at this position, and up to where others came then; positions must not go back."""
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


def last_position(path: str) -> int:
    """The position of the newest entry in an index of times."""
    try:
        with open(path, "rb") as file:
            whole = file.seek(0, os.SEEK_END) // INDEX_RECORD.size
            if whole == 0:
                return 0
            file.seek((whole - 1) * INDEX_RECORD.size)
            return int(INDEX_RECORD.unpack(file.read(INDEX_RECORD.size))[0])
    except FileNotFoundError:
        return 0


def _back_up(file: IO[bytes], newlines: int, end: int) -> int:
    """Stand behind so many newlines before the end of a file, or at its start; how many there were."""
    at, found = end, 0
    while at > 0:
        start = max(0, at - CHUNK)
        file.seek(start)
        data = file.read(at - start)
        newline = len(data)
        while (newline := data.rfind(b"\n", 0, newline)) >= 0:
            found += 1
            if found == newlines:
                file.seek(start + newline + 1)
                return found
        at = start
    file.seek(0)
    return found
