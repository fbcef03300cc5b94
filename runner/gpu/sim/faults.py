"""Faults of simulated GPUs, read from `faults.conf`, so that tests can make a driver misbehave.

Each line is `<gpu|all> <what> [value]`:

    1 lost                    GPU 1 fell off the bus: every call about it fails with that code
    1 code 999                every call about it fails with this NVML code
    1 handle 999              only getting its handle fails
    1 temperature na          one query is not supported; with a number in place of `na` it fails with that code
                              (also uuid, name, memory, utilization, power, power_limit, compute_mode, mig,
                              processes, process_utilization)
    1 compute_mode is 3       a query returns this value (compute_mode, mig, addressing_mode)
    1 processes hidden        the process list is always empty
    1 processes foreign       the process list has PIDs of another namespace
    1 process_memory na       the process list does not say how much memory each one holds
    1 block                   calls about it block until this line is removed; with `all`, every call
    all code 999              every call fails with this code, opening the session too
    all init 18               only opening the session fails
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from runner.gpu.sim.state import SETTLED_NS

FAULTS = "faults.conf"
FOREIGN_PID_OFFSET = 4_000_000

NOT_SUPPORTED = 3
GPU_IS_LOST = 15

_ALL = "all"
_LOOK_AGAIN_S = 0.02


class _Seen(NamedTuple):
    stamp: tuple[int, int, int] | None
    lines: dict[tuple[str, str], str]


class Faults:
    """The faults in the file now."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, FAULTS)
        self._seen = _Seen(None, {})

    def session(self, *, opening: bool = False) -> int:
        """Return the code that a call about no particular GPU fails with; 0 if it does not fail. May block."""
        lines = self._unblocked(_ALL)
        failing = lines.get((_ALL, "code")) or (lines.get((_ALL, "init")) if opening else None)
        return int(failing) if failing else 0

    def device(self, index: int, what: str) -> int:
        """Return the code that a query about a GPU fails with; 0 if it does not fail. May block."""
        gpu = str(index)
        lines = self._unblocked(gpu)
        if (gpu, "lost") in lines:
            return GPU_IS_LOST
        word = lines.get((_ALL, "code")) or lines.get((gpu, "code")) or lines.get((gpu, what)) or ""
        return NOT_SUPPORTED if word == "na" else int(word) if word.isdigit() else 0

    def answer(self, index: int, what: str, usual: int) -> int:
        """Return what a query answers: the value from an `is` line, or the usual one."""
        word, _, value = self._lines().get((str(index), what), "").partition(" ")
        return int(value) if word == "is" else usual

    def says(self, index: int, what: str, word: str) -> bool:
        """Return whether there is a line with exactly this word."""
        return self._lines().get((str(index), what)) == word

    def _unblocked(self, gpu: str) -> dict[tuple[str, str], str]:
        """Wait until no line blocks this GPU, and return the lines."""
        while (gpu, "block") in (lines := self._lines()) or (_ALL, "block") in lines:
            time.sleep(_LOOK_AGAIN_S)
        return lines

    def _lines(self) -> dict[tuple[str, str], str]:
        try:
            stat = os.stat(self._path)
        except FileNotFoundError:
            return {}
        stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        if self._seen.stamp != stamp or time.time_ns() - stat.st_mtime_ns < SETTLED_NS:
            with open(self._path, encoding="utf-8") as file:
                rows = [line.split(maxsplit=2) for line in file if line.strip()]
            self._seen = _Seen(stamp, {(r[0], r[1]): r[2].strip() if len(r) > 2 else "" for r in rows})
        return self._seen.lines
