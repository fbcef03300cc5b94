"""Writes the job's output to disk: all of it up to a limit, then only head and tail, with an index of times."""

from __future__ import annotations

import contextlib
import os
import struct
import time

from runner import rundir

INDEX_RECORD = struct.Struct("<QQ")  # position in the job's whole output, nanoseconds since 1970
INDEX_STEP_NS = 1_000_000
INDEX_ROUGHER_EVERY = 1 << 16  # records; then the step between records grows fourfold


class OutputWriter:
    """Takes what the job prints. If the disk is full, output is lost but the job goes on."""

    def __init__(self, folder: str, limit: int, tail_limit: int) -> None:
        self._folder, self._limit, self._tail_limit = folder, limit, tail_limit
        self._file: int | None = None  # opened when the job prints for the first time
        self._index: int | None = None
        self._tail: int | None = None
        self._tail_size = self._indexed_at_ns = self._index_size = 0
        self._index_step_ns = INDEX_STEP_NS
        self.bytes = self.dropped_bytes = 0

    def append(self, data: bytes) -> None:
        """Add the next part of the output."""
        if not self.bytes:
            self._file, self._index = self._open(rundir.OUTPUT), self._open(rundir.TIMES)
        self._note_time()
        head = data[: max(0, self._limit - self.bytes)]
        self.bytes += len(data)
        if head:
            self._write(self._file, head)
        if rest := data[len(head) :]:
            self._append_to_tail(rest)

    def close(self) -> None:
        """Close the files."""
        for file in (self._file, self._index, self._tail):
            if file is not None:
                os.close(file)

    def _append_to_tail(self, data: bytes) -> None:
        while data:
            if self._tail is None or self._tail_size >= self._tail_limit:
                self._turn()
            room = self._tail_limit - self._tail_size
            part, data = data[:room], data[room:]
            self._tail_size += len(part)
            self._write(self._tail, part)

    def _turn(self) -> None:
        """Start a new tail file. The full one replaces the older tail file, whose content is lost."""
        older, newer = (os.path.join(self._folder, name) for name in rundir.TAILS)
        if self._tail is not None:
            os.close(self._tail)
            with contextlib.suppress(OSError):
                os.rename(newer, older)
        self._tail = self._open(rundir.TAILS[1])
        self._tail_size = 0

    def _note_time(self) -> None:
        now = time.time_ns()
        if abs(now - self._indexed_at_ns) >= self._index_step_ns:
            self._indexed_at_ns = now
            self._index_size += 1
            if self._index_size % INDEX_ROUGHER_EVERY == 0:
                self._index_step_ns *= 4
            self._write(self._index, INDEX_RECORD.pack(self.bytes, now), counted=False)

    def _open(self, name: str) -> int | None:
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC
        try:
            return os.open(os.path.join(self._folder, name), flags, 0o600)
        except OSError:
            return None

    def _write(self, file: int | None, data: bytes, *, counted: bool = True) -> None:
        written = 0
        with contextlib.suppress(OSError):  # disk full or folder gone: the rest of this part is lost and counted
            while file is not None and written < len(data):
                written += os.write(file, data[written:])
        if counted:
            self.dropped_bytes += len(data) - written
