"""The simulated driver: an object with NVML's functions that replaces the C library.

The real binding runs on top of it: it looks functions up by name, passes ctypes values and reads error codes,
and works without C behind them. The functions here fill in the binding's structures field by field.
"""

# ruff: noqa: N802 - the names are NVML's
from __future__ import annotations

import ctypes
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from runner.gpu.sim import state

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.gpu.sim.state import Card, Claim

DRIVER_VERSION = b"570.00.01"

SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7

MIB = 1024 * 1024
POWER_LIMIT_MW = 350_000
IDLE_MW = 25_000
SPINNING = 0.15  # share of the power that real work adds; measured deadlocks drew 17 to 28 % of the limit
IDLE_C = 35


class SimulatedDriver:
    """NVML over a folder of text files. To the binding, a function that is not here is a missing symbol."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._claims = state.Claims(folder)
        self._cards: dict[int, Card] = {}
        self._opened = 0

    def nvmlInitWithFlags(self, _flags: Any) -> int:
        """Open the session."""
        self._cards = {card.index: card for card in state.cards(self._folder)}
        self._opened += 1
        return SUCCESS

    def nvmlShutdown(self) -> int:
        """Close the session."""
        if not self._opened:
            return UNINITIALIZED
        self._opened -= 1
        return SUCCESS

    def nvmlSystemGetDriverVersion(self, buffer: Any, _size: Any) -> int:
        """Return the version of the simulated driver."""
        if self._opened:
            buffer.value = DRIVER_VERSION
        return SUCCESS if self._opened else UNINITIALIZED

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        """Return the number of GPUs."""
        if self._opened:
            _set(count, len(self._cards))
        return SUCCESS if self._opened else UNINITIALIZED

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        """Return the handle of the GPU with this index."""
        return self._hand_out(index.value, handle)

    def nvmlDeviceGetHandleByUUID(self, uuid: Any, handle: Any) -> int:
        """Return the handle of the GPU with this UUID."""
        index = next((card.index for card in self._cards.values() if card.uuid == uuid.value.decode()), None)
        return NOT_FOUND if index is None else self._hand_out(index, handle)

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Return the query about one GPU with this name. Raise AttributeError if there is none."""
        if name not in _QUERIES:
            raise AttributeError(name)
        return partial(self._ask, _QUERIES[name])

    def _hand_out(self, index: int, handle: Any) -> int:
        if not self._opened:
            return UNINITIALIZED
        if index not in self._cards:
            return INVALID_ARGUMENT
        ctypes.c_void_p.from_buffer(handle._obj).value = index + 1
        return SUCCESS

    def _ask(self, query: Callable[..., int | None], handle: Any, *arguments: Any) -> int:
        """Answer one query about one GPU."""
        if not self._opened:
            return UNINITIALIZED
        card = self._cards.get((ctypes.c_void_p.from_buffer(handle).value or 0) - 1)
        if card is None:
            return INVALID_ARGUMENT
        return query(card, self._claims.on(card.index), *arguments) or SUCCESS


def _text(value: Callable[[Card], str]) -> Callable[..., None]:
    """Return a query that answers with a text of the GPU."""

    def answer(card: Card, _claims: list[Claim], buffer: Any, _size: Any) -> None:
        buffer.value = value(card).encode()

    return answer


def _number(value: Callable[[Card, list[Claim]], int]) -> Callable[..., None]:
    """Return a query that writes a number through the last of its arguments."""

    def answer(card: Card, claims: list[Claim], *arguments: Any) -> None:
        _set(arguments[-1], value(card, claims))

    return answer


def _load(_card: Card, claims: list[Claim]) -> int:
    return min(100, sum(claim.utilization for claim in claims))


def _power_mw(_card: Card, claims: list[Claim]) -> int:
    """Return the power draw. It rises with load, but only a little if the load is a spinning kernel."""
    work = int(sum(claim.utilization * (SPINNING if claim.spins else 1) for claim in claims))
    return IDLE_MW + (POWER_LIMIT_MW - IDLE_MW) * min(100, work) // 100


