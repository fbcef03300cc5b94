"""What an attempt used of its GPUs, reckoned from single readings."""

from runner.loop.usage import Sums
from runner.model import Gpu, GpuProcess
from runner.processes.linux import is_below
from runner.supervisor.gpu_memory import own_memory_mib

NOTHING = {
    "peak_memory_mib": None,
    "peak_memory_sum_mib": None,
    "memory_total_mib": None,
    "mean_utilization": None,
    "samples": 0,
    "attributed_by": None,
}


def a_gpu(index=0, **values):
    return Gpu(index=index, uuid=f"GPU-{index}", **{"memory_total_mib": 24576, "memory_used_mib": 5000, **values})


def listing(*processes):
    return tuple(GpuProcess(pid=pid, memory_mib=mib) for pid, mib in processes)


def read(sums, *gpus, way="process", held=None, alone=True):
    told = {g.uuid: (g.memory_used_mib, way) for g in gpus} if held is None else held
    sums.add(gpus, told, {g.uuid: alone for g in gpus})


def test_memory_is_told_by_process_where_the_driver_names_them():
    gpu = a_gpu(processes=listing((7, 1000), (8, 2000), (9, 500)))
    assert own_memory_mib(gpu, lambda one: one.pid in {7, 8}, before_mib=100) == (3000, "process")


def test_memory_is_told_by_device_where_the_driver_names_none_of_its_processes():
    for processes in (None, (), listing((4_000_007, 4000)), listing((7, None), (8, 2000))):
        gpu = a_gpu(processes=processes)
        assert own_memory_mib(gpu, lambda one: one.pid in {7, 8}, before_mib=1200) == (3800, "device")
        assert own_memory_mib(gpu, lambda one: one.pid in {7, 8}, before_mib=None) is None
    assert own_memory_mib(a_gpu(memory_used_mib=100), lambda one: one.pid in {7}, before_mib=1200) == (
        0,
        "device",
    )
    assert own_memory_mib(a_gpu(memory_used_mib=None), lambda one: one.pid in {7}, before_mib=1200) is None


def test_a_pid_that_is_ours_by_chance_is_not_believed():
    gpu = a_gpu(processes=listing((7, 9000)))
    assert own_memory_mib(gpu, lambda one: one.pid in {7}, before_mib=None) is None


def test_nothing_read_is_nothing_known():
    assert Sums().report() == NOTHING


def test_the_peak_is_of_one_gpu_and_of_all_at_one_moment():
    sums = Sums()
    read(sums, a_gpu(0, memory_used_mib=9000, utilization=80), a_gpu(1, memory_used_mib=1000, utilization=41))
    read(sums, a_gpu(0, memory_used_mib=2000, utilization=None), a_gpu(1, memory_used_mib=7000, utilization=0))
    assert sums.report() == {
        "peak_memory_mib": 9000,
        "peak_memory_sum_mib": 10000,
        "memory_total_mib": 24576,
        "mean_utilization": 40.3,
        "samples": 2,
        "attributed_by": "process",
    }


def test_readings_by_device_give_way_to_those_by_process():
    """Before it has used the GPU, a process is not on the driver's list; what grew then was not its doing."""
    sums = Sums()
    read(sums, a_gpu(memory_used_mib=9000), way="device")
    assert (sums.report()["peak_memory_mib"], sums.report()["attributed_by"]) == (9000, "device")
    read(sums, a_gpu(memory_used_mib=500), way="process")
    assert (sums.report()["peak_memory_mib"], sums.report()["attributed_by"]) == (500, "process")


def test_what_two_jobs_share_is_nobodys():
    sums = Sums()
    read(sums, a_gpu(utilization=90), held={}, alone=False)
    assert sums.report() == {**NOTHING, "samples": 1, "memory_total_mib": 24576}


def test_sums_survive_being_written_down():
    sums = Sums(before_mib={"GPU-0": 3})
    read(sums, a_gpu(utilization=20))
    again = Sums(**sums.to_json()["sums"])
    for each in (sums, again):
        read(each, a_gpu(utilization=41))
    assert again == sums
    assert again.report()["mean_utilization"] == 30.5


def test_who_descends_from_whom():
    import os
    import subprocess

    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        sleeper = int(shell.stdout.readline())
        assert is_below(sleeper, shell.pid)
        assert is_below(sleeper, os.getpid())
        assert is_below(sleeper, sleeper)
        assert not is_below(shell.pid, sleeper)
        assert not is_below(os.getppid(), shell.pid)
        assert not is_below(4_000_000_000, shell.pid)
        os.kill(sleeper, 9)
