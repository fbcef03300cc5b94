"""A sweep from the terminal: queued, limited, compared, repeated, stopped as one."""

import json

import pytest

from runner.model import State
from tests.box import Box, a_box

TRAIN = "test {n} != 3 && echo step 1 val_loss=9 && echo val_loss=0.{n}"


@pytest.fixture
def swept(box: Box):
    """Of four jobs the third fails; the runner starts them two at a time."""
    words = [TRAIN, "-g", "0", "-p", "n", "1", "2", "3", "4", "--sampling-mode", "grid", "--at-most", "2"]
    done = box.run("sweep", *words, "--metric", "val_loss=([0-9.e-]+)", "--largest")
    assert done.stdout == "sweep-1: 4 jobs, 1–4\n"
    return box


def test_a_sweep_from_its_start_to_its_end(swept: Box):
    box = swept
    assert "sweep-1: 0 of 4 done, 4 waiting; at most 2 at once" in box.run("group").stdout
    shown = box.run("show", "2").stdout
    assert "Group        sweep-1\n" in shown
    assert "Parameters   n = 2\n" in shown
    box.start_runner("none", cpu_slots="4", breaker="0")
    assert box.run("wait", "--group", "sweep-1").returncode == 1
    said = box.run("group", "sweep-1", "--at-most", "none").stdout.splitlines()
    assert said[:4] == [
        "sweep-1: no limit.",
        "sweep-1: 3 of 4 done, 1 failed",
        TRAIN,
        "best val_loss 0.4 with n=4 (the largest is best)",
    ]
    assert [line.split()[:3] for line in said[5:]] == [
        ["ID", "n", "val_loss"],
        ["4", "4", "0.4"],
        ["2", "2", "0.2"],
        ["1", "1", "0.1"],
        ["3", "3", "failed,"],
    ]
    rows = box.run("group", "--csv", "sweep-1").stdout.splitlines()
    assert rows[0].startswith("job,n,val_loss,state,reason,exit_code,")
    assert rows[-1].startswith("3,3,,FAILED,EXIT,1,")
    found = json.loads(box.run("group", "sweep-1", "--json").stdout)
    assert (found["best"], found["counts"]) == (4, {"FAILED": 1, "SUCCEEDED": 3})
    assert found["jobs"][0] == found["jobs"][0] | {"id": 4, "parameters": {"n": "4"}, "value": 0.4}
    assert json.loads(box.run("group", "--json").stdout)[0]["parameters"] == {"n": ["1", "2", "3", "4"]}
    assert box.run("rerun", "--group", "sweep-1", "--failed").stdout == "Submitted job 5 (3 again)\n"
    box.wait_state(5, "FAILED")
    assert [one.payload.counts for one in box.notices(None) if one.kind == "group done"] == [
        {"FAILED": 1, "SUCCEEDED": 3},
        {"FAILED": 1},
    ]


def test_no_more_than_so_many_run_at_once(box: Box):
    box.start_runner("none", cpu_slots="4")
    box.run("sweep", "sleep 300; echo {n}", "-g", "0", "-p", "n", "1", "2", "3", "--at-most", "2")
    box.wait_state(1, "RUNNING")
    box.wait_state(2, "RUNNING")
    box.wait_state(3, "QUEUED")
    assert box.job(3)["waiting_for"] == "at most 2 of sweep-1 at once"
    assert box.run("group", "sweep-1", "--at-most", "3").returncode == 0
    box.wait_state(3, "RUNNING")
    done = box.run("kill", "--group", "sweep-1", "--wait")
    assert done.returncode == 0
    with box.queue() as queue:
        assert queue.groups.counts("sweep-1") == {State.CANCELLED: 3}


@pytest.fixture(scope="module")
def idle_sweep():
    """Queued, and no runner is up."""
    with a_box() as box:
        box.run("sweep", "echo {n}", "-g", "0", "-p", "n", "1", "2")
        yield box


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["group", "nope"], "There is no group 'nope'. The latest: sweep-1."),
        (["group", "--csv"], "Which group?"),
        (["group", "sweep-1", "--at-most", "0"], "write 1, 2, 3"),
        (["group", "sweep-1", "--metric", "a b"], "no ( ) around the number"),
        (["group", "sweep-1", "--largest"], "--largest of what"),
        (["kill", "--group", "nope"], "There is no group 'nope'"),
        (["rerun", "--failed"], "rerun --group NAME --failed"),
        (["rerun", "--group", "sweep-1", "--failed"], "sweep-1: none of it has failed."),
        (["rerun"], "Which jobs?"),
        (["wait", "1", "--group", "sweep-1"], "not both"),
        (["submit", "-g", "0", "--group", "7", "--", "true"], "not a group's name"),
        (["sweep", "x {a}", "-p", "a", "1", "--print", "--at-most", "2"], "Give --at-most to"),
    ],
)
def test_slips_are_refused_with_what_to_type(idle_sweep: Box, words, said):
    done = idle_sweep.run(*words)
    assert done.returncode == 1
    assert said in done.stderr