def _memory(card: Card, claims: list[Claim], info: Any) -> None:
    """Return memory in the old form, which counts reserved memory as used."""
    _memory_v2(card, claims, info)
    info._obj.used += card.reserved_mib * MIB


def _memory_v2(card: Card, claims: list[Claim], info: Any) -> None:
    """Return memory with reserved memory listed apart."""
    used_mib = sum(claim.memory_mib for claim in claims)
    info._obj.reserved = card.reserved_mib * MIB
    info._obj.total = card.total_mib * MIB
    info._obj.free = max(0, card.total_mib - card.reserved_mib - used_mib) * MIB
    info._obj.used = used_mib * MIB


def _utilization(card: Card, claims: list[Claim], rates: Any) -> None:
    rates._obj.gpu = load = _load(card, claims)
    rates._obj.memory = load // 2


def _mig_mode(_card: Card, _claims: list[Claim], current: Any, pending: Any) -> None:
    _set(current, 0)
    _set(pending, 0)


def _compute_processes(_card: Card, claims: list[Claim], count: Any, table: Any) -> int:
    """List the processes. As in NVML, a call without a table only returns the size it needs."""
    sizes: Counter[int] = Counter()
    for claim in claims:
        sizes[claim.pid] += claim.memory_mib * MIB
    return _fill(table, count, "usedGpuMemory", sizes)


def _graphics_processes(_card: Card, _claims: list[Claim], count: Any, _table: Any) -> None:
    _set(count, 0)


def _process_loads(_card: Card, claims: list[Claim], table: Any, count: Any, _since: Any) -> int:
    """List the load of each process. As in NVML, processes without load are not listed."""
    loads: Counter[int] = Counter()
    for claim in claims:
        loads[claim.pid] = min(100, loads[claim.pid] + claim.utilization)
    code = _fill(table, count, "smUtil", +loads)
    return code if +loads else NOT_FOUND


def _fill(table: Any, count: Any, column: str, values: Counter[int]) -> int:
    """Write one row for each PID, as far as the table has room. Return NVML's code."""
    room = 0 if table is None else count._obj.value
    for row, (pid, value) in zip(table or (), sorted(values.items()), strict=False):
        row.pid = pid
        setattr(row, column, value)
    _set(count, len(values))
    return INSUFFICIENT_SIZE if len(values) > room else SUCCESS


def _set(pointer: Any, value: int) -> None:
    """Write a value through the pointer that the binding passed."""
    pointer._obj.value = value


_QUERIES: dict[str, Callable[..., int | None]] = {
    "nvmlDeviceGetIndex": _number(lambda card, _: card.index),
    "nvmlDeviceGetUUID": _text(lambda card: card.uuid),
    "nvmlDeviceGetName": _text(lambda card: card.name),
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetMemoryInfo_v2": _memory_v2,
    "nvmlDeviceGetUtilizationRates": _utilization,
    "nvmlDeviceGetTemperature": _number(lambda card, claims: IDLE_C + 40 * _load(card, claims) // 100),
    "nvmlDeviceGetPowerUsage": _number(_power_mw),
    "nvmlDeviceGetEnforcedPowerLimit": _number(lambda *_: POWER_LIMIT_MW),
    "nvmlDeviceGetComputeMode": _number(lambda *_: 0),
    "nvmlDeviceGetMigMode": _mig_mode,
    "nvmlDeviceGetAddressingMode": _number(lambda *_: 0),
    "nvmlDeviceGetComputeRunningProcesses_v3": _compute_processes,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": _graphics_processes,
    "nvmlDeviceGetProcessUtilization": _process_loads,
}


def simulate(home: str, setting: str) -> SimulatedDriver:
    """Create the simulated GPUs of a setting such as `sim:2x24GiB` and return their driver."""
    folder = state.folder_of(home)
    state.build(folder, setting)
    return SimulatedDriver(folder)
