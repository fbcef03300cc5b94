"""The gateway to NVML: the only module that calls the binding. One session stays open and is read GPU by GPU.

Each query can fail by itself: its value is then None. A lost GPU is reported as lost and stays in the list.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.gpu import nvml_errors
from runner.gpu.inventory import unidentified, unread
from runner.gpu.nvml_errors import NvmlUnavailableError
from runner.model import Gpu, GpuHealth, GpuProcess

try:
    import pynvml
except ImportError:
    pynvml = None

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

MIB = 1024 * 1024
_NEEDED = ("_nvmlGetFunctionPointer", "nvmlMemory_v2", "nvmlDeviceGetComputeRunningProcesses_v3")

_GONE = frozenset({nvml_errors.GPU_IS_LOST, nvml_errors.RESET_REQUIRED})
RECENT_S = 5.0  # the driver keeps a process' load for a few sampling periods of up to a second
INITIAL_PID_NAMESPACE = 0xEFFFFFFC
ADDRESSING_BY_HOST = 2  # NVML's ATS
_INTEGRATED = re.compile(r"\b(?:Tegra|Xavier|Orin|Thor|GB10|nvgpu)\b")
# These drivers return scrambled process lists with every binding we accept.
_SCRAMBLED_FROM, _SCRAMBLED_TO = (535, 43), (535, 86)


class DeviceReading(NamedTuple):
    """One reading of one GPU."""

    gpu: Gpu
    broken: bool  # no query was answered although the GPU is not lost: the session may be broken


class Session:
    """An open NVML session. Its devices are useless once it is closed."""

    def __init__(self, driver: str | None, devices: list[Device]) -> None:
        self.driver = driver
        self.devices = devices

    def close(self) -> None:
        """Shut NVML down and ignore errors."""
        _close()


def open_session(simulated: object | None = None, seen: Mapping[int, Gpu] | None = None) -> Session:
    """Open NVML, over the simulated driver if one is given.

    `seen` are the GPUs known from before, by index: a GPU that is lost now keeps its UUID and name.
    Raises NvmlUnavailableError, which says how to fix it.
    """
    if not all(hasattr(pynvml, name) for name in _NEEDED):
        raise NvmlUnavailableError(nvml_errors.WRONG_BINDING)
    if simulated is not None and pynvml.nvmlLib is not simulated:
        pynvml.nvmlLib = simulated
        pynvml._nvmlGetFunctionPointer_cache.clear()
    try:
        pynvml.nvmlInit()
    except _failures() as error:
        raise nvml_errors.cannot_open(_code(error) or 0, str(error)) from error
    driver = _driver_version()
    local = simulated is not None or _pids_are_local()
    return Session(driver, [Device(i, (seen or {}).get(i), driver, local) for i in range(_count())])


class Device:
    """One GPU of a session. Gets its handle when it is needed, and a new one after a failure."""

    def __init__(
        self, index: int, seen: Gpu | None = None, driver: str | None = None, pids_are_local: bool = False
    ) -> None:
        self.index = index
        self._pids_are_local = pids_are_local
        self.last = seen or unidentified(index)
        self._handle: Any = None
        self._confirmed = False  # the UUID was read in this session, not just remembered from before
        self._processes_trusted = _processes_trusted(driver)

    def read(self) -> DeviceReading:
        """Read everything. Driver errors are part of the result, not raised. Blocks as long as the driver does."""
        at = time.monotonic()
        try:
            if self._handle is None:
                self._acquire()
            self.last = self._read(at)
        except _failures() as error:
            self._handle = None
            return self._failed(error, at)
        return DeviceReading(self.last, broken=False)

    def _acquire(self) -> None:
        """Get the handle: by index the first time, later by UUID, because only that identifies a GPU."""
        if self._confirmed:
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(self.last.uuid)
            return
        handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        if uuid != self.last.uuid:
            self.last = Gpu(index=self.index, uuid=uuid)
        self._handle, self._confirmed = handle, True

    def _read(self, at: float) -> Gpu:
        """Return the GPU as it is now. Raise only if it is lost or answers no query at all."""
        ask = _Queries(self._handle)
        memory = ask("memory", _memory)
        name = self.last.name or ask("name", pynvml.nvmlDeviceGetName)
        unified = _is_unified(ask, name)
        memory = None if unified else memory
        rates = ask("utilization", pynvml.nvmlDeviceGetUtilizationRates)
        mig = ask("mig", pynvml.nvmlDeviceGetMigMode)
        gpu = Gpu(
            index=self.index,
            uuid=self.last.uuid,
            name=name,
            memory_total_mib=memory.total // MIB if memory else None if unified else self.last.memory_total_mib,
            unified=unified,
            memory_reserved_mib=_mib(getattr(memory, "reserved", None)),
            memory_used_mib=_mib(getattr(memory, "used", None)),
            utilization=rates.gpu if rates else None,
            utilization_supported=ask.code_of("utilization") != nvml_errors.NOT_SUPPORTED,
            temperature_c=ask("temperature", pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            power_w=_watts(ask("power", pynvml.nvmlDeviceGetPowerUsage)),
            power_limit_w=_watts(ask("power_limit", pynvml.nvmlDeviceGetEnforcedPowerLimit)),
            compute_mode=ask("compute_mode", pynvml.nvmlDeviceGetComputeMode),
            processes=_processes(ask, self._pids_are_local) if self._processes_trusted else None,
            sampled_at=at,
        )
        ask.raise_if_nothing_was_answered()
        return _judged(gpu, ask, split=bool(mig and mig[0] == 1))

    def _failed(self, error: Exception, at: float) -> DeviceReading:
        lost = _code(error) in _GONE
        health = GpuHealth.LOST if lost else GpuHealth.UNKNOWN
        gpu = unread(self.last, health, nvml_errors.about_device(_code(error), str(error)))
        return DeviceReading(replace(gpu, sampled_at=at), broken=not lost)


class _Queries:
    """Queries about one GPU. Each can fail by itself."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._answered = 0
        self.failures: dict[str, Exception] = {}

    def __call__(self, what: str, query: Callable[..., Any], *arguments: Any) -> Any:
        """Return the answer. On failure, record the error and return None; raise it only if the GPU is lost."""
        try:
            answer = query(self._handle, *arguments)
        except _failures() as error:
            if _code(error) in _GONE:
                raise
            self.failures[what] = error
            return None
        self._answered += 1
        return answer

    def code_of(self, what: str) -> int | None:
        """Return the error code of a query; None if it did not fail."""
        return _code(self.failures[what]) if what in self.failures else None

    def raise_if_nothing_was_answered(self) -> None:
        """Raise the error of the memory query if no query was answered."""
        if not self._answered:
            raise self.failures["memory"]


