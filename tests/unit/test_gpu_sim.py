"""The simulated driver through the real binding, against the C library, and against an outside witness."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pynvml
import pytest

from runner.errors import OperatorError
from runner.gpu.nvml import open_session
from runner.gpu.sampler_client import SamplerClient
from runner.gpu.sim import state
from runner.gpu.sim.load import hold
from runner.gpu.sim.state import Claim
from runner.idle import hung_rule
from runner.model import GpuHealth, GpuProcess
from tests.fakes.faulty_driver import FaultyDriver
from tests.fakes.nvml import FakeNvml
from tests.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from runner.model import Gpu

    Simulate = Callable[[str], Callable[[], list[Gpu]]]


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulate]:
    """Put a simulated driver over a folder; gives what reads all its GPUs."""
    monkeypatch.setattr(pynvml, "nvmlLib", None)

    def start(folder: str) -> Callable[[], list[Gpu]]:
        session = open_session(FaultyDriver(folder))
        return lambda: [device.read().gpu for device in session.devices]

    yield start
    pynvml._nvmlGetFunctionPointer_cache.clear()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A state folder with two simulated GPUs of 24 GiB."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    state.build(state.folder_of(str(tmp_path)), "sim:2x24GiB")
    return str(tmp_path)


def test_idle_gpus(home: str, simulate: Simulate) -> None:
    first, second = simulate(state.folder_of(home))()
    assert (first.index, second.index) == (0, 1)
    assert first.uuid != second.uuid
    assert first.name == "Simulated 24GiB"
    assert (first.memory_total_mib, first.memory_reserved_mib, first.memory_used_mib) == (24576, 300, 0)
    assert (first.utilization, first.utilization_supported, first.compute_mode) == (0, True, 0)
    assert (first.temperature_c, first.power_w, first.power_limit_w) == (35, 25.0, 350.0)
    assert first.processes == ()
    assert first.health is GpuHealth.OK


def test_what_a_process_holds_is_seen_and_gone_with_it(home: str, simulate: Simulate) -> None:
    read = simulate(state.folder_of(home))
    with hold(memory_mib=8000, load=90, gpu=1, home=home) as held:
        with hold(memory_mib=1000, load=30, gpu=1, home=home):
            idle, busy = read()
            assert idle.memory_used_mib == 0
            assert (busy.memory_used_mib, busy.utilization) == (9000, 100)
            assert busy.processes == (GpuProcess(pid=os.getpid(), memory_mib=9000),)
            assert busy.power_w == 350.0
            assert busy.temperature_c == 75
        held.resize(500)
        assert read()[1].memory_used_mib == 500
    assert read()[1].memory_used_mib == 0


def test_what_only_spins_is_busy_and_draws_little(home: str, simulate: Simulate) -> None:
    read = simulate(state.folder_of(home))
    with hold(memory_mib=8000, load=90, gpu=0, home=home) as held:
        held.spin()
        spinning = read()[0]
        assert (spinning.utilization, spinning.memory_used_mib) == (100, 8000)
        assert spinning.power_w < hung_rule.SPINNING_POWER * spinning.power_limit_w


def test_sigkill_releases_memory_even_of_an_unreaped_process(home: str, simulate: Simulate) -> None:
    folder = state.folder_of(home)
    read = simulate(folder)
    child = subprocess.Popen(["sleep", "60"])
    try:
        started = state.start_time(child.pid)
        assert started is not None
        state.write_claim(folder, f"0.{child.pid}", Claim(child.pid, started, 5000, 50))
        assert read()[0].memory_used_mib == 5000
        child.send_signal(signal.SIGKILL)
        eventually(lambda: _state(child.pid) == "Z")
        gpu = read()[0]
        assert (gpu.memory_used_mib, gpu.utilization, gpu.processes) == (0, 0, ())
    finally:
        child.kill()
        child.wait()


def test_sigkill_releases_memory_in_the_c_library_too(tmp_path: Path) -> None:
    nvml = FakeNvml(tmp_path)
    nvml.add_gpu()
    child = subprocess.Popen(["sleep", "60"])
    try:
        nvml.hold(child.pid, 0, 5000)
        with SamplerClient(str(tmp_path), "auto", "--private", env={**os.environ, **nvml.env}) as sampler:
            assert sampler.sample().gpus[0].memory_used_mib == 5000
            child.send_signal(signal.SIGKILL)
            eventually(lambda: _state(child.pid) == "Z")
            assert sampler.sample().gpus[0].memory_used_mib == 0
    finally:
        child.kill()
        child.wait()


def test_the_old_form_of_memory_counts_reserved_as_used(home: str, simulate: Simulate) -> None:
    simulate(state.folder_of(home))
    old = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
    assert (old.used, old.total - old.free) == (300 << 20, 300 << 20)


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_a_pid_that_is_another_process_now_holds_nothing(home: str, simulate: Simulate) -> None:
    folder = state.folder_of(home)
    read = simulate(folder)
    state.write_claim(folder, f"0.{os.getpid()}", Claim(os.getpid(), 1, 5000, 50))
    assert read()[0].memory_used_mib == 0


def test_uuids_belong_to_the_folder(tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("a", "b")]
    for folder in folders:
        state.build(folder, "sim:2x24GiB+1x80GiB")
    first, second = ([card.uuid for card in state.cards(folder)] for folder in folders)
    assert len({*first, *second}) == 6
    state.build(folders[0], "sim:2x24GiB+1x80GiB")
    assert [card.uuid for card in state.cards(folders[0])] == first
    assert [card.total_mib for card in state.cards(folders[0])] == [24576, 24576, 81920]


def test_a_kind_may_have_the_name_of_a_type(tmp_path: Path) -> None:
    state.build(str(tmp_path), "sim:1x11GiB:GTX 1080 Ti+1x24GiB")
    assert [card.name for card in state.cards(str(tmp_path))] == ["Simulated GTX 1080 Ti", "Simulated 24GiB"]


@pytest.mark.parametrize(
    "spec", ["sim:", "sim:2", "sim:2x24GiB:", "sim:0x24GiB", "sim:2x24", "sim:2x24GiB+", "sim:ax24GiB", "sim:x"]
)
def test_a_bad_spec_is_answered_with_the_right_form(spec: str) -> None:
    with pytest.raises(OperatorError, match="sim:2x24GiB"):
        state.parse_spec(spec)


def test_there_is_a_most(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="64 is the most"):
        state.parse_spec("sim:65x24GiB")


def _nothing(_: FakeNvml) -> None:
    pass


def _processes(nvml: FakeNvml) -> None:
    nvml.hold(os.getpid(), 0, 5000, 40)
    nvml.hold(os.getppid(), 0, 1000, 80)
    nvml.hold(4711, 1, 3000, 10, elsewhere=True)


def _foreign(nvml: FakeNvml) -> None:
    _processes(nvml)
    nvml.fault(0, "processes", "foreign")
    nvml.fault(1, "process_memory", "na")


def _hidden(nvml: FakeNvml) -> None:
    _processes(nvml)
    nvml.fault(0, "processes", "hidden")
    nvml.fault(1, "processes", "na")


def _fields(nvml: FakeNvml) -> None:
    for what in ("utilization", "temperature", "power", "power_limit", "compute_mode", "mig"):
        nvml.fault(0, what, "na")
        nvml.fault(1, what, 999)


def _no_memory(nvml: FakeNvml) -> None:
    nvml.fault(0, "memory", "na")
    nvml.fault(1, "memory", 999)


def _modes(nvml: FakeNvml) -> None:
    nvml.fault(0, "compute_mode", "is 3")
    nvml.fault(1, "mig", "is 1")


def _lost(nvml: FakeNvml) -> None:
    nvml.fault(0, "lost")
    nvml.fault(1, "handle", 4)


@pytest.mark.parametrize("arrange", [_nothing, _processes, _foreign, _hidden, _fields, _no_memory, _modes, _lost])
def test_pure_python_says_what_c_says(
    tmp_path: Path,
    simulate: Simulate,
    arrange: Callable[[FakeNvml], None],
) -> None:
    nvml = FakeNvml(tmp_path)
    nvml.add_gpu()
    nvml.add_gpu(81920, 500, "Other GPU")
    arrange(nvml)
    simulated = simulate(str(nvml.folder))()
    with SamplerClient(str(tmp_path), "auto", "--private", env={**os.environ, **nvml.env}) as sampler:
        real = sampler.sample().gpus
    assert [replace(gpu, sampled_at=0.0) for gpu in simulated] == [replace(gpu, sampled_at=0.0) for gpu in real]


@pytest.mark.parametrize("arrange", [_processes, _fields])
def test_gpustat_reads_the_same_library(tmp_path: Path, arrange: Callable[[FakeNvml], None]) -> None:
    nvml = FakeNvml(tmp_path)
    nvml.add_gpu()
    nvml.add_gpu(81920, 500, "Other GPU")
    arrange(nvml)
    env = {**os.environ, **nvml.env}
    done = subprocess.run([sys.executable, "-m", "gpustat", "--json"], env=env, capture_output=True, check=True)
    witness = json.loads(done.stdout)["gpus"]
    with SamplerClient(str(tmp_path), "auto", "--private", env=env) as sampler:
        ours = sampler.sample().gpus
    assert [(g.uuid, g.name, g.memory_total_mib, g.memory_used_mib, g.utilization) for g in ours] == [
        (g["uuid"], g["name"], g["memory.total"], g["memory.used"], g["utilization.gpu"]) for g in witness
    ]
    ours_rounded = [(g.temperature_c, None if g.power_w is None else int(g.power_w)) for g in ours]
    assert ours_rounded == [(g["temperature.gpu"], g["power.draw"]) for g in witness]
    visible = {(p["pid"], p["gpu_memory_usage"]) for g in witness for p in g["processes"]}
    assert visible <= {(p.pid, p.memory_mib) for g in ours for p in g.processes or ()}
