"""Whose load it is on a GPU that several use: by the driver's word, or unknown."""

import os
from types import SimpleNamespace

import pytest

from runner.gpu import nvml
from runner.gpu.attribution import own_load
from runner.gpu.sim.load import Hold
from runner.gpu.sim.state import Claim, cards, folder_of, write_claim
from runner.model import Gpu, GpuProcess
from tests.fakes.faulty_driver import simulate

OWN = {10, 11}


def on_gpu(utilization, **loads):
    processes = tuple(
        GpuProcess(pid=int(pid[1:]), utilization=load, of="1.1.aa" if int(pid[1:]) in OWN else None)
        for pid, load in loads.items()
    )
    return Gpu(index=0, uuid="GPU-a", utilization=utilization, processes=processes)


@pytest.mark.parametrize(
    ("gpu", "load"),
    [
        (on_gpu(90, p10=0, p20=90), 0),
        (on_gpu(90, p10=85, p20=0), 85),
        (on_gpu(95, p10=40, p11=30, p20=25), 70),
        (on_gpu(100, p10=80, p11=80, p20=90), 100),
        (on_gpu(90, p10=0, p20=83), 0),  # about all of it is told
        (on_gpu(90, p10=0, p20=40), None),  # the rest of it may be ours
        (on_gpu(90, p10=0, p20=0), None),
        (on_gpu(90, p20=90), None),  # none of ours is named: perhaps under another number
        (on_gpu(90, p10=None, p20=90), None),
        (on_gpu(90, p10=0, p20=None), None),
        (on_gpu(None, p10=0, p20=90), None),
        (on_gpu(0, p10=0, p20=0), 0),
        (on_gpu(90), None),
        (Gpu(index=0, uuid="GPU-a", utilization=90, processes=None), None),
    ],
)
def test_own_load(gpu, load):
    assert own_load(gpu, "1.1.aa") == load


@pytest.fixture
def read(tmp_path):
    """Read a simulated GPU on which we are at 0 % and another process at 90 %."""
    session = nvml.open_session(simulate(str(tmp_path), "sim:1x24GiB"))
    folder = folder_of(str(tmp_path))
    with Hold(folder, cards(folder), 1000, 0):
        write_claim(folder, "0.1", Claim(1, 0, 2000, 90))
        yield lambda: {one.pid: one.utilization for one in session.devices[0].read().gpu.processes}
    session.close()


def test_who_does_nothing_is_not_in_the_drivers_list_and_is_at_zero(read):
    assert read() == {1: 90, os.getpid(): 0}


@pytest.mark.parametrize("fault", ["process_utilization na", "process_utilization 999"])
def test_where_the_driver_does_not_tell_nothing_is_known(read, tmp_path, fault):
    (tmp_path / "sim" / "faults.conf").write_text(f"0 {fault}\n")
    assert read() == {1: None, os.getpid(): None}


def test_rubbish_is_not_a_load(read, monkeypatch):
    sample = SimpleNamespace(pid=1, smUtil=4_294_967_295)
    monkeypatch.setattr(nvml.pynvml, "nvmlDeviceGetProcessUtilization", lambda *_: [sample])
    assert read() == {1: None, os.getpid(): 0}


def test_in_another_pid_namespace_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(nvml, "INITIAL_PID_NAMESPACE", 1)
    assert not nvml._pids_are_local()