def _judged(gpu: Gpu, ask: _Queries, *, split: bool) -> Gpu:
    """Return the GPU with its health: unsupported if MIG splits it, unknown if its memory cannot be read."""
    if split:
        detail = "is split by MIG, which is not scheduled; `nvidia-smi -mig 0` joins it again"
        return replace(gpu, health=GpuHealth.UNSUPPORTED, detail=detail)
    failure = ask.failures.get("memory")
    if failure and ask.code_of("memory") != nvml_errors.NOT_SUPPORTED:
        return replace(gpu, health=GpuHealth.UNKNOWN, detail=f"does not tell its memory ({failure})")
    return gpu


def _is_unified(ask: _Queries, name: str | None) -> bool:
    """Return whether a GPU has no memory of its own and uses the host's.

    It does if its name says so, or if the driver reports no memory for it and it uses the host's page tables. A Grace
    Hopper uses them too, but has memory of its own and reports it.
    """
    if _INTEGRATED.search(name or ""):
        return True
    query = getattr(pynvml, "nvmlDeviceGetAddressingMode", None)  # some bindings and drivers do not have it
    if query is None or ask.code_of("memory") != nvml_errors.NOT_SUPPORTED:
        return False
    return bool(ask("addressing_mode", query) == ADDRESSING_BY_HOST)


