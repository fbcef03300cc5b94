"""Jobs that are tried before they wait their turn, with a real runner and the real command."""

from __future__ import annotations

import os
import signal

import pytest

from runner import rundir
from tests.wait import eventually

ONE_GPU = "sim:1x24GiB"


def until(box, name):
    """A command that ends when there is a file of this name."""
    return f"until [ -e {box.folder}/{name} ]; do sleep 0.05; done"


def go(box, name):
    (box.folder / name).touch()


def says(box, word):
    """A command that writes down that it ran: `word`, or `word?` if it was only tried."""
    return f"echo {word}${{NIGHTSHIFT_PROBE:+?}} >> {box.folder}/order"


def order(box):
    path = box.folder / "order"
    return path.read_text().split() if path.exists() else []


def submit(box, command, *options):
    said = box.run("submit", *options, "--", command)
    assert said.returncode == 0, said.stderr
    return max(job.id for job in box._look().jobs.find())


def kinds(box, job_id):
    return [notice.kind for notice in box.notices(job_id)]


def is_trying(box, job_id):
    return box.job(job_id)["phase"] == "trying"


def test_a_failing_job_is_told_at_once_though_others_are_before_it(box):
    box.start_runner(gpus=ONE_GPU)
    busy = box.submit(until(box, "a"))
    box.wait_state(busy, "RUNNING")
    front = box.submit(f"{says(box, 'front')}; {until(box, 'b')}")
    broken = submit(
        box, f"{says(box, 'it')}; test -e {box.folder}/fixed || {{ echo ImportError: no torch; exit 3; }}", "--try"
    )
    go(box, "a")
    eventually(lambda: box.job(broken)["held_by"])
    box.wait_state(front, "RUNNING")
    assert order(box) == ["it?", "front"]
    (notice,) = box.notices(broken)
    end = notice.payload
    assert (notice.kind, end.state, end.exit_code, end.attempt) == ("trial failed", "FAILED", 3, 1)
    assert "held by its trial, which failed" in box.run("ls").stdout
    assert "ImportError" in box.run("log", str(broken)).stdout
    go(box, "fixed")
    assert box.run("release", str(broken)).returncode == 0
    go(box, "b")
    box.wait_state(broken, "SUCCEEDED")
    assert order(box) == ["it?", "front", "it?", "it"]  # tried once more, then run, once
    assert kinds(box, broken) == ["trial failed", "started", "ended"]
    shown = box.run("show", str(broken)).stdout
    assert [f"Attempt {n}" in shown for n in (1, 2, 3)] == [True] * 3
    assert "trial passed" in shown


def test_a_job_whose_trial_passes_keeps_its_place_and_nobody_is_disturbed(box):
    box.start_runner(gpus=ONE_GPU, try_for="1s")
    box.run("pause")
    kept = '[ "$WANDB_MODE" = disabled ] && ls -A "$NIGHTSHIFT_SCRATCH" && touch "$NIGHTSHIFT_SCRATCH/weights"'
    last = f"[ -z $NIGHTSHIFT_PROBE ] || {{ {kept}; sleep 300; }}"
    first = box.submit(says(box, "first"))
    tried = box.submit(f"echo {{run_id}} $NIGHTSHIFT_RUN_ID; {says(box, 'tried')}; {last}", "--try", "-t", "1h")
    after = box.submit(says(box, "after"))
    box.run("resume")
    for job_id in (first, tried, after):
        box.wait_state(job_id, "SUCCEEDED")
    assert order(box) == ["tried?", "first", "tried", "after"]
    assert kinds(box, tried) == ["started", "ended"]
    run_id = box.job(tried)["run_id"]
    trial = box.home / "runs" / str(tried) / "1"
    assert (trial / "output.log").read_text() == f"{run_id}-try {run_id}-try\n"
    assert box.log(tried) == f"{run_id} {run_id}\n"
    assert not (trial / "scratch").exists()


def test_a_trial_that_ends_with_0_is_not_the_run(box):
    """A program may do less in a trial, so only the run says that the job is done."""
    box.start_runner(gpus=ONE_GPU)
    job_id = submit(box, says(box, "it"), "--try")
    assert box.wait_state(job_id, "SUCCEEDED")["attempt"] == 2
    assert order(box) == ["it?", "it"]


@pytest.mark.parametrize("on_term", ["exit 0", "exit 1"])
def test_a_job_that_is_killed_while_it_is_tried_is_gone(box, on_term):
    box.start_runner(gpus=ONE_GPU)
    job_id = submit(box, f"trap '{on_term}' TERM; {says(box, 'it')}; while :; do sleep 0.05; done", "--try")
    eventually(lambda: order(box))
    assert "is being tried" in box.run("hold", str(job_id)).stderr
    assert box.run("kill", str(job_id)).returncode == 0
    assert box.wait_state(job_id, "CANCELLED")["reason"] == "USER"
    assert kinds(box, job_id) == ["ended"]
    assert order(box) == ["it?"]


