"""The sampler process over a driver that fails in every way a driver is known to fail."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from runner.errors import OperatorError
from runner.gpu.published import FILE, read_published
from runner.gpu.sampler_client import SamplerClient
from runner.gpu.sim.state import start_time
from runner.model import GpuHealth
from runner.processes.interpreter import python_command
from tests.fakes.nvml import FakeNvml
from tests.wait import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from runner.model import Gpu, Snapshot

    Start = Callable[..., SamplerClient]

QUICK = ("--period-s", "0.1", "--retry-s", "0.1")


class Sampler(SamplerClient):
    """With the patience that a busy machine asks for."""

    def until(self, holds: Callable[[Snapshot], bool], timeout_s: float = 40.0) -> Snapshot:
        return super().until(holds, max(timeout_s, 40.0))


@pytest.fixture
def nvml(tmp_path: Path) -> FakeNvml:
    """Two GPUs."""
    fake = FakeNvml(tmp_path)
    fake.add_gpu()
    fake.add_gpu(81920, name="Other GPU")
    return fake


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts samplers and ends them."""
    clients: list[SamplerClient] = []

    def begin(nvml: FakeNvml, *flags: str, gpus: str = "auto", **env: str) -> SamplerClient:
        environ = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
        clients.append(Sampler(str(tmp_path), gpus, *QUICK, *flags, env={**environ, **nvml.env, **env}))
        return clients[-1]

    yield begin
    for client in clients:
        client.close()


def _healths(snapshot: Snapshot) -> list[str]:
    return [gpu.health.value for gpu in snapshot.gpus]


def _exit_code(sampler: SamplerClient) -> int:
    return sampler.process.wait(timeout=60)


# -- the conversation --------------------------------------------------------------------------------------------


def test_a_request_is_answered_with_a_reading_taken_after_it(nvml: FakeNvml, start: Start) -> None:
    sampler = start(nvml, "--period-s", "3600")
    for mib in (0, 1000, 0, 2000):
        nvml.hold(os.getpid(), 0, mib)
        asked_at = time.monotonic()
        snapshot = sampler.sample()
        assert snapshot.gpus[0].memory_used_mib == mib
        assert all(gpu.sampled_at >= asked_at for gpu in snapshot.gpus)
    assert (snapshot.driver, snapshot.simulated, snapshot.trouble) == ("570.00.01", False, None)


def test_every_request_is_answered_even_when_they_come_at_once(nvml: FakeNvml, start: Start) -> None:
    sampler = start(nvml, "--period-s", "3600")
    sampler.tell("nonsense\nsample x\nsample 7\nsample 8\nperiod never\nsample 9")
    answered: list[int] = []
    sampler.until(lambda s: answered.append(s.answers) or s.answers == 9)  # type: ignore[func-returns-value,arg-type]
    assert [number for number in answered if number is not None] == [7, 8, 9]


def test_unasked_snapshots_come_at_the_period_and_are_published(nvml: FakeNvml, start: Start, tmp_path: Path) -> None:
    sampler = start(nvml, "--period-s", "3600")
    sampler.sample()
    sampler.tell("period 0.1")
    nvml.hold(os.getpid(), 1, 4321)
    snapshot = sampler.until(lambda s: s.answers is None and s.gpus[1].memory_used_mib == 4321)
    published = eventually(lambda: _published(tmp_path, snapshot.gpus[1].sampled_at))
    assert published.gpus[1].memory_used_mib == 4321
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def _published(home: Path, since: float) -> Snapshot | None:
    read = read_published(str(home))
    assert read is None or read[1] < 10
    return read[0] if read and read[0].gpus[1].sampled_at >= since else None


def test_the_end_of_stdin_is_the_end_even_while_the_driver_blocks(nvml: FakeNvml, start: Start) -> None:
    sampler = start(nvml, "--answer-s", "0.2")
    sampler.sample()
    nvml.block(0)
    sampler.until(lambda s: s.gpus[1].sampled_at > s.gpus[0].sampled_at + 0.2)
    assert sampler.process.stdin is not None
    sampler.process.stdin.close()
    assert _exit_code(sampler) == 0