def _memory(handle: Any) -> Any:
    """Return the memory info with reserved memory listed apart, or the old form if the driver is too old."""
    return _newest_known(
        lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2),
        lambda: pynvml.nvmlDeviceGetMemoryInfo(handle),
    )


def _list(handle: Any, kind: str) -> Any:
    """Return one of the driver's process lists (Compute or Graphics), in the newest version it knows."""
    query = f"nvmlDeviceGet{kind}RunningProcesses"
    return _newest_known(lambda: getattr(pynvml, f"{query}_v3")(handle), lambda: getattr(pynvml, f"{query}_v2")(handle))


def _newest_known(newest: Callable[[], Any], older: Callable[[], Any]) -> Any:
    """Return the answer to the newest form of a query, or to the older one if the driver does not know the newest."""
    try:
        return newest()
    except pynvml.NVMLError as error:
        if _code(error) not in (nvml_errors.FUNCTION_NOT_FOUND, nvml_errors.ARGUMENT_VERSION_MISMATCH):
            raise
    return older()


def _processes(ask: _Queries, pids_are_local: bool) -> tuple[GpuProcess, ...] | None:
    """Return the processes on the GPU, each one once; None if the driver does not list them."""
    compute = ask("processes", _list, "Compute")
    if compute is None:
        return None
    held: dict[int, int | None] = {}
    for process in [*compute, *(ask("graphics", _list, "Graphics") or ())]:
        sizes = [size for size in (held.get(process.pid), process.usedGpuMemory) if size is not None]
        held[process.pid] = max(sizes, default=None)
    loads = ask("process_utilization", _loads, held) if pids_are_local and len(held) > 1 else None
    return tuple(
        GpuProcess(pid=pid, memory_mib=_mib(size), utilization=loads[pid] if loads is not None else None)
        for pid, size in sorted(held.items())
    )


def _loads(handle: Any, pids: Collection[int]) -> dict[int, int | None]:
    """Return each process' highest load of the last seconds, in percent; None if the driver's value is invalid.

    The driver does not list processes without load: theirs is 0.
    """
    try:
        samples = pynvml.nvmlDeviceGetProcessUtilization(handle, int((time.time() - RECENT_S) * 1e6))
    except pynvml.NVMLError as error:
        # the binding raises SUCCESS for an empty list
        if _code(error) not in (nvml_errors.SUCCESS, nvml_errors.NOT_FOUND):
            raise
        samples = []
    loads = dict.fromkeys(pids, 0)
    for sample in samples:
        loads[sample.pid] = max(loads.get(sample.pid, 0), sample.smUtil)
    return {pid: load if load <= 100 else None for pid, load in loads.items()}  # drivers may report junk


def _pids_are_local() -> bool:
    """Return whether we see the same PIDs as the driver, which always reports those of the host."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == INITIAL_PID_NAMESPACE
    except OSError:
        return False


def _count() -> int:
    """Return how many GPUs the session has. Close it and raise if there are none or the count cannot be read."""
    try:
        count = int(pynvml.nvmlDeviceGetCount())
    except _failures() as error:
        _close()
        raise nvml_errors.cannot_open(_code(error) or 0, str(error)) from error
    if not count:
        _close()
        raise NvmlUnavailableError(nvml_errors.NO_GPUS)
    return count


def _close() -> None:
    with contextlib.suppress(*_failures()):
        pynvml.nvmlShutdown()


def _driver_version() -> str | None:
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    except _failures():
        return None


def _processes_trusted(driver: str | None) -> bool:
    numbers = (driver or "").split(".")
    if len(numbers) < 2 or not (numbers[0].isdigit() and numbers[1].isdigit()):
        return True
    return not _SCRAMBLED_FROM <= (int(numbers[0]), int(numbers[1])) <= _SCRAMBLED_TO


def _failures() -> tuple[type[Exception], ...]:
    """Return all exceptions the binding may raise: a library mismatch is no NVMLError, and a name may not be UTF-8."""
    return (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError, UnicodeDecodeError)


def _code(error: Exception) -> int | None:
    return getattr(error, "value", None)


def _mib(size: int | None) -> int | None:
    return None if size is None else size // MIB


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else round(milliwatts / 1000, 1)
