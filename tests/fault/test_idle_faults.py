"""Nothing that goes wrong with the driver, its readings or the disk makes a job idle.

Windows are three seconds long here: twelve of them are to these what an hour is to the default of five minutes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

import pytest

from tests.fakes.nvml import FakeNvml
from tests.fault.test_disk import fill, small_disk  # noqa: F401 - a fixture
from tests.wait import eventually

IDLE = "20%:1s:3:0"
WINDOW_S = 3.0
AN_HOUR_S = 12 * WINDOW_S
NOTHING = "sleep 300"


@pytest.fixture
def nvml(box, tmp_path):
    driver = FakeNvml(tmp_path)
    driver.add_gpu()
    driver.add_gpu()
    box.environ |= driver.env
    return driver


def readings_pass(box, seconds):
    """So many seconds' worth of the runner's life; what was warned of or stopped in it."""
    end = time.monotonic() + seconds
    with box.queue() as queue:
        eventually(lambda: time.monotonic() > end, seconds + 5)
        return [
            (event["job_id"], event["kind"])
            for job in queue.jobs.find()
            for event in [{"job_id": job.id, **one} for one in queue.jobs.events(job.id)]
            if event["kind"] in {"stop asked", "idle warning"}
        ]


def lose_both(nvml, box):
    nvml.fault(0, "lost")
    nvml.fault(1, "lost")


def fall_off_the_list(nvml, box):
    """The driver counts fewer GPUs than before, and is opened anew."""
    (nvml.folder / "gpus.conf").write_text("")
    nvml.fault("all", "code", 999)


def utilisation_na(nvml, box):
    nvml.fault(0, "utilization", "na")
    nvml.fault(1, "utilization", "na")


def unknown_error_for_utilisation(nvml, box):
    nvml.fault(0, "utilization", 999)
    nvml.fault(1, "utilization", 999)


def only_one_of_two_answers(nvml, box):
    nvml.fault(1, "code", 999)


def unknown_errors(nvml, box):
    nvml.fault("all", "code", 999)


def blocked(nvml, box):
    nvml.block(0)
    nvml.block(1)


def everything_blocked(nvml, box):
    nvml.block("all")


def driver_replaced(nvml, box):
    """The library on the disk is newer than the driver in memory, and the sampler has to begin again."""
    nvml.replace_library(build=2)
    os.kill(sampler(box), signal.SIGKILL)


def init_fails(nvml, box):
    nvml.fault("all", "init", 999)
    os.kill(sampler(box), signal.SIGKILL)


def split_by_mig(nvml, box):
    nvml.fault(0, "mig", "is 1")
    nvml.fault(1, "mig", "is 1")


WAYS = [
    *(lose_both, fall_off_the_list, utilisation_na, unknown_error_for_utilisation, only_one_of_two_answers),
    *(unknown_errors, blocked, everything_blocked, driver_replaced, init_fails, split_by_mig),
]


def goes_wrong(box, nvml, fail, seconds):
    """One job on both GPUs; it does nothing, and would be stopped within seconds if anybody knew."""
    box.start_runner(gpus="auto", idle=IDLE)
    job_id = box.submit(NOTHING, "-g", "2")
    box.wait_state(job_id, "RUNNING")
    fail(nvml, box)
    assert readings_pass(box, seconds) == []
    assert box.job(job_id)["state"] == "RUNNING"
    return job_id


@pytest.mark.evidence
@pytest.mark.parametrize("fail", WAYS, ids=lambda way: way.__name__)
def test_a_driver_that_fails_for_an_hour_ends_no_job(box, nvml, fail):
    goes_wrong(box, nvml, fail, AN_HOUR_S)


def test_a_driver_that_is_well_again_does_let_it_be_stopped(box, nvml):
    """The other half of the proof: what was not judged is judged from then on, with a whole window."""
    job_id = goes_wrong(box, nvml, utilisation_na, WINDOW_S + 1)
    with box.queue() as queue:
        said = "not judged: GPU 0 does not tell its utilisation; GPU 1 does not tell its utilisation"
        eventually(lambda: (queue.view.watched(job_id) or {})["idle"] == said)
    nvml.clear()
    assert box.wait_state(job_id, "CANCELLED")["reason"] == "IDLE"


@pytest.mark.evidence
def test_readings_that_come_and_go(box, nvml):
    """Never a whole window without a gap: the fault comes back every two seconds."""
    over = threading.Event()

    def come_and_go():
        while not over.wait(0.4):
            only_one_of_two_answers(nvml, box)
            if not over.wait(1.6):
                nvml.clear()

    worker = threading.Thread(target=come_and_go)
    try:
        goes_wrong(box, nvml, lambda *_: worker.start(), AN_HOUR_S)
    finally:
        over.set()
        worker.join()


def sampler(box):
    return next((pid for pid, name in box.processes().items() if name == "ns-sampler"), None)


@pytest.mark.evidence
def test_a_sampler_that_is_killed_again_and_again(box):
    """It does nothing, and nobody sees it do nothing for long enough."""
    box.start_runner(gpus="sim:1x24GiB", idle="20%:1s:6:0")
    job_id = box.submit(NOTHING)
    box.wait_state(job_id, "RUNNING")
    end = time.monotonic() + 15

    def kill_it():
        if pid := sampler(box):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return time.monotonic() > end

    eventually(kill_it, what="it is killed as soon as it is there")
    assert box.job(job_id)["stop"] is None
    assert box.wait_state(job_id, "CANCELLED")["reason"] == "IDLE"  # and then it is seen


def test_a_disk_that_is_full_when_it_is_to_be_stopped(box, small_disk):  # noqa: F811
    box.use_home(small_disk / "home")
    box.start_runner(gpus="sim:1x24GiB", idle="20%:1s:5:0")
    job_id = box.submit(NOTHING)
    with box.queue() as queue:
        eventually(lambda: queue.view.evidence(job_id), what="it is warned of")
        fill(small_disk)
        log = box.folder / "runner.out"
        eventually(lambda: log.read_text().count("is full") >= 4, what="the runner has tried for some seconds")
        assert queue.job(job_id).stop is None
        (small_disk / "filler").unlink()
    assert box.wait_state(job_id, "CANCELLED")["reason"] == "IDLE"
    assert [notice.kind for notice in box.notices(job_id)] == ["started", "idle warning", "ended"]
