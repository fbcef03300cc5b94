"""The gateway's own judgement, over the simulated driver."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import pynvml
import pytest

from runner.gpu import nvml
from runner.gpu.nvml import open_session
from runner.gpu.nvml_errors import NvmlUnavailableError, about_device, cannot_open
from runner.gpu.sim import state
from runner.model import Gpu, GpuHealth
from tests.fakes.faulty_driver import FaultyDriver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    state.build(str(tmp_path), "sim:2x24GiB")
    yield str(tmp_path)
    pynvml._nvmlGetFunctionPointer_cache.clear()


def _faults(folder: str, text: str) -> None:
    state._write(f"{folder}/faults.conf", text)


def test_a_lost_gpu_keeps_what_it_is_and_comes_back(folder: str) -> None:
    first, second = open_session(FaultyDriver(folder)).devices
    before = first.read().gpu
    _faults(folder, "0 lost\n")
    lost, broken = first.read()
    assert (lost.uuid, lost.index, lost.name, lost.memory_total_mib) == (before.uuid, 0, "Simulated 24GiB", 24576)
    assert (lost.health, lost.memory_used_mib, lost.utilization, lost.processes) == (GpuHealth.LOST, None, None, None)
    assert not broken
    assert second.read().gpu.health is GpuHealth.OK
    _faults(folder, "")
    assert first.read().gpu.health is GpuHealth.OK


def test_a_gpu_lost_from_the_start_is_known_from_before_or_has_no_uuid(folder: str) -> None:
    _faults(folder, "0 lost\n1 code 999\n")
    known = Gpu(index=0, uuid="GPU-known", name="Known", memory_total_mib=1)
    first, second = open_session(FaultyDriver(folder), {0: known}).devices
    lost = first.read().gpu
    assert (lost.health, lost.uuid, lost.name, lost.memory_total_mib) == (GpuHealth.LOST, "GPU-known", "Known", 1)
    unknown = second.read()
    assert (unknown.gpu.health, unknown.gpu.uuid, unknown.broken) == (GpuHealth.UNKNOWN, "unknown-1", True)
    _faults(folder, "")
    assert first.read().gpu.uuid == state.cards(folder)[0].uuid, "what the driver says wins over memory"
    assert second.read().gpu.uuid == state.cards(folder)[1].uuid


def test_one_failing_query_hides_nothing_else(folder: str) -> None:
    device = open_session(FaultyDriver(folder)).devices[0]
    for what in ("utilization", "temperature", "power", "power_limit", "compute_mode", "mig", "processes", "name"):
        _faults(folder, f"0 {what} 999\n")
        gpu, broken = device.read()
        assert (gpu.health, gpu.memory_used_mib, broken) == (GpuHealth.OK, 0, False), what
        assert gpu.utilization_supported


@pytest.mark.parametrize(
    "error", [pynvml.NVMLLibraryMismatchError("old"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")]
)
def test_not_every_failure_is_an_nvml_error(folder: str, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(_: object) -> None:
        raise error

    device = open_session(FaultyDriver(folder)).devices[0]
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses_v3", fail)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", fail)
    gpu = device.read().gpu
    assert (gpu.health, gpu.processes, gpu.name, gpu.memory_used_mib) == (GpuHealth.OK, None, None, 0)


@pytest.mark.parametrize("code", [15, 16])
def test_any_query_may_be_the_one_that_tells_it_is_lost(folder: str, code: int) -> None:
    device = open_session(FaultyDriver(folder)).devices[0]
    _faults(folder, f"0 temperature {code}\n")
    assert device.read().gpu.health is GpuHealth.LOST


def test_memory_that_fails_makes_the_gpu_unknown_but_not_the_rest(folder: str) -> None:
    device = open_session(FaultyDriver(folder)).devices[0]
    device.read()
    _faults(folder, "0 memory 999\n")
    gpu, broken = device.read()
    assert (gpu.health, gpu.detail) == (GpuHealth.UNKNOWN, "does not tell its memory (Unknown Error)")
    assert (gpu.memory_used_mib, gpu.memory_total_mib, gpu.temperature_c, broken) == (None, 24576, 35, False)


def test_not_supported_utilisation_is_for_ever_and_a_failure_is_not(folder: str) -> None:
    device = open_session(FaultyDriver(folder)).devices[0]
    _faults(folder, "0 utilization na\n")
    assert not device.read().gpu.utilization_supported
    _faults(folder, "0 utilization 10\n")
    gpu = device.read().gpu
    assert gpu.utilization_supported
    assert gpu.utilization is None


def test_a_split_gpu_is_listed_and_not_supported(folder: str) -> None:
    _faults(folder, "0 mig is 1\n")
    gpu = open_session(FaultyDriver(folder)).devices[0].read().gpu
    assert gpu.health is GpuHealth.UNSUPPORTED
    assert "MIG" in str(gpu.detail)


def test_a_driver_without_gpus_is_an_operators_error(folder: str) -> None:
    state._write(f"{folder}/gpus.conf", "")
    with pytest.raises(NvmlUnavailableError, match="lists no GPU"):
        open_session(FaultyDriver(folder))


@pytest.mark.parametrize("code", [4, 9, 12, 17, 18, 999, 3])
def test_a_driver_that_does_not_open_says_so(folder: str, code: int) -> None:
    _faults(folder, f"all init {code}\n")
    with pytest.raises(NvmlUnavailableError) as caught:
        open_session(FaultyDriver(folder))
    assert caught.value.code == code
    assert caught.value.exit_code == 2
    _faults(folder, "")
    assert len(open_session(FaultyDriver(folder)).devices) == 2


@pytest.mark.parametrize(
    ("code", "way_out"),
    [
        (12, "install the driver"),
        (9, "modprobe nvidia"),
        (18, "reboot needed"),
        (4, "/dev/nvidia"),
        (17, "device rules"),
        (999, "container must be recreated"),
        (3, "nvidia-smi"),
    ],
)
def test_every_failure_to_open_names_the_way_out(code: int, way_out: str) -> None:
    assert way_out in str(cannot_open(code, "text"))


def test_a_gpu_says_what_is_wrong_with_it() -> None:
    assert "fell off the bus" in about_device(15, "")
    assert about_device(None, "Function Not Found") == "does not answer (Function Not Found)"


@pytest.mark.parametrize("missing", ["_nvmlGetFunctionPointer", "nvmlMemory_v2"])
def test_a_namesake_of_the_binding_is_refused(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    names = {name: value for name, value in vars(pynvml).items() if name != missing}
    namesake: Any = types.ModuleType("pynvml")
    vars(namesake).update(names)
    monkeypatch.setattr(nvml, "pynvml", namesake)
    with pytest.raises(NvmlUnavailableError, match="pip uninstall"):
        open_session()


def test_no_binding_at_all_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "pynvml", None)
    with pytest.raises(NvmlUnavailableError, match="nvidia-ml-py"):
        open_session()


@pytest.mark.parametrize(
    ("driver", "trusted"),
    [("535.43.02", False), ("535.86.10", False), ("535.104.05", True), ("570.00.01", True), (None, True), ("x", True)],
)
def test_scrambled_process_lists_are_not_read(driver: str | None, trusted: bool) -> None:
    assert nvml._processes_trusted(driver) is trusted


def test_the_binding_still_has_the_places_we_use() -> None:
    assert {"nvmlLib", "_nvmlGetFunctionPointer_cache", "NVMLLibraryMismatchError"} <= vars(pynvml).keys()
    assert not issubclass(pynvml.NVMLLibraryMismatchError, pynvml.NVMLError)


def test_a_gpu_without_memory_of_its_own_is_known_by_how_it_finds_memory(folder: str) -> None:
    first, second = open_session(FaultyDriver(folder)).devices
    _faults(folder, "0 memory na\n0 addressing_mode is 2\n1 memory na\n")
    unified, odd = first.read().gpu, second.read().gpu
    assert (unified.unified, unified.health, unified.memory_total_mib) == (True, GpuHealth.OK, None)
    assert not odd.unified
    _faults(folder, "0 addressing_mode is 2\n")
    assert first.read().gpu.memory_used_mib == 0, "one that tells its memory has some"


@pytest.mark.parametrize(
    ("name", "unified"),
    [
        ("NVIDIA GB10", True), ("Orin (nvgpu)", True), ("NVIDIA Thor", True), ("NVIDIA Tegra X1", True),
        ("NVIDIA GB100", False), ("NVIDIA GH200 480GB", False), ("NVIDIA GeForce RTX 4090", False),
    ],
)  # fmt: skip
def test_or_by_its_family(folder: str, name: str, unified: bool) -> None:
    card = state.cards(folder)[0]
    state._write(f"{folder}/gpus.conf", f"0 {card.uuid} 24576 300 {name}\n")
    (device,) = open_session(FaultyDriver(folder)).devices
    gpu = device.read().gpu
    assert (gpu.name, gpu.unified, gpu.memory_used_mib) == (name, unified, None if unified else 0)
