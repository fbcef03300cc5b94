"""The simulated driver: an object with NVML's functions that replaces the C library.

The real binding runs on top of it: it looks functions up by name, passes ctypes values and reads error codes,
and works without C behind them. The functions here fill in the binding's structures field by field.
"""

# ruff: noqa: N802 - the names are NVML's
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from runner.gpu.sim import state

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.gpu.sim.state import Card

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
        return self._about_all(lambda: setattr(buffer, "value", DRIVER_VERSION))

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        """Return the number of GPUs."""
        return self._about_all(lambda: _set(count, len(self._cards)))

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        """Return the handle of the GPU with this index."""
        return self._hand_out(index.value, handle)

    def nvmlDeviceGetHandleByUUID(self, uuid: Any, handle: Any) -> int:
        """Return the handle of the GPU with this UUID."""
        index = next((card.index for card in self._cards.values() if card.uuid == uuid.value.decode()), None)
        return NOT_FOUND if index is None else self._hand_out(index, handle)

    def nvmlDeviceGetIndex(self, handle: Any, index: Any) -> int:
        """Return the index of a GPU."""
        return self._ask(handle, lambda card: _set(index, card.index))

    def nvmlDeviceGetUUID(self, handle: Any, buffer: Any, _size: Any) -> int:
        """Return the UUID of a GPU."""
        return self._ask(handle, lambda card: setattr(buffer, "value", card.uuid.encode()))

    def nvmlDeviceGetName(self, handle: Any, buffer: Any, _size: Any) -> int:
        """Return the name of a GPU."""
        return self._ask(handle, lambda card: setattr(buffer, "value", card.name.encode()))

    def nvmlDeviceGetMemoryInfo(self, handle: Any, info: Any) -> int:
        """Return memory in the old form, which counts reserved memory as used."""
        return self._ask(handle, lambda card: self._memory(card, info._obj, card.reserved_mib))

    def nvmlDeviceGetMemoryInfo_v2(self, handle: Any, info: Any) -> int:
        """Return memory with reserved memory listed apart."""

        def fill(card: Card) -> None:
            info._obj.reserved = card.reserved_mib * MIB
            self._memory(card, info._obj, 0)

        return self._ask(handle, fill)

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        """Return the utilization of a GPU in percent."""

        def fill(card: Card) -> None:
            rates._obj.gpu = load = self._load(card)
            rates._obj.memory = load // 2

        return self._ask(handle, fill)

    def nvmlDeviceGetTemperature(self, handle: Any, _sensor: Any, celsius: Any) -> int:
        """Return the temperature of a GPU, which rises with load."""
        return self._ask(handle, lambda card: _set(celsius, IDLE_C + 40 * self._load(card) // 100))

    def nvmlDeviceGetPowerUsage(self, handle: Any, milliwatts: Any) -> int:
        """Return the power draw of a GPU. It rises with load, but only a little if the load is a spinning kernel."""
        span = POWER_LIMIT_MW - IDLE_MW
        return self._ask(handle, lambda card: _set(milliwatts, IDLE_MW + span * self._work(card) // 100))

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, milliwatts: Any) -> int:
        """Return the power limit of a GPU."""
        return self._ask(handle, lambda _card: _set(milliwatts, POWER_LIMIT_MW))

    def nvmlDeviceGetComputeMode(self, handle: Any, mode: Any) -> int:
        """Return the compute mode of a GPU: the default one."""
        return self._ask(handle, lambda _card: _set(mode, 0))

    def nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> int:
        """Return whether MIG splits a GPU: it does not."""

        def fill(_card: Card) -> None:
            _set(current, 0)
            _set(pending, 0)

        return self._ask(handle, fill)

    def nvmlDeviceGetAddressingMode(self, handle: Any, mode: Any) -> int:
        """Return the addressing mode of a GPU: its own memory."""
        return self._ask(handle, lambda _card: _set(mode, 0))

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, table: Any) -> int:
        """List the processes on a GPU. As in NVML, a call without a table only returns the size it needs."""
        room = 0 if table is None else count._obj.value
        short = False

        def fill(card: Card) -> None:
            nonlocal short
            listed = self._listed(card)
            short = len(listed) > room
            for row, (pid, memory) in zip(table or (), listed, strict=False):
                row.pid, row.usedGpuMemory = pid, memory
            _set(count, len(listed))

        return self._ask(handle, fill) or (INSUFFICIENT_SIZE if short else SUCCESS)

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: Any, count: Any, _table: Any) -> int:
        """Return an empty list: a simulated GPU has no graphics processes."""
        return self._ask(handle, lambda _card: _set(count, 0))

    def nvmlDeviceGetProcessUtilization(self, handle: Any, table: Any, count: Any, _since: Any) -> int:
        """List the load of each process on a GPU. As in NVML, processes without load are not listed."""
        room = 0 if table is None else count._obj.value
        answer = SUCCESS

        def fill(card: Card) -> None:
            nonlocal answer
            listed = self._loads(card)
            answer = NOT_FOUND if not listed else INSUFFICIENT_SIZE if len(listed) > room else SUCCESS
            for row, (pid, load) in zip(table or (), listed, strict=False):
                row.pid, row.smUtil = pid, load
            _set(count, len(listed))

        return self._ask(handle, fill) or answer

    def _about_all(self, fill: Callable[[], None]) -> int:
        if not self._opened:
            return UNINITIALIZED
        fill()
        return SUCCESS

    def _hand_out(self, index: int, handle: Any) -> int:
        if not self._opened:
            return UNINITIALIZED
        if index not in self._cards:
            return INVALID_ARGUMENT
        ctypes.c_void_p.from_buffer(handle._obj).value = index + 1
        return SUCCESS

    def _ask(self, handle: Any, fill: Callable[[Card], None]) -> int:
        """Answer one query about one GPU."""
        if not self._opened:
            return UNINITIALIZED
        card = self._cards.get((ctypes.c_void_p.from_buffer(handle).value or 0) - 1)
        if card is None:
            return INVALID_ARGUMENT
        fill(card)
        return SUCCESS

    def _memory(self, card: Card, info: Any, hidden_mib: int) -> None:
        used_mib = sum(claim.memory_mib for claim in self._claims.on(card.index))
        info.total = card.total_mib * MIB
        info.free = max(0, card.total_mib - card.reserved_mib - used_mib) * MIB
        info.used = (used_mib + hidden_mib) * MIB

    def _load(self, card: Card) -> int:
        return min(100, sum(claim.utilization for claim in self._claims.on(card.index)))

    def _work(self, card: Card) -> int:
        done = sum(one.utilization * (SPINNING if one.spins else 1) for one in self._claims.on(card.index))
        return min(100, int(done))

    def _listed(self, card: Card) -> list[tuple[int, int]]:
        """Return PID and bytes of each process on a GPU."""
        held: dict[int, int] = {}
        for claim in self._claims.on(card.index):
            held[claim.pid] = held.get(claim.pid, 0) + claim.memory_mib * MIB
        return sorted(held.items())

    def _loads(self, card: Card) -> list[tuple[int, int]]:
        made: dict[int, int] = {}
        for claim in self._claims.on(card.index):
            made[claim.pid] = min(100, made.get(claim.pid, 0) + claim.utilization)
        return sorted((pid, load) for pid, load in made.items() if load)


def simulate(home: str, setting: str) -> SimulatedDriver:
    """Create the simulated GPUs of a setting such as `sim:2x24GiB` and return their driver."""
    folder = state.folder_of(home)
    state.build(folder, setting)
    return SimulatedDriver(folder)


def _set(pointer: Any, value: int) -> None:
    """Write a value through the pointer that the binding passed."""
    pointer._obj.value = value