def test_a_runner_that_dies_takes_its_sampler_along_even_if_its_pipe_lives(nvml: FakeNvml, tmp_path: Path) -> None:
    """A process forked from the runner may hold the other end of stdin open."""
    command = [*python_command("runner.gpu.sampler", str(tmp_path), "auto"), *QUICK]
    runner = (
        f"import subprocess; print(subprocess.Popen({command!r}, stdout=subprocess.DEVNULL).pid, flush=True); input()"
    )
    read_end, write_end = os.pipe()
    try:
        with subprocess.Popen(
            [sys.executable, "-c", runner], stdin=read_end, stdout=subprocess.PIPE, env={**os.environ, **nvml.env}
        ) as parent:
            assert parent.stdout is not None
            sampler = int(parent.stdout.readline())
            eventually((tmp_path / FILE).exists)
            parent.kill()
        eventually(lambda: start_time(sampler) is None)
    finally:
        os.close(read_end)
        os.close(write_end)


def test_a_private_sampler_publishes_nothing(nvml: FakeNvml, start: Start, tmp_path: Path) -> None:
    start(nvml, "--private").sample()
    assert not (tmp_path / FILE).exists()


def test_a_reader_that_stalls_loses_only_what_it_did_not_ask_for(nvml: FakeNvml, start: Start, tmp_path: Path) -> None:
    sampler = start(nvml, "--period-s", "0.05")
    assert sampler.process.stdout is not None
    fcntl.fcntl(sampler.process.stdout, fcntl.F_SETPIPE_SZ, 8192)
    stalled_at = sampler.sample().gpus[0].sampled_at
    assert eventually(lambda: _published(tmp_path, stalled_at + 1.0))
    assert sampler.sample().trouble is None


# -- one GPU -----------------------------------------------------------------------------------------------------


def test_one_gpu_lost_and_back(nvml: FakeNvml, start: Start) -> None:
    sampler = start(nvml)
    before = sampler.sample().gpus[1]
    nvml.fault(1, "lost")
    snapshot = sampler.sample()
    lost = snapshot.gpus[1]
    assert _healths(snapshot) == ["ok", "lost"]
    assert snapshot.trouble is None
    assert (lost.uuid, lost.index, lost.name) == (before.uuid, 1, "Other GPU")
    assert (lost.memory_used_mib, lost.utilization) == (None, None)
    nvml.clear()
    assert _healths(sampler.sample()) == ["ok", "ok"]


def test_a_gpu_lost_from_the_start_is_known_from_the_last_sampler(nvml: FakeNvml, start: Start) -> None:
    first = start(nvml)
    uuid = first.sample().gpus[1].uuid
    first.close()
    nvml.fault(1, "lost")
    (well, lost) = start(nvml).sample().gpus
    assert (well.health, lost.health, lost.uuid) == (GpuHealth.OK, GpuHealth.LOST, uuid)


@pytest.mark.parametrize("code", [999, 4])
def test_one_gpu_whose_handle_cannot_be_had(nvml: FakeNvml, start: Start, code: int) -> None:
    nvml.fault(0, "handle", code)
    sampler = start(nvml)
    snapshot = sampler.sample()
    assert _healths(snapshot) == ["unknown", "ok"]
    assert snapshot.trouble is None
    nvml.clear()
    assert _healths(sampler.sample()) == ["ok", "ok"]


def test_a_gpu_the_driver_lists_no_more_stays_known(nvml: FakeNvml, start: Start, tmp_path: Path) -> None:
    """The driver died and came back with one GPU less, and the other under a new index."""
    sampler = start(nvml)
    gone, stays = (gpu.uuid for gpu in sampler.sample().gpus)
    nvml.fault("all", "code", 999)
    sampler.until(lambda s: s.trouble is not None)
    (nvml.folder / "gpus.conf").write_text(f"0 {stays} 81920 300 Other GPU\n")
    nvml.clear()
    snapshot = sampler.until(lambda s: s.trouble is None)
    by_uuid = {gpu.uuid: gpu for gpu in snapshot.gpus}
    assert (by_uuid[stays].health, by_uuid[stays].index) == (GpuHealth.OK, 0)
    assert (by_uuid[gone].health, by_uuid[gone].detail) == (GpuHealth.UNKNOWN, "is not listed by the driver any more")