def test_a_runner_killed_while_a_job_is_tried_goes_on_with_the_trial(box):
    settings = {"gpus": ONE_GPU, "try_for": "3s"}
    box.start_runner(**settings)
    job_id = submit(box, f"{says(box, 'it')}; {until(box, 'a')}", "--try", "-t", "1h")
    eventually(lambda: is_trying(box, job_id))
    box.stop_runner(signal.SIGKILL)
    assert box.run("extend", str(job_id), "1h").returncode == 0  # the job's limit, not that of the trial
    box.start_runner(**settings)
    eventually(lambda: order(box) == ["it?", "it"])
    go(box, "a")
    job = box.wait_state(job_id, "SUCCEEDED")
    assert job["attempt"] == 2
    assert order(box) == ["it?", "it"]


def test_a_job_that_cannot_be_started_says_why(box):
    box.start_runner(gpus=ONE_GPU)
    job_id = box.submit("", "--try", argv=["no-such-program"])
    (notice,) = eventually(lambda: box.notices(job_id))
    assert (notice.kind, notice.payload.reason) == ("trial failed", "SPAWN")
    assert "command not found" in notice.payload.why


def kill_supervisor(box, job_id):
    eventually(lambda: is_trying(box, job_id))
    os.kill(rundir.read_started(rundir.folder_of(str(box.home), job_id, 1)).pid, signal.SIGKILL)


def test_a_lost_trial_is_repeated_if_retries_were_asked_for(box):
    box.start_runner(gpus=ONE_GPU, try_for="1s")
    job_id = submit(box, f"{says(box, 'it')}; {until(box, 'a')}", "--try", "--retries", "1")
    kill_supervisor(box, job_id)
    eventually(lambda: order(box) == ["it?", "it?", "it"])
    go(box, "a")
    box.wait_state(job_id, "SUCCEEDED")
    assert "trial failed" not in kinds(box, job_id)


def test_a_trial_whose_supervisor_is_killed_holds_the_job_and_is_told(box):
    box.start_runner(gpus=ONE_GPU)
    job_id = submit(box, f"{says(box, 'it')}; {until(box, 'a')}", "--try")
    kill_supervisor(box, job_id)
    eventually(lambda: box.job(job_id)["held_by"])
    (notice,) = box.notices(job_id)
    assert (notice.kind, notice.payload.reason) == ("trial failed", "SUPERVISOR")
    go(box, "a")
    box.run("release", str(job_id))
    box.wait_state(job_id, "SUCCEEDED")
    assert order(box) == ["it?", "it?", "it"]


def test_a_job_is_not_tried_before_the_jobs_it_depends_on(box):
    box.start_runner(gpus="sim:2x24GiB")
    data = box.submit(until(box, "a"))
    job_id = submit(box, says(box, "it"), "--try", "--after-ok", str(data))
    other = box.submit("true")
    box.wait_state(other, "SUCCEEDED")  # there was room
    assert order(box) == []
    go(box, "a")
    box.wait_state(job_id, "SUCCEEDED")
    assert order(box) == ["it?", "it"]


def test_an_edited_job_is_tried_again(box):
    box.start_runner(gpus=ONE_GPU)
    job_id = submit(box, f"{says(box, 'it')}; exit 1", "--try")
    eventually(lambda: box.job(job_id)["held_by"])
    assert box.run("edit", str(job_id), "--", says(box, "mended")).returncode == 0
    box.run("release", str(job_id))
    box.wait_state(job_id, "SUCCEEDED")
    assert order(box) == ["it?", "mended?", "mended"]


def test_ten_trials_go_ahead_and_then_a_job_has_its_turn(box):
    box.start_runner(gpus=ONE_GPU)
    box.run("pause")
    box.submit(f"{says(box, 'front')}; sleep 300")
    for _ in range(12):
        box.submit(says(box, "it"), "--try")
    box.run("resume")
    eventually(lambda: "front" in order(box))
    assert order(box) == ["it?"] * 10 + ["front"]


def test_a_probed_job_is_tried_at_its_first_batch_which_may_be_too_large(box):
    box.start_runner(gpus=ONE_GPU)
    too_large = 'echo "torch.OutOfMemoryError: CUDA out of memory."; exit 1'
    job_id = submit(
        box, f"echo batch {{batch_size}}; case $NIGHTSHIFT_RUN_ID in *-try) {too_large};; esac; sleep 300", "--try"
    )
    eventually(lambda: box.job(job_id)["phase"] == "probing")
    assert box.job(job_id)["attempt"] == 2
    assert (box.home / "runs" / str(job_id) / "1" / "output.log").read_text().startswith("batch 8\n")
    assert kinds(box, job_id) == []
