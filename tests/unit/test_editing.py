"""Editing a job that waits: what is named is set, what is cleared goes, the rest stays, and all of it is checked."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from runner import clock
from runner.api import Queue
from runner.api.edits import CLEAR, Edit, options_of
from runner.config.option_reader import read_words
from runner.config.workspace import Workspace
from runner.errors import NoSuchJobError, UserError
from runner.gpu.published import publish
from runner.model import Gpu, Priority, Snapshot, State
from runner.schedule.request import request_of
from runner.snapshot.code_copy import work_folder
from runner.store.box import Box, BoxKey
from runner.store.scheduling_queries import CPU
from tests.jobs import a_probe_report, an_exit, submit


@pytest.fixture
def queue(tmp_path):
    with Queue(str(tmp_path / "home"), actor="somebody") as queue:
        yield queue


def as_typed(*words):
    values, rest, _ = read_words(words, (CLEAR,))
    return Edit(values=values, command=rest[0] if len(rest) == 1 else None, argv=rest if len(rest) > 1 else None)


def edit(queue, job_id, *words):
    return queue.edit(job_id, as_typed(*words))


def ready(queue):
    return [waiting.id for waiting in queue.line.waiting(100)]


def row(queue, job_id):
    return queue.store.row("SELECT * FROM jobs WHERE id = ?", (job_id,))


def test_what_is_named_is_set_and_the_rest_stays(queue):
    [job_id] = submit(queue, "python a.py", time_limit_s=60.0, name="night", env={"A": "1"}, gpus=2)
    before = queue.job(job_id).spec
    said = edit(queue, job_id, "--priority", "high", "-t", "1h30m", "--env", "B=2", "--gpu-mem", "20G")
    assert said == (f"Job {job_id} is edited: env B set, gpu-mem none → 20G, time 1m → 1h30m, priority normal → high.")
    after = queue.job(job_id).spec
    assert after == replace(
        before, priority=Priority.HIGH, time_limit_s=5400.0, env={"A": "1", "B": "2"}, gpu_mem_mib=20 << 10
    )
    [event] = [one for one in queue.jobs.events(job_id) if one["kind"] == "edited"]
    assert event["data"]["changed"]["priority"] == ["normal", "high"]
    assert event["data"]["changed"]["time_limit_s"] == [60.0, 5400.0]
    assert [(one["actor"], one["action"]) for one in queue.audit.rows()][-1] == ("somebody", "edit")
    assert edit(queue, job_id, "-p", "high") == f"Nothing to change: job {job_id} already has these settings."
    assert len(queue.jobs.events(job_id)) == 2


def test_values_of_variables_are_told_nowhere(queue):
    [job_id] = submit(queue, "true", env={"OLD": "hidden-old", "KEPT": "hidden-kept"})
    said = edit(queue, job_id, "--clear", "env", "--env", "NEW=hidden-new", "--env", "KEPT=hidden-kept")
    assert said == f"Job {job_id} is edited: env NEW set, env OLD removed."
    written = json.dumps([queue.jobs.events(job_id), [dict(one) for one in queue.audit.rows()]])
    assert "hidden" not in written + said + options_of(queue.job(job_id).spec)
    assert queue.job(job_id).spec.env == {"NEW": "hidden-new", "KEPT": "hidden-kept"}


def test_what_is_cleared_is_as_if_it_had_never_been_said(queue):
    first, job_id = submit(queue, "a", "b")
    edit(
        queue,
        job_id,
        *[
            "--after",
            "1",
            "--begin",
            "+2h",
            "--on",
            "0,1",
            "-g",
            "1",
            "--name",
            "x",
            "--group",
            "g",
            "--retries",
            "3",
            "--preemptible",
            "--try",
        ],
    )
    assert ready(queue) == [first]
    assert queue.groups.get("g").owner == "somebody"
    edit(queue, job_id, "--clear", "after,begin,on,name,group,retries,preemptible,try")
    assert queue.job(job_id).spec == replace(queue.job(first).spec, command="b")
    assert ready(queue) == [first, job_id]
    with pytest.raises(UserError, match=r"'tim' cannot be cleared: choose from .*retry-on, snapshot, stop-on, time"):
        edit(queue, job_id, "--clear", "tim")
    for always in ("dir", "workspace", "profile"):
        with pytest.raises(UserError, match="cannot be cleared"):
            edit(queue, job_id, "--clear", always)


def test_lane_rank_and_retries_follow(queue):
    [job_id] = submit(queue, "a", retries=2)
    job = queue.job(job_id)
    queue.jobs.use_retry(job)
    edit(queue, job_id, "--retries", "5", "-p", "low", "-g", "0")
    found = row(queue, job_id)
    assert (found["retries_left"], found["rank"]) == (4, 1)
    [waiting] = queue.line.waiting(1)
    assert waiting.request == request_of(queue.job(job_id).spec)
    edit(queue, job_id, "--retries", "0")
    assert row(queue, job_id)["retries_left"] == 0


def test_another_command_as_text_or_as_arguments(queue):
    [job_id] = submit(queue, "", argv=["python", "a b.py"])
    edit(queue, job_id, "--", "echo hi | cat")
    assert (queue.job(job_id).spec.command, queue.job(job_id).spec.argv) == ("echo hi | cat", None)
    assert edit(queue, job_id, "--", "echo", "a b") == f"Job {job_id} is edited: another command."
    assert (queue.job(job_id).spec.command, queue.job(job_id).spec.argv) == ("echo 'a b'", ("echo", "a b"))


def test_a_batch_is_probed_as_long_as_something_asks_for_it(queue):
    [job_id] = submit(queue, "python a.py")
    edit(queue, job_id, "--", "python a.py --bs {batch_size}")
    assert queue.job(job_id).spec.probe == {}
    edit(queue, job_id, "--batch", "32")
    assert queue.job(job_id).spec.probe == {"own": 32}
    edit(queue, job_id, "--name", "x")
    assert queue.job(job_id).spec.probe == {"own": 32}
    with pytest.raises(UserError, match="asks for no GPU"):
        edit(queue, job_id, "-g", "0")
    edit(queue, job_id, "--", "python a.py")
    assert queue.job(job_id).spec.probe is None
    edit(queue, job_id, "--batch-arg=--bs")
    edit(queue, job_id, "--", "python b.py")
    assert queue.job(job_id).spec.probe == {"batch_arg": "--bs"}
    with pytest.raises(UserError, match="No argument can be added"):
        edit(queue, job_id, "--", "python b.py | tee log")
    edit(queue, job_id, "--clear", "probe")
    assert queue.job(job_id).spec.probe is None


def test_what_was_measured_of_another_command_counts_no_more(queue):
    [job_id] = submit(queue, "python a.py", probe={})
    attempt = queue.jobs.claim(job_id, [("GPU-a", 0)], "boot")
    job = queue.job(job_id)
    queue.jobs.started(job, "2026-01-01T00:00:00.000000+00:00")
    report = a_probe_report()
    queue.jobs.probed(queue.job(job_id), report, 24, "batch 24")
    queue.jobs.back_to_queue(queue.job(job_id), "again")
    edit(queue, job_id, "-p", "high")
    assert (queue.jobs.probe(job_id, attempt), queue.job(job_id).batch_size) == (report, 24)
    edit(queue, job_id, "--", "python b.py")
    assert queue.jobs.probe(job_id, attempt) == replace(report, edited=True)
    assert queue.job(job_id).batch_size is None


def test_another_folder_or_workspace(queue, tmp_path):
    [job_id] = submit(queue, "true", folder=str(tmp_path))
    (tmp_path / "in").mkdir()
    edit(queue, job_id, "--dir", "in")
    assert queue.job(job_id).spec.dir == str(tmp_path / "in")
    with pytest.raises(UserError, match="does not exist"):
        edit(queue, job_id, "--dir", "/nowhere")
    place = Workspace(name="lab", dir=str(tmp_path), env_file="/keys")
    wanted = Edit(values={"workspace": "lab"}, workspace=place, environment=("key", {"PATH": "/x"}))
    assert "workspace none → lab" in queue.edit(job_id, wanted)
    spec = queue.job(job_id).spec
    assert (spec.workspace, spec.dir, spec.env_file, spec.environment) == ("lab", str(tmp_path), "/keys", "key")
    assert queue.jobs.environment("key") == {"PATH": "/x"}


def test_nothing_unrunnable_is_stored(queue, tmp_path):
    [job_id] = submit(queue, "true", gpus=1)
    gpu = Gpu(index=0, uuid="GPU-a", name="A5000", memory_total_mib=24 << 10, memory_used_mib=0)
    snapshot = Snapshot(at=clock.text(clock.now()), boot_id="b", simulated=True, gpus=(gpu,))
    publish(queue.home, json.dumps(snapshot.to_json()))
    Box(queue.store).set(BoxKey.TIMES, {"usual_s": 600.0, "longest_s": 3600.0})
    before = dict(row(queue, job_id))
    for words, said in {
        ("-g", "2", "-t", "1m"): "this box has 1 GPU",
        ("--gpu-type", "h100", "-t", "1m"): "No GPU of this box is of type h100",
        ("--time", "2h"): "may run for 1h 00m here",
        ("--name", "x"): "may run for 1h 00m here",  # submitted before there was a limit
        ("-t", "1m", "--", " "): "There is no command",
        ("-t", "1m", "--", "sleep 9 &"): "&",
        ("-t", "1m", "--on", "5"): "There is no GPU 5",
        ("-t", "1m", "--after", "99"): "There is no job 99",
    }.items():
        with pytest.raises(UserError, match=said):
            edit(queue, job_id, *words)
    assert dict(row(queue, job_id)) == before
    edit(queue, job_id, "--time", "1h", "--on", "0")
    edit(queue, job_id, "--clear", "time")
    assert queue.job(job_id).spec.time_limit_s == 600.0  # the box's own, as when it is submitted
    with pytest.raises(UserError, match="add --gpus 1 to use them, or --clear on"):
        edit(queue, job_id, "-g", "0")
    with pytest.raises(UserError, match="but --on names only 0"):
        edit(queue, job_id, "-g", "2")
    edit(queue, job_id, "-g", "0", "--clear", "on")
    with pytest.raises(UserError, match="What do you want to change"):
        queue.edit(job_id, Edit())


def test_only_what_waits_can_be_edited(queue):
    running, ended = submit(queue, "a", "b")
    queue.jobs.claim(running, [(CPU, 0)], "boot")
    queue.stop(ended)
    with pytest.raises(UserError, match=r"is already running: only a job that waits can be held, moved or edited\."):
        edit(queue, running, "-p", "high")
    with pytest.raises(UserError, match="has ended"):
        edit(queue, ended, "-p", "high")
    with pytest.raises(NoSuchJobError):
        edit(queue, 99, "-p", "high")
    assert [one["action"] for one in queue.audit.rows()] == ["submit", "kill"]


# -- what it waits for -------------------------------------------------------------------------------


def test_a_job_comes_after_those_named_now_and_no_others(queue):
    a, b, c = submit(queue, "a", "b", "c")
    edit(queue, c, "--after", str(a))
    assert ready(queue) == [a, b]
    edit(queue, c, "--after", str(b), "--after-ok", str(b))
    queue.stop(a)
    assert queue.job(c).state is State.QUEUED
    edit(queue, c, "--clear", "after-ok")
    queue.stop(b)
    assert queue.job(c).state is State.QUEUED
    assert ready(queue) == [c]


def test_no_job_comes_after_one_that_waits_for_it(queue):
    a, b, c = submit(queue, "a", "b", "c")
    edit(queue, b, "--after", str(a))
    edit(queue, c, "--after-ok", str(b))
    with pytest.raises(UserError, match=f"Job {c} waits for job {a}. If each waited for the other"):
        edit(queue, a, "--after", str(c))
    with pytest.raises(UserError, match="cannot come after itself"):
        edit(queue, a, "--after-ok", str(a))
    assert queue.job(a).spec.after == ()
    edit(queue, c, "--clear", "after-ok")
    edit(queue, a, "--after", str(c))
    assert ready(queue) == [c]


def test_one_that_waited_for_what_is_long_forgotten_can_be_edited(queue):
    a, b = submit(queue, "a", "b")
    edit(queue, b, "--after", str(a))
    queue.stop(a)
    queue.store.execute("DELETE FROM jobs WHERE id = ?", (a,))
    edit(queue, b, "-p", "high")
    assert queue.job(b).spec.after == (a,)
    assert ready(queue) == [b]
    [c] = submit(queue, "c")
    queue.stop(c)
    with pytest.raises(UserError, match="so a job that needs its success would never start"):
        edit(queue, b, "--after-ok", str(c))


def test_a_held_job_stays_held_whatever_it_waits_for(queue):
    a, b = submit(queue, "a", "b")
    queue.order.hold(b)
    edit(queue, b, "--begin", "+2h", "--after", str(a))
    edit(queue, b, "--clear", "begin,after")
    assert ready(queue) == [a]
    queue.order.release(b)
    assert ready(queue) == [a, b]


def test_another_time_to_begin(queue):
    [job_id] = submit(queue, "a", begin_at=clock.text(clock.now() + timedelta(hours=1)))
    edit(queue, job_id, "-p", "high")
    assert ready(queue) == []
    edit(queue, job_id, "--begin", "+3h")
    assert row(queue, job_id)["begin_at"] == queue.job(job_id).spec.begin_at
    edit(queue, job_id, "--clear", "begin")
    assert ready(queue) == [job_id]


# -- beside the scheduler ----------------------------------------------------------------------------


def test_a_start_that_was_planned_for_something_else_does_not_happen(queue):
    """The runner looks, then claims: between the two the job may have been made one that wants two GPUs."""
    [job_id] = submit(queue, "a")
    [waiting] = queue.line.waiting(1)
    edit(queue, job_id, "-g", "2")
    assert queue.jobs.claim(job_id, [("GPU-a", 0)], "boot", asked=waiting.request) is None
    assert queue.line.leases() == []
    [waiting] = queue.line.waiting(1)
    assert queue.jobs.claim(job_id, [("GPU-a", 0), ("GPU-b", 0)], "boot", asked=waiting.request) == 1


def test_the_options_a_job_has_can_be_typed_again(queue):
    typed = ["-g", "2", "-t", "1d2h3m4s", "--gpu-mem", "20G", "-m", "1500M", "-p", "low", "--preemptible", "--try"]
    typed += ["--group", "g", "--retries", "2", "--retry-on", "exit,oom", "--grace", "500ms", "--hung", "kill"]
    a, b = submit(queue, "a", "b")
    edit(queue, a, *typed)
    told = options_of(queue.job(a).spec)
    edit(queue, b, *told.split())
    assert replace(queue.job(b).spec, command="a") == queue.job(a).spec
    assert options_of(queue.job(submit(queue, "c")[0]).spec) == ""


def copied(queue, job_id):
    """What is in the copy that a job runs from."""
    spec = queue.job(job_id).spec
    return (Path(work_folder(queue.home, spec)) / "train.py").read_text()


def test_the_code_as_it_is_now_replaces_the_copy_a_job_had_or_gives_it_one(queue, tmp_path):
    project, other = tmp_path / "project", tmp_path / "other"
    for folder in (project, other):
        folder.mkdir()
        (folder / "train.py").write_text(f"old {folder.name}")
    plain, frozen = submit(queue, "a", folder=str(project)) + submit(queue, "b", folder=str(project), snapshot=True)
    (project / "train.py").write_text("new")
    assert edit(queue, plain, "--snapshot") == f"Job {plain} is edited: a copy of the code as it is now."
    assert (copied(queue, plain), copied(queue, frozen)) == ("new", "old project")
    edit(queue, frozen, "--snapshot", "--time", "1h")
    assert copied(queue, frozen) == "new"
    assert "--snapshot" in options_of(queue.job(frozen).spec).split()
    assert edit(queue, frozen, "--snapshot") == f"Nothing to change: job {frozen} already has these settings."
    assert "a copy of the code as it is now" in edit(queue, frozen, "--dir", str(other))
    assert copied(queue, frozen) == "old other"
    assert edit(queue, frozen, "--clear", "snapshot") == f"Job {frozen} is edited: snapshot yes → no."
    assert queue.job(frozen).spec.snapshot is None
    with pytest.raises(UserError, match="nowhere"):
        edit(queue, plain, "--dir", str(tmp_path / "nowhere"))
    assert copied(queue, plain) == "new"


@pytest.mark.parametrize(
    ("has", "words", "said"),
    [
        ({}, ["--retry-on", "exit"], "add --retries 2"),
        ({"gpu_mem_mib": 4096}, ["-g", "0"], "add --clear gpu-mem,gpu-type"),
        ({"gpus": 0}, ["--gpu-type", "a5000"], "add --clear gpu-mem,gpu-type"),
    ],
)
def test_an_option_that_says_nothing_without_another_is_refused(queue, has, words, said):
    [job_id] = submit(queue, "true", **has)
    with pytest.raises(UserError, match=said):
        edit(queue, job_id, *words)
    values, _, _ = read_words(words)
    with pytest.raises(UserError, match=r"how often|leave out --gpu-mem and --gpu-type"):
        submit(queue, "true", **{**has, **values})


def test_other_gpus_are_as_many_as_before(queue):
    [job_id] = submit(queue, "true")
    assert edit(queue, job_id, "--on", "0,1") == f"Job {job_id} is edited: on none → 0,1."
    assert queue.job(job_id).spec.gpus == 1
    assert queue.job(submit(queue, "true", on=("0", "1"))[0]).spec.gpus == 2
    edit(queue, job_id, "--gpus", "2")
    with pytest.raises(UserError, match="add --gpus 1"):
        edit(queue, job_id, "--on", "0")


def test_an_extended_job_is_not_tried_again(queue):
    [job_id] = submit(queue, "a", trial=True, time_limit_s=60.0)
    queue.jobs.claim(job_id, [("GPU-a", 0)], "boot")
    queue.extend(job_id, 60.0)
    assert queue.job(job_id).untried
    queue.jobs.passed(queue.job(job_id), "passed", None, an_exit())
    queue.extend(job_id, 60.0)
    assert not queue.job(job_id).untried