def test_a_blocked_gpu_does_not_hold_the_other(nvml: FakeNvml, start: Start) -> None:
    sampler = start(nvml, "--slow-s", "0.8", "--answer-s", "1.0")
    before = sampler.sample().gpus[1]
    nvml.block(1)
    asked_at = time.monotonic()
    first = sampler.sample()
    assert first.gpus[0].sampled_at >= asked_at > first.gpus[1].sampled_at
    silent = sampler.until(lambda s: s.gpus[1].health is GpuHealth.UNKNOWN)
    assert str(silent.gpus[1].detail).startswith("has not answered for ")
    assert (silent.gpus[1].uuid, silent.gpus[1].memory_used_mib) == (before.uuid, None)
    assert silent.trouble is None
    for mib in (100, 200):
        nvml.hold(os.getpid(), 0, mib)
        snapshot = sampler.until(lambda s, mib=mib: s.gpus[0].memory_used_mib == mib)
        assert _healths(snapshot) == ["ok", "unknown"]
        assert snapshot.gpus[1].sampled_at == silent.gpus[1].sampled_at
    nvml.clear()
    back = sampler.until(lambda s: s.gpus[1].health is GpuHealth.OK)
    assert back.gpus[1].sampled_at > silent.gpus[1].sampled_at


def test_a_gpu_blocked_from_the_start_does_not_hold_the_other(nvml: FakeNvml, start: Start) -> None:
    nvml.block(1)
    snapshot = start(nvml, "--patience-s", "0.3").until(lambda s: bool(s.gpus) and s.gpus[0].health is GpuHealth.OK)
    assert _healths(snapshot) == ["ok", "unknown"]


def test_a_slow_start_is_waited_for(nvml: FakeNvml, start: Start) -> None:
    """Without persistence mode a GPU takes seconds to wake: no snapshot before it has told who it is."""
    nvml.block(1)
    sampler = start(nvml)
    assert sampler.snapshot(0.7) is None
    nvml.clear()
    first = sampler.until(lambda _: True)
    assert _healths(first) == ["ok", "ok"]


# -- what cannot be read -----------------------------------------------------------------------------------------


def test_fields_that_are_not_supported(nvml: FakeNvml, start: Start) -> None:
    nvml.hold(os.getpid(), 0, 5000, 70)
    for what in ("utilization", "temperature", "power", "power_limit", "compute_mode", "mig", "processes"):
        nvml.fault(0, what, "na")
    poor, rich = start(nvml).sample().gpus
    assert (poor.health, poor.memory_used_mib, poor.utilization_supported) == (GpuHealth.OK, 5000, False)
    fields = ("utilization", "temperature_c", "power_w", "power_limit_w", "compute_mode", "processes")
    assert [getattr(poor, name) for name in fields] == [None] * 6
    assert None not in [getattr(rich, name) for name in fields]


def test_processes_of_another_namespace(nvml: FakeNvml, start: Start) -> None:
    nvml.hold(os.getpid(), 0, 5000)
    nvml.fault(0, "processes", "foreign")
    nvml.hold(os.getpid(), 1, 5000)
    nvml.fault(1, "process_memory", "na")
    first, second = start(nvml).sample().gpus
    assert [(p.pid, p.memory_mib) for p in first.processes or ()] == [(os.getpid() + 4_000_000, 5000)]
    assert [(p.pid, p.memory_mib) for p in second.processes or ()] == [(os.getpid(), None)]


@pytest.mark.parametrize(("driver", "listed"), [("old", False), ("r470", True)])
def test_an_old_driver(tmp_path: Path, start: Start, driver: str, listed: bool) -> None:
    nvml = FakeNvml(tmp_path, driver)
    nvml.add_gpu()
    nvml.hold(os.getpid(), 0, 5000, 30)
    (gpu,) = start(nvml).sample().gpus
    assert (gpu.health, gpu.utilization, gpu.memory_total_mib) == (GpuHealth.OK, 30, 24576)
    assert (gpu.memory_reserved_mib, gpu.memory_used_mib) == (None, 5300), "the old form counts reserved as used"
    assert (gpu.processes is not None) == listed


