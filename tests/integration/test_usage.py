"""What the runner tells of a job's use of its GPUs, from the simulated driver's readings."""

import json
import os
import signal
import subprocess

import pytest

from runner.gpu.sim.state import folder_of
from tests.wait import eventually


def usage_told(box, job_id):
    [ended] = [notice.payload.to_json() for notice in box.notices(job_id) if notice.kind == "ended"]
    return ended["usage"]


def live_usage(box, job_id):
    with box.queue() as queue:
        return queue.view.usage(job_id)


def test_a_job_tells_what_it_used(box):
    box.start_runner(gpus="sim:2x24GiB")
    job_id = box.submit("nightshift sim-load --memory 8G --load 90 --time 3s", "--gpus", "2")
    without = box.submit("true", "--gpus", "0")
    box.wait_state(job_id, "SUCCEEDED")
    used = usage_told(box, job_id)
    assert used["samples"] >= 2
    assert 0 < used.pop("mean_utilization") <= 90
    expected = {"peak_memory_mib": 8192, "peak_memory_sum_mib": 16384, "memory_total_mib": 24576}
    assert used == {**expected, "samples": used["samples"], "attributed_by": "process"}
    shown = json.loads(box.run("show", str(job_id), "--json").stdout)
    assert shown["usage"] == shown["attempts"][0]["usage"] == usage_told(box, job_id)
    assert shown["events"][-1]["data"]["usage"] == usage_told(box, job_id)
    assert "8.0 GiB of 24.0 GiB at most, " in box.run("show", str(job_id)).stdout
    box.wait_state(without, "SUCCEEDED")
    assert usage_told(box, without) is None


def test_a_job_shorter_than_a_reading_tells_nothing(box):
    box.start_runner()

    def unread():
        job_id = box.submit("true")
        box.wait_state(job_id, "SUCCEEDED")
        return job_id if usage_told(box, job_id)["samples"] == 0 else None

    job_id = eventually(unread, what="one begins and ends between two readings")
    used = usage_told(box, job_id)
    assert (used["peak_memory_mib"], used["mean_utilization"]) == (None, None)
    assert "GPU use" not in box.run("show", str(job_id)).stdout


@pytest.mark.parametrize("fault", ["processes foreign", "processes hidden", "process_memory na"])
def test_where_processes_are_not_named_it_is_what_the_device_has_grown_by(box, fault):
    box.start_runner(gpus="sim:1x24GiB")
    with open(f"{folder_of(str(box.home))}/faults.conf", "w") as file:
        file.write(f"0 {fault}\n")
    somebody = subprocess.Popen(box.command("sim-load", "--memory", "2G"), env=box.environ)
    eventually(lambda: memory_used(box) == 2048, what="somebody else uses the GPU")
    job_id = box.submit("nightshift sim-load --memory 8G --time 3s")
    box.wait_state(job_id, "SUCCEEDED")
    somebody.kill()
    somebody.wait()
    used = usage_told(box, job_id)
    assert (used["peak_memory_mib"], used["attributed_by"]) == (8192, "device")
    assert "8.0 GiB of 24.0 GiB at most by whatever used the GPU then" in box.run("show", str(job_id)).stdout


def memory_used(box):
    with box.queue() as queue:
        return queue.view.gpus()[0]["memory_used_mib"]


def test_jobs_on_one_gpu_are_told_apart_by_their_processes(box):
    box.start_runner(gpus="sim:1x24GiB", slots_per_gpu="2", settle="0s")
    small = box.submit("nightshift sim-load --memory 3G --time 3s")
    large = box.submit("nightshift sim-load --memory 8G --time 3s")
    for job_id, expected in ((small, 3072), (large, 8192)):
        box.wait_state(job_id, "SUCCEEDED")
        assert usage_told(box, job_id)["peak_memory_mib"] == expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_another_runner_goes_on_where_the_last_one_was(box, number):
    box.start_runner(gpus="sim:1x24GiB")
    job_id = box.submit("nightshift sim-load --memory 8G --time 3s; exec nightshift sim-load --memory 1G")
    box.wait_state(job_id, "RUNNING")
    eventually(lambda: memory_used(box) == 1024, what="the second half has begun")
    if number == signal.SIGKILL:  # it had no time to write anything down: what is lost is what came last
        eventually(lambda: live_usage(box, job_id)["peak_memory_mib"] == 8192, what="it was written down")
    box.stop_runner(number)
    before = live_usage(box, job_id)
    assert before["samples"] >= 2
    box.start_runner(gpus="sim:1x24GiB")
    eventually(lambda: live_usage(box, job_id)["samples"] > before["samples"], what="more was read")
    with box.queue() as queue:
        queue.stop(job_id)
    box.wait_state(job_id, "CANCELLED")
    used = usage_told(box, job_id)
    assert used["samples"] > before["samples"]
    assert (used["peak_memory_mib"], used["attributed_by"]) == (8192, "process")


def test_a_lost_job_tells_what_is_known_of_it(box):
    box.start_runner(gpus="sim:1x24GiB")
    job_id = box.submit("nightshift sim-load --memory 8G", "--retries", "1")
    box.wait_state(job_id, "RUNNING")
    eventually(lambda: live_usage(box, job_id)["samples"] > 0, what="it was written down")
    for _ in range(2):
        box.wait_state(job_id, "RUNNING")
        attempt = box.job(job_id)["attempt"]
        folder = box.home / "runs" / str(job_id) / str(attempt)
        os.kill(json.loads((folder / "started.json").read_text())["pid"], signal.SIGKILL)
        eventually(lambda before=attempt: (j := box.job(job_id))["attempt"] > before or j["state"] == "LOST")
    again, ended = [notice.payload.to_json() for notice in box.notices(job_id) if notice.kind in ("requeued", "ended")]
    assert again["usage"]["peak_memory_mib"] == 8192
    assert (again["state"], again["reason"], again["duration_about"]) == ("LOST", "SUPERVISOR", True)
    assert again["duration_s"] > 4
    assert (ended["state"], ended["duration_about"]) == ("LOST", True)
    assert 0 <= ended["duration_s"] < again["duration_s"] + 10
