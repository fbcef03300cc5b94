"""Curves of a real runner: its GPUs with and without a job, and the metrics that jobs print."""

import json

from runner.store.series import gpu_subject, job_subject, names_of, points_of
from tests.wait import eventually


def test_a_runner_records_its_gpus_and_what_jobs_print(box):
    box.start_runner(gpus="sim:2x24GiB")
    job_id = box.submit("echo step 7/1000 loss=2.5; nightshift sim-load --memory 8G --load 90 --time 60s")
    own = box.wait_state(job_id, "RUNNING")["gpus"][0]
    home, job = str(box.home), job_subject(job_id, box.job(job_id)["run_id"])

    [point] = eventually(lambda: points_of(home, job, "loss"), what="its metrics are written")
    assert (*point.value, point.position) == (2.5, 2.5, 2.5, 7)
    eventually(lambda: highest(home, job) >= 8192, what="its GPU's memory is written")
    assert {"gpu utilization", "gpu power_w", "gpu temperature_c"} <= set(names_of(home, job))
    [other] = {gpu["uuid"] for gpu in json.loads(box.run("gpus", "--json").stdout)} - {own}
    assert highest(home, gpu_subject(own)) >= 8192 > highest(home, gpu_subject(other)) >= 0


def highest(home, subject):
    return max((point.value.high for point in points_of(home, subject, "gpu memory_used_mib")), default=-1)