def test_a_driver_that_scrambles_its_process_list(nvml: FakeNvml, start: Start) -> None:
    nvml.hold(os.getpid(), 0, 5000)
    nvml.fault("all", "driver", "535.54.03")
    snapshot = start(nvml).sample()
    assert (snapshot.driver, snapshot.gpus[0].processes, snapshot.gpus[0].memory_used_mib) == ("535.54.03", None, 5000)


# -- the driver as a whole ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [999, 1, 9])
def test_all_calls_fail_and_work_again(nvml: FakeNvml, start: Start, code: int) -> None:
    sampler = start(nvml)
    before = sampler.sample()
    nvml.fault("all", "code", code)
    dead = sampler.until(lambda s: s.trouble is not None)
    assert _healths(dead) == ["unknown", "unknown"]
    assert [gpu.uuid for gpu in dead.gpus] == [gpu.uuid for gpu in before.gpus]
    assert [gpu.memory_used_mib for gpu in dead.gpus] == [None, None]
    assert sampler.sample().trouble, "requests are answered meanwhile"
    nvml.hold(os.getpid(), 0, 777)
    nvml.clear()
    back = sampler.until(lambda s: s.trouble is None)
    assert _healths(back) == ["ok", "ok"]
    assert back.gpus[0].memory_used_mib == 777


def test_a_driver_that_opens_but_answers_nothing_never_looks_well(nvml: FakeNvml, start: Start) -> None:
    sampler = start(nvml)
    sampler.sample()
    for gpu in (0, 1):
        nvml.fault(gpu, "code", 999)
    sampler.until(lambda s: s.trouble is not None)
    for _ in range(5):
        snapshot = sampler.sample()
        assert snapshot.trouble
        assert _healths(snapshot) == ["unknown", "unknown"]
    nvml.clear()
    sampler.until(lambda s: s.trouble is None and _healths(s) == ["ok", "ok"])


@pytest.mark.parametrize(
    ("code", "way_out"),
    [(9, "modprobe"), (18, "reboot needed"), (999, "container must be recreated"), (4, "/dev/nvidia")],
)
def test_a_driver_that_does_not_open_is_fatal_at_the_start(
    nvml: FakeNvml, start: Start, code: int, way_out: str
) -> None:
    nvml.fault("all", "init", code)
    sampler = start(nvml)
    with pytest.raises(OperatorError, match=way_out):
        sampler.sample()
    assert _exit_code(sampler) == 2


def test_no_library_is_fatal_at_the_start(nvml: FakeNvml, start: Start, tmp_path: Path) -> None:
    sampler = start(nvml, LD_LIBRARY_PATH=str(tmp_path))
    with pytest.raises(OperatorError, match=r"libnvidia-ml.so.1 was not found|not loaded"):
        sampler.snapshot(40)
    assert _exit_code(sampler) == 2


@pytest.mark.parametrize("gpus", ["0,5", "GPU-nothing", "sim:2x"])
def test_gpus_that_are_not_there_are_fatal_at_the_start(nvml: FakeNvml, start: Start, gpus: str) -> None:
    sampler = start(nvml, gpus=gpus)
    with pytest.raises(OperatorError):
        sampler.sample()
    assert _exit_code(sampler) == 2


def test_a_restarted_sampler_waits_for_the_driver(nvml: FakeNvml, start: Start) -> None:
    first = start(nvml)
    before = first.sample()
    first.close()
    nvml.fault("all", "init", 9)
    sampler = start(nvml, "--wait-for-driver")
    waiting = sampler.sample()
    assert "modprobe" in str(waiting.trouble)
    assert _healths(waiting) == ["unknown", "unknown"]
    assert [gpu.uuid for gpu in waiting.gpus] == [gpu.uuid for gpu in before.gpus]
    assert [gpu.sampled_at for gpu in waiting.gpus] <= [gpu.sampled_at + 1 for gpu in before.gpus]
    nvml.clear()
    assert _healths(sampler.until(lambda s: s.trouble is None)) == ["ok", "ok"]


