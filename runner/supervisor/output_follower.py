"""Reads on in a job's output while it is written: our own files, and a log file that the job writes itself."""

from __future__ import annotations

import bisect
import contextlib
import os
import stat
import time
from typing import TYPE_CHECKING, Any

from runner import rundir
from runner.processes import linux
from runner.supervisor.output import INDEX_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CHUNK = 1 << 20
MOST_AT_ONCE = 16 << 20  # then other jobs are read first
LATE_S = 3.0  # output that was read later than this gets its times from the index
BLOCK_NS = 1_000_000_000


class GrowingFile:
    """One file that something else writes. Follows its path if the file is replaced or begins again."""

    def __init__(self, *paths: str, inode: int = 0, offset: int = 0) -> None:
        """Read the last of these paths; the others are names that an older file may have by now."""
        self._paths, self.inode, self.offset = paths, inode, offset
        self._file: int | None = None

    def read_on(self) -> Iterator[bytes]:
        """Yield what was written since the last call."""
        while self._file is not None or self._open():
            assert self._file is not None
            replaced = self._is_replaced()  # asked first: what was written before that is read below
            while piece := os.pread(self._file, CHUNK, self.offset):
                self.offset += len(piece)
                yield piece
            if os.fstat(self._file).st_size < self.offset:
                self.offset = 0
            elif not replaced:
                return
            else:
                self.close()
                self.inode = self.offset = 0

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _is_replaced(self) -> bool:
        with contextlib.suppress(OSError):
            return os.stat(self._paths[-1]).st_ino != self.inode
        return False

    def _open(self) -> bool:
        """Open the file that was read last; without one, the oldest under our names."""
        found = {os.stat(path).st_ino: path for path in self._paths if os.path.isfile(path)}
        if not found:
            return False
        inode = self.inode if self.inode in found else next(iter(found))
        try:
            self._file = os.open(found[inode], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:
            return False
        opened = os.fstat(self._file)
        if not stat.S_ISREG(opened.st_mode):
            self.close()
            return False
        if opened.st_ino != self.inode:
            self.inode, self.offset = opened.st_ino, 0
        return True


class OutputFollower:
    """The output of one attempt, in blocks with the time when each was written, on the monotonic clock."""

    def __init__(self, folder: str, state: Mapping[str, Any] | None = None) -> None:
        places = (state or {}).get("places", {})
        head, *tails = (os.path.join(folder, name) for name in (rundir.OUTPUT, *rundir.TAILS))
        self._head = GrowingFile(head, **places.get("head", {}))
        self._tail = GrowingFile(*tails, **places.get("tail", {}))
        self._own: GrowingFile | None = None
        self._times = os.path.join(folder, rundir.TIMES)
        self._read_at = 0.0  # so that the first times come from the index
        self.has_more = False
        self.own_path: str | None = None
        if state and state.get("own_path"):
            self.follow_file(state["own_path"], **places["own"])

    def follow_file(self, path: str, inode: int = 0, offset: int = 0) -> None:
        """Read this file too, from here on."""
        self.own_path, self._own = path, GrowingFile(path, inode=inode, offset=offset)

    @property
    def is_silent(self) -> bool:
        """Return whether nothing was read yet."""
        return not self._head.offset and not self.has_own

    @property
    def has_own(self) -> bool:
        """Return whether anything was read from the file that the job writes itself."""
        return bool(self._own and self._own.offset)

    def blocks(self) -> Iterator[tuple[bytes, float]]:
        """Yield what was written since the last call."""
        now, left = time.monotonic(), MOST_AT_ONCE
        late = now - self._read_at > LATE_S
        self._read_at, self.has_more = now, False
        begins = self._head.offset
        for piece in self._head.read_on():
            yield from self._timed(piece, begins, now) if late else [(piece, now)]
            begins += len(piece)
            left -= len(piece)
            if left < 0:
                self._read_at, self.has_more = 0.0, True
                return
        for file in (self._tail, self._own):
            for piece in file.read_on() if file else ():
                yield piece, now

    def to_state(self) -> dict[str, Any]:
        """Return all that another follower needs to go on."""
        files = {"head": self._head, "tail": self._tail, "own": self._own}
        places = {name: {"inode": one.inode, "offset": one.offset} for name, one in files.items() if one}
        return {"places": places, "own_path": self.own_path}

    def close(self) -> None:
        """Close all files."""
        for file in (self._head, self._tail, self._own):
            if file:
                file.close()

    def _timed(self, piece: bytes, begins: int, now: float) -> Iterator[tuple[bytes, float]]:
        """Yield the piece cut by the second in which each part was written."""
        with contextlib.suppress(OSError), open(self._times, "rb") as file:
            index = list(INDEX_RECORD.iter_unpack(_whole_records(file.read())))
            first = max(bisect.bisect_right(index, (begins, 1 << 63)) - 1, 0)
            since_boot = now - time.time()
            at, from_ns = begins, index[first][1] if index else 0
            for position, written_ns in index[first + 1 :]:
                if position > begins + len(piece):
                    break
                if position > at and written_ns - from_ns >= BLOCK_NS:
                    yield piece[at - begins : position - begins], min(from_ns / 1e9 + since_boot, now)
                    at, from_ns = position, written_ns
            if index:
                piece, now = piece[at - begins :], min(from_ns / 1e9 + since_boot, now)
        yield piece, now


def _whole_records(data: bytes) -> bytes:
    return data[: len(data) - len(data) % INDEX_RECORD.size]


def redirected_to(supervisor: int, folder: str) -> tuple[str, int] | None:
    """Return the file that a job prints to instead of to us, and where its own output begins; None if it has none."""
    for pid in linux.descendants(supervisor):
        for descriptor in (1, 2):
            with contextlib.suppress(OSError, ValueError):
                path = os.readlink(f"/proc/{pid}/fd/{descriptor}")
                found = os.stat(path)
                info = linux.read(f"/proc/{pid}/fdinfo/{descriptor}").split()
                flags = int(info[info.index(b"flags:") + 1], 8)
                if stat.S_ISREG(found.st_mode) and flags & os.O_ACCMODE and not path.startswith(folder):
                    return path, found.st_size if flags & os.O_APPEND else 0
    return None
