"""Jobs through a real runner on a real cluster."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runner.engines.slurm.batch_script import script_of
from runner.errors import UserError
from tests.box import Box, a_box
from tests.jobs import KEY, VARIABLES, a_spec
from tests.probing import BEST, batches, probed
from tests.wait import eventually

SETTINGS = {"engine": "slurm", "slurm_poll": "0.5s", "slurm_forgotten_after": "2s", "slurm_partition": "gpu"}


@pytest.fixture(name="box")
def box_on_slurm() -> Iterator[Box]:
    with a_box() as box:
        box.environ |= {"SLURM_CONF": os.environ["SLURM_CONF"], "USER": os.environ["USER"]}
        yield box


def start(box: Box, gpus: str = "sim:2x24GiB", **settings: str) -> None:
    box.start_runner(gpus, shared=str(box.folder / "shared"), **{**SETTINGS, **settings})


def in_slurm() -> list[str]:
    said = subprocess.run(["squeue", "-h", "-o", "%j"], capture_output=True, text=True, check=True).stdout
    return said.split()


@pytest.mark.xdist_group("second")
def test_only_some_jobs_wait_in_slurm_so_that_order_stays_ours(box: Box) -> None:
    start(box, slurm_ahead="2", slurm_partition="second")
    first = box.submit("until [ -e go ]; do sleep 0.05; done", "-g", "2")
    box.wait_state(first, "RUNNING")
    ids = [box.submit(f"echo {number} >> order", "-g", "2") for number in range(5)]
    eventually(lambda: [box.job(number)["state"] for number in ids].count("STARTING") == 2)
    job = eventually(lambda: (job := box.job(ids[0]))["waiting_for"] and "Resources" in job["waiting_for"] and job)
    assert job["waiting_for"] == "in Slurm's queue: Resources"
    assert box.job(ids[4])["waiting_for"] == "waits for a place in the queue of the cluster"
    with box.queue() as queue:
        queue.stop(ids[1])
    gpus = eventually(lambda: (gpus := queue.view.gpus())[2]["jobs"] and gpus)
    assert [gpu["node"] for gpu in gpus] == ["n0", "n0", "n1", "n1", "n2", "n2"]
    assert [gpu["jobs"] for gpu in gpus] == [[], [], [first], [first], [], []]
    assert box.wait_state(ids[1], "CANCELLED")["reason"] == "USER"
    (box.folder / "go").touch()
    for number in (ids[0], *ids[2:]):
        box.wait_state(number, "SUCCEEDED")
    assert (box.folder / "order").read_text().split() == ["0", "2", "3", "4"]


def test_what_can_never_fit_is_refused_with_the_way_out(box: Box) -> None:
    start(box)
    eventually(lambda: box.run("gpus").stdout.count("a5000") == 6)
    for options, words in {
        ("-g", "3"): "the largest node has 2 GPUs",
        ("-v", "h100"): "No GPU of this box is of type h100",
        ("--on", "0"): "Slurm chooses the GPUs",
        ("--gpu-mem", "20G"): "--constraint",
    }.items():
        done = box.run("submit", *options, "--", "true")
        assert (done.returncode, words in done.stderr) == (1, True), done.stderr
    one, two = (replace(a_spec("true", folder=str(box.folder)), owner=owner) for owner in ("one", "two"))
    with box.queue() as queue:
        queue.submit([one], {KEY: VARIABLES})
        with pytest.raises(UserError, match="NIGHTSHIFT_SLURM_SHARED_ACCOUNT"):
            queue.submit([two], {KEY: VARIABLES})


def test_a_batch_is_found_and_an_idle_job_is_stopped_by_the_readings_of_the_node(box: Box) -> None:
    start(box, probe_quiet="1s")
    idle = box.submit("sleep 300", "--idle", "20%:1s:3:1")
    busy = probed(box)
    assert box.wait_state(idle, "CANCELLED", timeout=90)["reason"] == "IDLE"
    found = box.wait_state(busy, "SUCCEEDED", timeout=90)
    assert found["batch_size"] == BEST == batches(box)[-1]


STEPS = ("claimed", "sbatch", "pending", "running")


@pytest.mark.xdist_group("third")
@pytest.mark.parametrize("step", STEPS)
def test_a_runner_killed_at_any_step_of_a_start_loses_nothing_and_runs_nothing_twice(box: Box, step: str) -> None:
    start(box, gpus="none")
    if step == "pending":
        hold = box.submit("until [ -e go ]; do sleep 0.05; done", "-g", "2", "--partition", "third")
        box.wait_state(hold, "RUNNING")
    wanted = "QUEUED" if step == "claimed" else "STARTING"
    job = box.submit(
        "echo run >> runs; until [ -e go ]; do sleep 0.05; done; exit 4", "-g", "2", "--partition", "third"
    )
    if step == "running":
        box.wait_state(job, "RUNNING")
    elif step in ("sbatch", "pending"):
        eventually(lambda: box.job(job)["state"] == wanted)
        if step == "pending":
            eventually(lambda: len(in_slurm()) >= 2)
    assert box.runner is not None
    os.kill(box.runner.pid, signal.SIGKILL)
    box.runner.wait(20)
    (box.folder / "go").touch()
    start(box, gpus="none")
    ended = box.wait_state(job, "FAILED", timeout=60)
    assert ended["exit_code"] == 4
    assert (box.folder / "runs").read_text().split() == ["run"]
    ours = (box.folder / "shared" / "queue").read_text()[:8]
    eventually(lambda: not [name for name in in_slurm() if name.startswith(f"ns-{ours}-{job}.")])


def test_a_job_cannot_start_a_second_time(box: Box, tmp_path: Path) -> None:
    """As when a controller that lost its memory launches a job again."""
    start(box, gpus="none")
    job = box.submit("echo run >> runs", "-g", "0")
    box.wait_state(job, "SUCCEEDED")
    folder = box.folder / "shared" / "runs" / str(job) / "1"
    script = tmp_path / "again"
    script.write_text(script_of(str(folder), "none"))
    subprocess.run(["sh", script], check=True)
    assert (box.folder / "runs").read_text().split() == ["run"]
