"""The simulated driver with faults, which it reads from `faults.conf` beside the simulated GPUs.

`with_faults` makes a process start its samplers with this driver. Each line of the file is `<gpu|all> <what> [value]`:

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

import ctypes
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.gpu import sampler_client
from runner.gpu.sim import state
from runner.gpu.sim.driver import SimulatedDriver
from runner.gpu.sim.state import SETTLED_NS
from runner.processes.interpreter import python_command

if TYPE_CHECKING:
    from collections.abc import Callable

FAULTS = "faults.conf"
FOREIGN_PID_OFFSET = 4_000_000
NOT_AVAILABLE = 2**64 - 1

NOT_SUPPORTED = 3
GPU_IS_LOST = 15

INSUFFICIENT_SIZE = 7
QUERIES = {
    "nvmlDeviceGetIndex": "index",
    "nvmlDeviceGetUUID": "uuid",
    "nvmlDeviceGetName": "name",
    "nvmlDeviceGetMemoryInfo": "memory",
    "nvmlDeviceGetMemoryInfo_v2": "memory",
    "nvmlDeviceGetUtilizationRates": "utilization",
    "nvmlDeviceGetTemperature": "temperature",
    "nvmlDeviceGetPowerUsage": "power",
    "nvmlDeviceGetEnforcedPowerLimit": "power_limit",
    "nvmlDeviceGetComputeMode": "compute_mode",
    "nvmlDeviceGetMigMode": "mig",
    "nvmlDeviceGetAddressingMode": "addressing_mode",
    "nvmlDeviceGetComputeRunningProcesses_v3": "processes",
    "nvmlDeviceGetGraphicsRunningProcesses_v3": "processes",
    "nvmlDeviceGetProcessUtilization": "process_utilization",
}

_ALL = "all"
_LOOK_AGAIN_S = 0.02


class _FaultLines(NamedTuple):
    stamp: tuple[int, int, int] | None
    lines: dict[tuple[str, str], str]


class Faults:
    """The faults in the file now."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, FAULTS)
        self._seen = _FaultLines(None, {})

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
            self._seen = _FaultLines(stamp, {(r[0], r[1]): r[2].strip() if len(r) > 2 else "" for r in rows})
        return self._seen.lines


class FaultyDriver:
    """The simulated driver, as far as the faults let it answer."""

    def __init__(self, folder: str) -> None:
        self._driver = SimulatedDriver(folder)
        self._faults = Faults(folder)

    def __getattr__(self, name: str) -> Callable[..., int]:
        """A function of NVML, as the binding looks it up."""
        return partial(self._call, name, getattr(self._driver, name))

    def _call(self, name: str, function: Callable[..., int], *arguments: Any) -> int:
        if name == "nvmlShutdown":
            return function()
        if not name.startswith("nvmlDevice") or name == "nvmlDeviceGetCount_v2":
            return self._faults.session(opening=name.startswith("nvmlInit")) or function(*arguments)
        if name.startswith("nvmlDeviceGetHandleBy"):
            return function(*arguments) or self._faults.device(_index(arguments[-1]._obj), "handle")
        index, what = _index(arguments[0]), QUERIES[name]
        code = self._faults.device(index, what) or function(*arguments)
        if what in ("compute_mode", "mig", "addressing_mode") and not code:
            arguments[1]._obj.value = self._faults.answer(index, what, arguments[1]._obj.value)
        if what == "processes":
            return self._processes(index, code, *arguments[1:])
        if what == "process_utilization" and not code:
            self._shift_pids(index, arguments[2]._obj.value, arguments[1])
        return code

    def _processes(self, index: int, code: int, count: Any, table: Any) -> int:
        if code not in (0, INSUFFICIENT_SIZE) or table is None:
            return code
        if self._faults.says(index, "processes", "hidden"):
            count._obj.value = 0
            return 0
        if not code:
            self._shift_pids(index, count._obj.value, table)
            if self._faults.says(index, "process_memory", "na"):
                for row in table[: count._obj.value]:
                    row.usedGpuMemory = NOT_AVAILABLE
        return code

    def _shift_pids(self, index: int, count: int, table: Any) -> None:
        if self._faults.says(index, "processes", "foreign"):
            for row in table[:count]:
                row.pid += FOREIGN_PID_OFFSET


def _index(handle: Any) -> int:
    return (ctypes.c_void_p.from_buffer(handle).value or 0) - 1


def with_faults() -> None:
    """From now on, start samplers whose simulated driver has faults."""
    sampler_client.python_command = faulty_command


def faulty_command(module: str, *arguments: str) -> list[str]:
    return python_command(__name__ if module == "runner.gpu.sampler" else module, *arguments)


def simulate(home: str, setting: str) -> FaultyDriver:
    state.build(state.folder_of(home), setting)
    return FaultyDriver(state.folder_of(home))


def main(argv: list[str]) -> None:
    """Be a sampler."""
    from runner.gpu import sampler

    sampler.simulate = simulate
    sampler.main(argv)
