"""A driver that fails, below a real runner with jobs: through the real binding and a C library."""

import os
import subprocess

import psutil
import pytest

from tests.fakes.nvml import FakeNvml
from tests.wait import eventually


@pytest.fixture
def nvml(box, tmp_path):
    driver = FakeNvml(tmp_path)
    driver.add_gpu()
    driver.add_gpu()
    box.environ |= driver.env
    return driver


@pytest.fixture
def bystander():
    """A process that is none of ours."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


def gpu(box, index):
    with box.queue() as queue:
        return queue.view.gpus()[index]


def hold_until(flag):
    return f"echo up; while [ ! -e {flag} ]; do sleep 0.02; done; exit 5"


def gpu_notices(box):
    return [notice for notice in box.notices(None) if notice.kind.startswith("gpu ")]


def test_one_gpu_is_lost_while_both_are_used(box, nvml, tmp_path):
    box.start_runner(gpus="auto")
    jobs = [box.submit(hold_until(tmp_path / "go")) for _ in range(2)]
    for job_id in jobs:
        box.wait_state(job_id, "RUNNING")
    nvml.fault(1, "lost")
    eventually(lambda: gpu(box, 1)["state"] == "lost")
    assert gpu(box, 0)["state"] == "busy"
    assert [box.job(i)["state"] for i in jobs] == ["RUNNING", "RUNNING"]
    (tmp_path / "go").touch()
    assert [box.wait_state(i, "FAILED")["exit_code"] for i in jobs] == [5, 5]

    good = gpu(box, 0)["uuid"]
    after = [box.submit("true") for _ in range(3)]
    assert [box.wait_state(i, "SUCCEEDED")["gpus"] for i in after] == [[good]] * 3
    pinned = box.submit("true", "--on", "1")
    assert "lost" in eventually(lambda: box.job(pinned)["waiting_for"])
    assert [n.kind for n in gpu_notices(box)] == ["gpu lost"]

    nvml.clear()
    assert box.wait_state(pinned, "SUCCEEDED")
    eventually(lambda: [n.kind for n in gpu_notices(box)] == ["gpu lost", "gpu back"])


@pytest.mark.parametrize("field", ["utilization", "temperature", "power", "processes", "name"])
def test_a_field_that_cannot_be_read_stops_nothing(box, nvml, field):
    nvml.fault(0, field, "na")
    box.start_runner(gpus="auto")
    assert box.wait_state(box.submit("true", "--on", "0"), "SUCCEEDED")


def test_memory_that_cannot_be_read_is_not_taken_for_free(box, nvml):
    nvml.fault(0, "memory", "na")
    box.start_runner(gpus="auto")
    waits = box.submit("true", "--on", "0")
    goes = box.submit("true", "--on", "1")
    box.wait_state(goes, "SUCCEEDED")
    assert box.job(waits)["state"] == "QUEUED"
    assert gpu(box, 0)["memory_used_mib"] is None
    nvml.clear()
    box.wait_state(waits, "SUCCEEDED")


def test_an_old_driver_serves(box, tmp_path):
    driver = FakeNvml(tmp_path, driver="old")
    driver.add_gpu()
    box.environ |= driver.env
    box.start_runner(gpus="auto")
    assert box.wait_state(box.submit("true"), "SUCCEEDED")
    assert gpu(box, 0)["memory_total_mib"] == 24576


def test_a_call_that_blocks_holds_only_its_own_gpu(box, nvml, tmp_path):
    box.start_runner(gpus="auto")
    running = box.submit(hold_until(tmp_path / "go"), "--on", "1")
    box.wait_state(running, "RUNNING")
    nvml.block(1)
    eventually(lambda: gpu(box, 1)["state"] == "unknown")
    after = [box.submit("true") for _ in range(3)]
    good = gpu(box, 0)["uuid"]
    assert [box.wait_state(i, "SUCCEEDED")["gpus"] for i in after] == [[good]] * 3
    (tmp_path / "go").touch()
    assert box.wait_state(running, "FAILED")["exit_code"] == 5
    waits = box.submit("true", "--on", "1")
    nvml.clear()
    box.wait_state(waits, "SUCCEEDED")


def test_all_telemetry_goes_and_comes_back(box, nvml, tmp_path):
    box.start_runner(gpus="auto", cpu_slots="1")
    running = box.submit(hold_until(tmp_path / "go"))
    box.wait_state(running, "RUNNING")
    nvml.fault("all", "code", 999)
    eventually(lambda: gpu(box, 0)["state"] == "unknown")
    waits = box.submit("true")
    box.wait_state(box.submit("true", "--gpus", "0"), "SUCCEEDED")
    (tmp_path / "go").touch()
    assert box.wait_state(running, "FAILED")["exit_code"] == 5
    assert box.job(waits)["state"] == "QUEUED"
    nvml.clear()
    box.wait_state(waits, "SUCCEEDED")


def test_no_driver_at_the_start_is_an_error_with_the_way_out(box):
    refused = box.run("runner", env={"NIGHTSHIFT_GPUS": "auto", "LD_LIBRARY_PATH": "/nonexistent"})
    assert refused.returncode == 2
    assert "NIGHTSHIFT_GPUS" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_driver_is_upgraded_under_us(box, nvml, tmp_path):
    box.start_runner(gpus="auto")
    running = box.submit(hold_until(tmp_path / "go"), "--on", "0")
    box.wait_state(running, "RUNNING")
    nvml.replace_library(build=2)
    with box.queue() as queue:
        eventually(lambda: "reboot" in (queue.view.snapshot()[0].trouble or ""))
    waits = box.submit("true", "--on", "1")
    (tmp_path / "go").touch()
    assert box.wait_state(running, "FAILED")["exit_code"] == 5
    assert box.job(waits)["state"] == "QUEUED"


def test_others_on_a_gpu(box, nvml, bystander):
    """A notebook's 300 MB do not block it; six gigabytes do, and so does load."""
    nvml.hold(bystander, 0, 300, util=10)
    nvml.hold(bystander, 1, 6000, util=0)
    box.start_runner(gpus="auto")
    box.wait_state(box.submit("true", "--on", "0"), "SUCCEEDED")
    waits = box.submit("true", "--on", "1")
    assert gpu(box, 1)["state"] == "taken"
    assert f"pid {bystander} (sleep" in gpu(box, 1)["detail"]
    assert f"pid {bystander} (sleep" in eventually(lambda: box.job(waits)["waiting_for"])
    nvml.hold(bystander, 1, 300, util=83)
    eventually(lambda: "83 %" in (box.job(waits)["waiting_for"] or ""))
    assert box.job(waits)["state"] == "QUEUED"
    nvml.release(bystander, 1)
    box.wait_state(waits, "SUCCEEDED")


