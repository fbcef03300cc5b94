"""Reads a job's output back: head, a note about what was left out, tail, and the time of each line."""

from __future__ import annotations

import contextlib
import os
from datetime import datetime, timezone
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

    def parts(self) -> Iterator[tuple[int, bytes]]:
        """Yield the kept bytes in order, each part with its position in the whole output.

        While the job runs and has filled a tail file, the position of the tail is unknown and given too low.
        """
        position = 0
        for piece in self._file(rundir.OUTPUT):
            yield position, piece
            position += len(piece)
        tails = self._tails()
        if not tails:
            return
        left_out = self._tail_position(tails) - position
        if left_out > 0:
            note = f"\n[nightshift: {left_out} bytes of output were not kept here]\n"
            yield position, note.encode()
            position += left_out
        for name in tails:
            for piece in self._file(name):
                yield position, piece
                position += len(piece)

    def read(self) -> bytes:
        """Return everything that was kept."""
        return b"".join(piece for _, piece in self.parts())

    def last_grew(self) -> float | None:
        """Return when the job last printed something, as Unix time; None if it printed nothing."""
        times = []
        for name in (rundir.OUTPUT, *rundir.TAILS):
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(self._path(name))
                times += [found.st_mtime] if found.st_size else []
        return max(times, default=None)

    def head(self, limit: int) -> bytes:
        """Return up to `limit` bytes from the beginning, at most 1 MiB."""
        return next(self._file(rundir.OUTPUT), b"")[:limit]

    def tail(self, limit: int) -> bytes:
        """Return up to `limit` bytes from the end."""
        found = b""
        for name in reversed([rundir.OUTPUT, *self._tails()]):
            path = os.path.join(self._folder, name)
            try:
                with open(path, "rb") as file:
                    size = file.seek(0, os.SEEK_END)
                    file.seek(max(0, size - (limit - len(found))))
                    found = file.read() + found
            except FileNotFoundError:
                continue
            if len(found) >= limit:
                break
        return found

    def lines_with_times(self) -> Iterator[tuple[datetime | None, bytes]]:
        """Yield each line with the time its first byte came; None if that is unknown."""
        index = self._index()
        step, when = 0, None
        line, line_at = b"", 0
        for position, piece in self.parts():
            if not line:
                line_at = position
            for part in piece.splitlines(keepends=True):
                line += part
                if not part.endswith((b"\n", b"\r")):
                    continue
                while step < len(index) and index[step][0] <= line_at:
                    when = index[step][1]
                    step += 1
                yield when, line
                line_at += len(line)
                line = b""
        if line:
            while step < len(index) and index[step][0] <= line_at:
                when = index[step][1]
                step += 1
            yield when, line

    def _index(self) -> list[tuple[int, datetime]]:
        data = b"".join(self._file(rundir.TIMES))
        whole = data[: len(data) - len(data) % INDEX_RECORD.size]
        return [(at, datetime.fromtimestamp(ns / 1e9, timezone.utc)) for at, ns in INDEX_RECORD.iter_unpack(whole)]

    def _tails(self) -> list[str]:
        """Return the names of the tail files that exist, older first."""
        return [name for name in rundir.TAILS if os.path.exists(self._path(name))]

    def _tail_position(self, tails: list[str]) -> int:
        """Return where in the whole output the kept tail begins; -1 if unknown, while a job with two tails runs."""
        end = rundir.read(self._folder, rundir.EXIT)
        kept = sum(os.path.getsize(self._path(name)) for name in tails)
        if end is not None:
            return int(end["output_bytes"]) - kept
        return os.path.getsize(self._path(rundir.OUTPUT)) if len(tails) == 1 else -1

    def _file(self, name: str) -> Iterator[bytes]:
        try:
            with open(self._path(name), "rb") as file:
                while piece := file.read(CHUNK):
                    yield piece
        except FileNotFoundError:
            return

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)
