"""Reads a job's output back: head, a note about what was left out, tail."""

from __future__ import annotations

import contextlib
import math
import os
from typing import TYPE_CHECKING

from runner import rundir
from runner.supervisor.output import INDEX_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 1 << 20


class Log:
    """The output of one attempt, as far as it was kept."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def parts(self) -> Iterator[bytes]:
        """Yield the kept bytes in order, with a note where some were left out."""
        yield from self._file(rundir.OUTPUT)
        tails = self._tails()
        left_out = self.tail_position() - self._size(rundir.OUTPUT) if tails else 0
        if left_out > 0:
            yield f"\n[nightshift: {left_out} bytes of output were not kept here]\n".encode()
        for name in tails:
            yield from self._file(name)

    def read(self) -> bytes:
        """Return everything that was kept."""
        return b"".join(self.parts())

    def last_grew(self) -> float | None:
        """Return when the job last printed something, as Unix time; None if it printed nothing."""
        times = []
        for name in (rundir.OUTPUT, *rundir.TAILS):
            with contextlib.suppress(FileNotFoundError):
                stat = os.stat(self._path(name))
                times += [stat.st_mtime] if stat.st_size else []
        return max(times, default=None)

    def head(self, limit: int) -> bytes:
        """Return up to `limit` bytes from the beginning, at most 1 MiB."""
        return next(self._file(rundir.OUTPUT), b"")[:limit]

    def tail(self, limit: int) -> bytes:
        """Return up to `limit` bytes from the end."""
        end = b""
        for name in reversed([rundir.OUTPUT, *self._tails()]):
            with contextlib.suppress(FileNotFoundError), open(self._path(name), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - (limit - len(end))))
                end = file.read() + end
            if len(end) >= limit:
                break
        return end

    def stretches(self) -> list[tuple[int, int]]:
        """Return which stretches of the whole output are kept, as positions in it: one, or two with a gap between."""
        head, tails = self._size(rundir.OUTPUT), sum(map(self._size, rundir.TAILS))
        begin = self.tail_position() if tails else head
        return [(0, begin + tails)] if begin == head else [(0, head), (begin, begin + tails)]

    def between(self, begin: int, end: int) -> bytes:
        """Return what is kept of the whole output between two positions."""
        tails = self._tails()
        starts = {rundir.OUTPUT: 0} | ({tails[0]: self.tail_position()} if tails else {})
        at, kept = 0, b""
        for name in (rundir.OUTPUT, *tails):
            at = starts.get(name, at)
            with contextlib.suppress(FileNotFoundError), open(self._path(name), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                skipped = file.seek(max(begin - at, 0))
                kept += file.read(max(end - at - skipped, 0))
                at += size
        return kept

    def _tails(self) -> list[str]:
        """Return the names of the tail files that exist, older first."""
        return [name for name in rundir.TAILS if os.path.exists(self._path(name))]

    def tail_position(self) -> int:
        """Return where in the whole output the kept tail begins.

        While the job runs, the index of times says how many full tail files have been replaced.
        """
        head, full, newest = (self._size(name) for name in (rundir.OUTPUT, *rundir.TAILS))
        end = rundir.read_exit(self._folder)
        if end is not None:
            return end.output_bytes - full - newest
        if not full:
            return head
        full_tails = math.ceil((last_position(self._path(rundir.TIMES)) - head - newest) / full)
        return head + max(full_tails - 1, 0) * full

    def _size(self, name: str) -> int:
        with contextlib.suppress(FileNotFoundError):
            return os.path.getsize(self._path(name))
        return 0

    def _file(self, name: str) -> Iterator[bytes]:
        with contextlib.suppress(FileNotFoundError), open(self._path(name), "rb") as file:
            while piece := file.read(CHUNK):
                yield piece

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)


def last_position(path: str) -> int:
    """Return the position in the newest entry of an index of times; 0 if it has none."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        if records := file.seek(0, os.SEEK_END) // INDEX_RECORD.size:
            file.seek((records - 1) * INDEX_RECORD.size)
            return int(INDEX_RECORD.unpack(file.read(INDEX_RECORD.size))[0])
    return 0