def test_a_driver_that_blocks_while_it_opens_is_told(nvml: FakeNvml, start: Start) -> None:
    first = start(nvml)
    first.sample()
    first.close()
    nvml.block("all")
    sampler = start(nvml, "--wait-for-driver", "--answer-s", "0.2")
    waiting = sampler.sample()
    assert "has not answered" in str(waiting.trouble)
    assert _healths(waiting) == ["unknown", "unknown"]
    nvml.clear()
    assert _healths(sampler.until(lambda s: s.trouble is None)) == ["ok", "ok"]


def test_a_driver_upgraded_on_disk_holds_new_starts(nvml: FakeNvml, start: Start) -> None:
    sampler = start(nvml, "--library-check-s", "0.1")
    assert sampler.sample().trouble is None
    nvml.replace_library(build=2)  # this session goes on, new processes cannot open one
    held = sampler.until(lambda s: s.trouble is not None)
    assert "reboot needed" in str(held.trouble)
    assert _healths(held) == ["ok", "ok"], "what runs is still seen"
    nvml.replace_library(build=1)
    sampler.until(lambda s: s.trouble is None)


def test_an_upgrade_that_fits_is_no_trouble(nvml: FakeNvml, start: Start) -> None:
    sampler = start(nvml, "--library-check-s", "0.1")
    sampler.sample()
    nvml.replace_library()
    seen_at = time.monotonic()
    well = sampler.until(lambda s: bool(s.trouble) or s.gpus[0].sampled_at > seen_at + 1)
    assert well.trouble is None


def test_a_library_too_old_for_the_driver_asks_for_a_new_process(nvml: FakeNvml, start: Start) -> None:
    """After an upgrade and a reload the loaded library fails for ever, and the new one on disk works."""
    sampler = start(nvml)
    sampler.sample()
    nvml.replace_library(build=2)
    nvml.fault("all", "loaded", 2)
    assert _exit_code(sampler) == 3
    assert _healths(start(nvml, "--wait-for-driver").sample()) == ["ok", "ok"]


# -- which GPUs --------------------------------------------------------------------------------------------------


def _indices(gpus: tuple[Gpu, ...]) -> list[int]:
    return [gpu.index for gpu in gpus]


def test_only_the_chosen_gpus_are_read(nvml: FakeNvml, start: Start) -> None:
    uuid = start(nvml, "--private").sample().gpus[1].uuid
    assert _indices(start(nvml, gpus="1").sample().gpus) == [1]
    assert _indices(start(nvml, gpus=uuid[:12]).sample().gpus) == [1]
    assert _indices(start(nvml, CUDA_VISIBLE_DEVICES=uuid).sample().gpus) == [1]
    assert _indices(start(nvml, CUDA_VISIBLE_DEVICES="0").sample().gpus) == [0]


def test_the_choice_outlives_the_session_even_if_indices_move(nvml: FakeNvml, start: Start) -> None:
    sampler = start(nvml, gpus="1")
    (chosen,) = sampler.sample().gpus
    nvml.fault("all", "code", 999)
    sampler.until(lambda s: s.trouble is not None)
    (nvml.folder / "gpus.conf").write_text(f"0 {chosen.uuid} 81920 300 Other GPU\n1 GPU-third 24576 300 Fake GPU\n")
    nvml.clear()
    back = sampler.until(lambda s: s.trouble is None)
    assert [(gpu.uuid, gpu.index, gpu.health) for gpu in back.gpus] == [(chosen.uuid, 0, GpuHealth.OK)]


def test_ctrl_c_is_not_for_the_sampler(nvml: FakeNvml, start: Start) -> None:
    sampler = start(nvml)
    sampler.sample()
    sampler.process.send_signal(signal.SIGINT)
    assert sampler.sample().trouble is None


def test_simulated_gpus_need_no_library(nvml: FakeNvml, start: Start, tmp_path: Path) -> None:
    sampler = start(nvml, gpus="sim:3x80GiB", LD_LIBRARY_PATH="")
    snapshot = sampler.sample()
    assert snapshot.simulated
    assert [gpu.memory_total_mib for gpu in snapshot.gpus] == [81920] * 3
    assert json.loads((tmp_path / FILE).read_text())["simulated"]
