"""Batches found by probing: a real runner, real supervisors, simulated GPUs, a trainer that does as it is told."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.box import Box, a_box
from tests.probing import BEST, WAIT_S, batches, faults, notes, probed, run_folder, trainer
from tests.wait import eventually

NANO_GPT = Path(__file__).parents[1] / "fakes" / "nano_gpt.py"
QUICK = {"probe_quiet": "1.5s", "probe_limit": "20s"}

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def box() -> Iterator[Box]:
    with a_box() as box:
        box.start_runner(gpus="sim:1x24GiB", **QUICK)
        yield box


def shown(box: Box, job_id: int) -> dict[str, Any]:
    return json.loads(box.run("show", str(job_id), "--json").stdout)


def test_the_largest_batch_that_fits_is_found_and_run(box):
    job_id = probed(box, options=("--run-id-arg", "--version"))
    eventually(lambda: box.job(job_id)["phase"] == "probing", what="it is probed")
    assert [notice.kind for notice in box.notices(job_id)] == []
    job = box.wait_state(job_id, "SUCCEEDED", timeout=WAIT_S)
    assert job["batch_size"] == BEST

    *probes, real = notes(box)
    assert len(probes) >= 2
    assert all(seen["probing"] and seen["wandb"] == "disabled" for seen in probes)
    assert not real["probing"]
    assert (real["wandb"], real["scratch"], real["run_id"]) == (None, None, job["run_id"])
    assert real["argv"][-2:] == [f"--batch_size={BEST}", f"--version={job['run_id']}"]
    assert real["variable"] == str(BEST)
    ids = [seen["run_id"] for seen in notes(box)]
    assert len(set(ids)) == len(ids)
    assert probes[0]["argv"][-1] == f"--version={ids[0]}"
    assert probes[0]["scratch"] == str(run_folder(box, job_id) / "scratch")
    assert not Path(probes[0]["scratch"]).exists()
    assert "batch 8 runs" in (run_folder(box, job_id) / "probe-1.log").read_text()
    assert box.log(job_id) == f"batch {BEST} runs in {2000 + 800 * BEST} MiB\ndone\n"

    started, ended = box.notices(job_id)
    assert started.payload.probe.startswith(f"batch {BEST}, 90 % of 24 GiB, probed in ")
    assert (started.kind, ended.kind) == ("started", "ended")
    probe = shown(box, job_id)["probe"]
    assert [point[0] for point in probe["points"]] == batches(box)[:-1]
    assert probe["line"] == [pytest.approx(2000, abs=1), pytest.approx(800, abs=1)]
    assert probe["margin"] == 0.92
    assert f"batch {BEST}, 90 % of 24 GiB, probed in" in box.run("show", str(job_id)).stdout
    drawn = box.run("show", str(job_id), "--fit").stdout
    assert f"batch {BEST}, 90 % of 24 GiB, probed in" in drawn
    assert f"    {BEST} ██████████████▌  21.5 GiB ◀" in drawn
    plain = box.submit("true")
    refused = box.run("show", str(plain), "--fit")
    assert (refused.returncode, "was submitted without --probe" in refused.stderr) == (1, True)


def test_a_placeholder_asks_for_it_and_accumulation_follows(box):
    command = " ".join(trainer(box, "--batch_size {batch_size} --accum={grad_accum}"))
    job_id = box.submit(command, "--effective-batch", "100", "--on", "0")
    job = box.wait_state(job_id, "SUCCEEDED", timeout=WAIT_S)
    assert job["batch_size"] == BEST
    assert [seen["accum"] for seen in notes(box)] == [1] * (len(notes(box)) - 1) + [4]


def test_the_environment_alone_is_enough_and_memory_that_runs_out_halves_the_batch(box):
    job_id = box.submit("", "--probe", argv=trainer(box, "--fixed", "2000", "--per_sample", "4000"))
    job = box.wait_state(job_id, "SUCCEEDED", timeout=WAIT_S)
    assert job["batch_size"] == 5
    assert batches(box)[:2] == [8, 4]


def test_a_bounded_probe_runs_to_its_end(box):
    profiles = {"short": {"batch_arg": "--batch_size", "probe_args": ["--max_steps=5"], "default": 4}}
    (box.home / "profiles.json").write_text(json.dumps(profiles))
    queued = box.run("submit", "--json", "--profile", "short", "--", *trainer(box, "--seconds", "3"))
    job_id = json.loads(queued.stdout)["ids"][0]
    job = box.wait_state(job_id, "SUCCEEDED", timeout=WAIT_S)
    assert job["batch_size"] == BEST
    assert notes(box)[0]["batch"] == 4
    assert notes(box)[0]["argv"][-2:] == ["--max_steps=5", "--batch_size=4"]
    assert "--max_steps=5" not in notes(box)[-1]["argv"]
    assert "done" in (run_folder(box, job_id) / "probe-1.log").read_text()


def test_the_blogs_command_line_with_its_profile(box):
    """A line of its queue, as it stands there."""
    line = f"{sys.executable} {NANO_GPT} config/small.py --n_layer=6 --learning_rate=0.0003"
    (box.folder / "config").mkdir()
    (box.folder / "config" / "small.py").write_text("block_size = 256\n")
    queued = box.run("submit", "--json", "--profile", "nanogpt", "--", line)
    job = box.wait_state(json.loads(queued.stdout)["ids"][0], "SUCCEEDED", timeout=WAIT_S)
    # 2000 + 630 × 31 with validation is 90 % of it; 31 is rounded down to a multiple of 8
    assert job["batch_size"] == 24
    *probes, real = [json.loads(line) for line in (box.folder / "runs.jsonl").read_text().splitlines()]
    given = ["config/small.py", "--n_layer=6", "--learning_rate=0.0003"]
    bounds = ["--max_tokens=1000000", "--wandb_log=False"]
    assert probes[0]["words"] == [*given, *bounds, "--batch_size=8", f"--version={job['run_id']}-probe1"]
    assert all(probe["probing"] and not probe["wandb_log"] for probe in probes)
    assert real["words"] == [*given, "--batch_size=24", f"--version={job['run_id']}"]
    assert re.fullmatch("[0-9a-f]{8}", job["run_id"])
    assert (real["wandb_log"], real["probing"]) == (True, False)
    assert [path.name for path in (box.folder / "out").iterdir()] == [f"ckpt-{job['run_id']}.pt"]
    assert shown(box, job["id"])["probe"]["margin"] == 0.9


def test_a_script_has_its_batch_where_it_wants_it(box):
    words = " ".join(trainer(box, "--batch_size {batch_size} --version {run_id}"))
    script = box.folder / "night.sh"
    script.write_text(f"#!/bin/bash\ncd /\n{words} | cat; exit ${{PIPESTATUS[0]}}\n")
    queued = box.run("submit", "--json", "--script", str(script))
    job_id = json.loads(queued.stdout)["ids"][0]
    job = box.wait_state(job_id, "SUCCEEDED", timeout=WAIT_S)
    assert job["batch_size"] == BEST
    assert notes(box)[-1]["argv"][-4:] == ["--batch_size", str(BEST), "--version", job["run_id"]]
    assert len({seen["argv"][-1] for seen in notes(box)}) == len(notes(box))


def test_a_crash_in_the_probe_is_the_jobs_failure_with_its_output(box):
    job_id = probed(box, "--crash")
    job = box.wait_state(job_id, "FAILED", timeout=WAIT_S)
    assert (job["reason"], job["exit_code"], job["batch_size"]) == ("EXIT", 3, None)
    assert batches(box) == [8]
    assert box.log(job_id).startswith("[nightshift: the probe at batch 8 failed (exit code 3)]")
    assert "ValueError: the data is missing" in box.log(job_id)
    assert [notice.kind for notice in box.notices(job_id)] == ["ended"]


def test_what_does_not_fit_at_batch_1_fails_for_memory(box):
    job_id = probed(box, "--fixed", "30000")
    job = box.wait_state(job_id, "FAILED", timeout=WAIT_S)
    assert (job["reason"], job["attempt"]) == ("OOM", 1)
    assert "failed, the GPU ran out of memory" in box.run("show", str(job_id)).stdout
    assert batches(box) == [8, 4, 2, 1]
    assert "does not fit on this GPU" in box.log(job_id)


def test_what_cannot_be_executed_says_so(box):
    job_id = box.submit("", "--probe", argv=["/no/such/program", "x"])
    assert box.wait_state(job_id, "FAILED", timeout=WAIT_S)["reason"] == "SPAWN"


def test_the_time_limit_covers_probes(box):
    job_id = probed(box, options=("--time", "2s"))
    assert box.wait_state(job_id, "CANCELLED")["reason"] == "TIMEOUT"


def test_memory_taken_in_advance_says_nothing_and_the_users_batch_is_run(box):
    job_id = probed(box, "--prealloc", "18000", options=("--batch", "12"))
    job = box.wait_state(job_id, "SUCCEEDED", timeout=WAIT_S)
    assert job["batch_size"] == 12
    assert "memory does not depend on the batch" in box.notices(job_id)[0].payload.probe


def test_beside_a_neighbour_the_users_batch_is_run(box):
    with neighbour(box):
        job_id = probed(box)
        job = box.wait_state(job_id, "SUCCEEDED", timeout=WAIT_S)
    assert job["batch_size"] == 8
    assert "other processes use GPU 0" in box.notices(job_id)[0].payload.probe
    assert batches(box) == [8]


@contextlib.contextmanager
def neighbour(box: Box) -> Iterator[None]:
    somebody = subprocess.Popen(box.command("sim-load", "--memory", "1G"), env=box.environ)
    try:
        eventually(lambda: json.loads(box.run("gpus", "--json").stdout)[0]["memory_used_mib"] > 1000, what="it is seen")
        yield
    finally:
        somebody.kill()
        somebody.wait()


def test_the_second_job_of_its_kind_starts_without_a_probe(box):
    first = probed(box, "--late", "40", "--late_after", "0.5", "--seconds", "3")
    box.wait_state(first, "SUCCEEDED", timeout=WAIT_S)
    (box.folder / "notes").unlink()
    second = probed(box, "--late", "40", "--late_after", "0.5", "--seconds", "3")
    job = box.wait_state(second, "SUCCEEDED", timeout=WAIT_S)
    # it has learnt what comes late: 840 MiB for each sample
    assert (job["batch_size"], batches(box)) == (24, [24])
    assert "known from an earlier job" in box.notices(second)[0].payload.probe
    (box.folder / "notes").unlink()
    third = probed(box, "--late", "40", "--late_after", "0.5", "--seconds", "3", options=("--no-cache",))
    eventually(lambda: len(notes(box)) > 1, what="it is probed")
    box.run("kill", str(third))


def test_out_of_memory_in_the_real_run_steps_back_with_the_same_run_id(box):
    job_id = probed(box, "--late", "200", "--late_after", "0.5")
    job = box.wait_state(job_id, "SUCCEEDED", timeout=WAIT_S)
    real = [seen for seen in notes(box) if not seen["probing"]]
    assert real[0]["batch"] == BEST
    assert len({seen["run_id"] for seen in real}) == 1
    assert job["attempt"] == len(real) > 1
    assert job["batch_size"] == real[-1]["batch"] <= 22
    kinds = [notice.kind for notice in box.notices(job_id)]
    assert kinds == [*["started", "requeued"] * (len(real) - 1), "started", "ended"]
    said = box.notices(job_id)[1].payload.to_json()
    assert said["why"] == f"batch {BEST} ran out of memory; again at batch {real[1]['batch']}"
    assert (said["state"], said["reason"]) == ("FAILED", "OOM")


def test_out_of_memory_without_a_probe_is_called_by_its_name(box):
    job_id = box.submit("", argv=trainer(box, "--batch_size", "100"))
    job = box.wait_state(job_id, "FAILED")
    assert (job["reason"], job["exit_code"], job["attempt"]) == ("OOM", 1, 1)


def test_two_slots_share_the_memory():
    with a_box() as box:
        box.start_runner(gpus="sim:1x24GiB", slots_per_gpu="2", settle="0s", **QUICK)
        jobs = [probed(box), probed(box, "--per_sample", "790")]
        chosen = [box.wait_state(job_id, "SUCCEEDED", timeout=WAIT_S)["batch_size"] for job_id in jobs]
        assert chosen == [11, 11]


def test_an_attempt_after_a_lost_one_needs_no_second_probe(box):
    job_id = probed(box, "--seconds", "60", options=("--retries", "1"))
    eventually(lambda: notes(box) and not notes(box)[-1]["probing"], WAIT_S, "the real run runs")
    eventually(lambda: box.job(job_id)["phase"] == "running", what="and the queue knows it")
    probes = len(notes(box)) - 1
    os.kill(json.loads((run_folder(box, job_id) / "started.json").read_text())["pid"], 9)
    eventually(lambda: len(notes(box)) == probes + 2, what="it runs again")
    again = notes(box)[-1]
    assert (again["batch"], again["probing"], again["run_id"]) == (BEST, False, notes(box)[-2]["run_id"])


@pytest.mark.parametrize("fault", ["all processes hidden", "all processes foreign"])
def test_where_processes_are_not_named_the_device_tells(fault):
    with a_box() as box:
        box.start_runner(gpus="sim:1x24GiB", **QUICK)
        faults(box, fault)
        job = box.wait_state(probed(box), "SUCCEEDED", timeout=WAIT_S)
        assert job["batch_size"] == BEST


def test_where_gpu_and_host_share_their_memory_the_users_batch_is_run():
    with a_box() as box:
        (box.home / "sim").mkdir(parents=True, mode=0o700)
        box.home.chmod(0o700)
        faults(box, "0 memory na\n0 addressing_mode is 2")
        box.start_runner(gpus="sim:1x24GiB", **QUICK)
        job_id = probed(box, options=("--batch", "12"))
        job = box.wait_state(job_id, "SUCCEEDED", timeout=WAIT_S)
        assert (job["batch_size"], batches(box)) == (12, [12])
        assert "no memory of its own" in box.notices(job_id)[0].payload.probe


def test_of_two_gpus_the_fuller_one_decides():
    with a_box() as box:
        box.start_runner(gpus="sim:2x24GiB", **QUICK)
        job = box.wait_state(probed(box, "--more_on_second", "25", options=("-g", "2")), "SUCCEEDED", timeout=WAIT_S)
        assert (len(job["gpus"]), job["batch_size"]) == (2, 19)  # 2500 + 1000 × 19 is within 92 % there, × 20 is not
