"""What may go wrong while a batch is probed: the outcome is right, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.box import Box, a_box
from tests.probing import (
    BEST,
    WAIT_S,
    faults,
    notes,
    nothing_is_left,
    probed,
    remembered,
    run_folder,
    signal_sampler,
)
from tests.wait import eventually

QUICK = {"probe_quiet": "0.5s", "probe_limit": "20s"}
SLOW = {"probe_quiet": "5s", "probe_limit": "20s"}  # what is done to a probe is then done in time
IMPATIENT = {"probe_quiet": "2s", "probe_limit": "5s"}  # readings may stay away for half of it

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def box() -> Iterator[Box]:
    with a_box() as box:
        yield box


def a_probe_runs(box: Box, job_id: int) -> None:
    eventually(lambda: box.job(job_id)["phase"] == "probing" and notes(box), what="a probe runs")


def test_killed_while_probing(box):
    box.start_runner(gpus="sim:1x24GiB", **SLOW)
    job_id = probed(box)
    a_probe_runs(box, job_id)
    box.run("kill", str(job_id))
    job = box.wait_state(job_id, "CANCELLED")
    assert (job["reason"], job["batch_size"]) == ("USER", None)
    assert all(seen["probing"] for seen in notes(box))
    nothing_is_left(box, job_id)
    assert remembered(box) == []


def test_the_supervisor_is_killed(box):
    box.start_runner(gpus="sim:1x24GiB", **SLOW)
    job_id = probed(box)
    a_probe_runs(box, job_id)
    os.kill(json.loads((run_folder(box, job_id) / "started.json").read_text())["pid"], signal.SIGKILL)
    job = box.wait_state(job_id, "LOST")
    assert (job["reason"], job["batch_size"]) == ("SUPERVISOR", None)
    nothing_is_left(box, job_id)
    assert remembered(box) == []


@pytest.mark.parametrize("killed", ["runner", "sampler"])
def test_one_that_is_shot_is_not_missed(box, killed):
    box.start_runner(gpus="sim:1x24GiB", **QUICK)
    job_id = probed(box)
    a_probe_runs(box, job_id)
    if killed == "runner":
        box.stop_runner(signal.SIGKILL)
        box.start_runner(gpus="sim:1x24GiB", **QUICK)
    else:
        signal_sampler(box, signal.SIGKILL)
    job = box.wait_state(job_id, "SUCCEEDED", timeout=WAIT_S)
    assert (job["batch_size"], job["attempt"]) == (BEST, 1)
    assert [notice.kind for notice in box.notices(job_id)] == ["started", "ended"]
    nothing_is_left(box, job_id)


def freeze_sampler(box: Box) -> None:
    signal_sampler(box, signal.SIGSTOP)


@pytest.mark.parametrize(
    ("strike", "said"),
    [
        (lambda box: faults(box, "0 lost"), "GPU 0 fell off the bus"),
        (lambda box: faults(box, "all block"), "reading"),
        (freeze_sampler, "reading"),
    ],
    ids=["the GPU is lost", "the driver blocks", "the sampler is frozen"],
)
def test_without_readings_the_users_batch_is_run(box, strike, said):
    box.start_runner(gpus="sim:1x24GiB", **IMPATIENT)
    job_id = probed(box, "--until", str(box.folder / "seen"), options=("--batch", "3"))
    a_probe_runs(box, job_id)
    strike(box)
    eventually(lambda: not notes(box)[-1]["probing"], WAIT_S, "the real run runs")
    assert box.job(job_id)["state"] == "RUNNING"
    faults(box, "")
    (box.folder / "seen").touch()
    job = box.wait_state(job_id, "SUCCEEDED", timeout=WAIT_S)
    assert (job["batch_size"], notes(box)[-1]["batch"], job["attempt"]) == (3, 3, 1)
    told = box.notices(job_id)[0].payload.probe
    assert told.startswith("batch 3, your own, because ")
    assert said in told
    nothing_is_left(box, job_id)
    assert remembered(box) == []