def test_both_rules_are_settable(box, nvml, bystander):
    nvml.hold(bystander, 0, 12000, util=80)
    box.start_runner(gpus="auto", free_memory="60%", free_utilization="90")
    assert box.wait_state(box.submit("true", "--on", "0"), "SUCCEEDED")


def test_a_job_that_runs_is_ours_by_lease_whatever_the_driver_shows(box, nvml, bystander, tmp_path):
    box.start_runner(gpus="auto")
    running = box.submit(hold_until(tmp_path / "go"), "--on", "0")
    box.wait_state(running, "RUNNING")
    nvml.hold(bystander, 0, 20000, util=100)
    eventually(lambda: gpu(box, 0)["memory_used_mib"] == 20000)
    assert box.job(running)["state"] == "RUNNING"
    (tmp_path / "go").touch()
    box.wait_state(running, "FAILED")


def test_the_next_job_waits_until_the_memory_is_back_and_it_is_said_who_holds_it(box, nvml, bystander, tmp_path):
    box.start_runner(gpus="auto")
    first = box.submit(hold_until(tmp_path / "go"), "--on", "0")
    box.wait_state(first, "RUNNING")
    nvml.hold(bystander, 0, 9000)  # as a worker that was left behind would
    (tmp_path / "go").touch()
    box.wait_state(first, "FAILED")
    second = box.submit("true", "--on", "0")
    (notice,) = eventually(lambda: gpu_notices(box))
    assert notice.kind == "gpu held"
    assert f"pid {bystander}" in notice.payload.why
    assert box.job(second)["state"] == "QUEUED"
    os.kill(bystander, 9)
    psutil.Process(bystander).wait(60)
    box.wait_state(second, "SUCCEEDED")


SILENT = "The NVIDIA driver lists 2 GPUs, none of which can be read: GPU {} does not answer (Unknown Error)"


def test_where_no_gpu_answers_from_the_start_people_are_told_what_the_driver_says(box, nvml):
    for index in (0, 1):
        nvml.fault(index, "handle", 999)
    box.start_runner(gpus="auto")
    eventually(lambda: gpu(box, 1)["state"] == "unknown")
    told = box.run("gpus").stdout
    assert SILENT.format(0) in told or SILENT.format(1) in told
    assert "NIGHTSHIFT_GPUS=none" not in told
    done = box.run("submit", "--", "true")
    assert (done.returncode, "no GPUs" in done.stderr) == (0, False)
    waits = eventually(lambda: box.job(1)["waiting_for"])
    assert waits in {f"needs 1 GPU, 0 free; GPU 0, 1 unknown: {SILENT.format(index)}" for index in (0, 1)}
    nvml.clear()
    box.wait_state(1, "SUCCEEDED")


def test_where_the_only_gpu_is_split_by_mig_people_are_told_so(box, tmp_path):
    driver = FakeNvml(tmp_path)
    driver.add_gpu()
    driver.fault(0, "mig", "is 1")
    box.environ |= driver.env
    box.start_runner(gpus="auto")
    eventually(lambda: gpu(box, 0)["state"] == "unsupported")
    done = box.run("submit", "--", "true")
    assert done.returncode == 1
    assert (
        "This box has no GPU for jobs. GPU 0 is split by MIG, which is not scheduled; `nvidia-smi -mig 0`"
        in done.stderr
    )
    assert box.run("submit", "--gpus", "0", "--", "true").returncode == 0
