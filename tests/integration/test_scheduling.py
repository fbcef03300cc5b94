"""What a job may ask for, with a real runner: kinds of GPUs, times, others, and room for those who matter more."""

import json
import os
import re
import signal

from runner import clock
from runner.store.scheduling_queries import Line
from tests.wait import eventually


def until(box, name):
    """A command that ends when there is a file of this name."""
    return f"until [ -e {box.folder}/{name} ]; do sleep 0.05; done"


def go(box, name):
    (box.folder / name).touch()


def waits_for(box, job_id):
    return box.job(job_id)["waiting_for"]


# -- after others ------------------------------------------------------------------------------------


def test_a_job_after_others_starts_when_they_have_done_what_it_waits_for(box):
    box.start_runner(gpus="sim:4x24GiB")
    first, second = box.submit(until(box, "a")), box.submit(f"{until(box, 'b')}; exit 3")
    both = box.submit("true", "--after-ok", f"{first}", "--after", f"{second}")
    assert waits_for(box, both) == f"after #{first}, #{second}"
    assert f"after #{first}" in box.run("show", str(both)).stdout
    go(box, "a")
    box.wait_state(first, "SUCCEEDED")
    assert waits_for(box, both) == f"after #{second}"
    go(box, "b")
    box.wait_state(second, "FAILED")
    box.wait_state(both, "SUCCEEDED")


def test_what_can_never_run_any_more_is_cancelled_and_so_is_what_waits_for_that(box):
    box.start_runner()
    first = box.submit(f"{until(box, 'a')}; exit 1")
    second = box.submit("true", "--after-ok", str(first))
    third = box.submit("true", "--after-ok", str(second))
    whatever = box.submit("true", "--after-any", str(second))
    go(box, "a")
    for job_id in (second, third):
        job = box.wait_state(job_id, "CANCELLED")
        assert (job["reason"], job["exit_code"]) == ("DEPENDENCY", None)
        assert [notice.kind for notice in box.notices(job_id)] == ["ended"]
    box.wait_state(whatever, "SUCCEEDED")
    said = box.run("submit", "--after-ok", str(first), "--", "true")
    assert said.returncode == 1
    assert f"Job {first} has ended (failed)" in said.stderr
    assert f"--after {first}" in said.stderr
    assert "no job 99" in box.run("submit", "--after", "99", "--", "true").stderr
    assert box.run("rerun", str(second)).returncode == 0  # now, since somebody asks for it now
    box.wait_state(whatever + 1, "SUCCEEDED")


def test_a_job_that_is_held_and_waits_for_others_needs_both(box):
    box.start_runner()
    first = box.submit(until(box, "a"))
    second = box.submit("true", "--after", str(first))
    box.run("hold", str(second))
    go(box, "a")
    box.wait_state(first, "SUCCEEDED")
    assert waits_for(box, second).startswith("held by")
    box.run("release", str(second))
    box.wait_state(second, "SUCCEEDED")


# -- edited while they wait --------------------------------------------------------------------------


def test_what_is_edited_and_moved_is_what_is_run_and_when(box):
    box.start_runner(gpus="none", cpu_slots="1")
    first = box.submit(until(box, "a"), "-g", "0")
    box.wait_state(first, "RUNNING")
    last, second, third = (box.submit(f"echo {name} >> {box.folder}/ran", "-g", "0") for name in ("d", "b", "wrong"))
    fourth = box.submit(f"echo c >> {box.folder}/ran", "-g", "0")
    assert box.run("move", str(last), "after", str(fourth)).stdout == f"Job {last} is now after job {fourth}.\n"
    done = box.run("edit", str(third), "-p", "high", "--env", "WHAT=a", "--", f"echo $WHAT >> {box.folder}/ran")
    assert done.stdout == f"Job {third} is edited: another command, env WHAT set, priority normal → high.\n"
    refused = box.run("edit", f"{first},{second}", "--name", "b")
    assert (refused.returncode, refused.stdout) == (1, f"Job {second} is edited: name none → b.\n")
    assert f"Job {first} is already running" in refused.stderr
    go(box, "a")
    box.wait_state(last, "SUCCEEDED")
    assert (box.folder / "ran").read_text().split() == ["a", "b", "c", "d"]


# -- not before --------------------------------------------------------------------------------------


def test_a_job_begins_when_its_time_has_come(box):
    box.start_runner()
    soon, late = box.submit("true", "--begin", "+2s"), box.submit("true", "--begin", "+2h")
    assert waits_for(box, late).startswith("begins at ")
    job = box.wait_state(soon, "SUCCEEDED")
    assert job["started_at"] >= job["begin_at"]
    assert box.job(late)["state"] == "QUEUED"


# -- which GPUs --------------------------------------------------------------------------------------


def test_a_kind_of_gpu_or_memory_that_is_not_there_is_refused(box):
    box.start_runner(gpus="sim:1x24GiB", cpus="4", ram="16G", time_max="12h")
    for words, said in {
        ("-v", "1080ti", "-t", "1h"): "No GPU of this box is of type 1080ti",
        ("--gpu-mem", "80G", "-t", "1h"): "the largest here has 23.",
        ("-c", "8", "-t", "1h"): "wants 8 CPU cores; this box has 4",
        ("-m", "32", "-t", "1h"): "wants 32.0 GiB of memory; this box has 16.0 GiB",
        ("-t", "13h"): "may run for 12h 00m here",
    }.items():
        done = box.run("submit", *words, "--", "true")
        assert (done.returncode, said in done.stderr) == (1, True), done.stderr


def test_a_box_may_have_a_time_limit_of_its_own(box):
    without = box.submit("true")
    box.start_runner(time="1h", time_max="2h")
    assert box.job(box.submit("true"))["time_limit_s"] == 3600
    assert box.job(box.submit("true", "-t", "2h"))["time_limit_s"] == 7200
    copied = box.run("submit", "--json", "--snapshot", "--", "true", cwd=box.home.parent / "person")
    assert box.job(json.loads(copied.stdout)["ids"][0])["time_limit_s"] == 3600
    with box.queue() as queue:
        assert queue.job(queue.rerun(without)).spec.time_limit_s == 3600


def test_as_many_share_a_gpu_as_their_memory_allows(box):
    box.start_runner(gpus="sim:1x24GiB", slots_per_gpu="4", settle="0s")
    small = [box.submit(until(box, "a"), "--gpu-mem", "10G") for _ in range(2)]
    large = box.submit(until(box, "b"), "--gpu-mem", "12G")
    for job_id in small:
        box.wait_state(job_id, "RUNNING")
    with box.queue() as queue:
        assert [lease.memory_mib for lease in Line(queue.store).leases()] == [10 << 10] * 2
    assert waits_for(box, large).startswith("needs 1 GPU with 12.0 GiB, 0 free; GPU 0 has 3.")
    go(box, "a")
    box.wait_state(large, "RUNNING")
    go(box, "b")
    box.wait_state(large, "SUCCEEDED")


def test_two_starts_on_one_gpu_do_not_overlap(box):
    box.start_runner(gpus="sim:1x24GiB", slots_per_gpu="2", settle="2s")
    first, second = box.submit(until(box, "a")), box.submit(until(box, "a"))
    started = [box.wait_state(job_id, "RUNNING")["started_at"] for job_id in (first, second)]
    assert started[1] > started[0]
    with box.queue() as queue:
        claims = queue.store.rows("SELECT claimed_at FROM attempts ORDER BY job_id")
    waited = clock.moment(claims[1]["claimed_at"]) - clock.moment(claims[0]["claimed_at"])
    assert waited.total_seconds() >= 1.9
    go(box, "a")


# -- who goes first ----------------------------------------------------------------------------------


def test_what_is_preemptible_makes_room_is_told_and_goes_on_later(box):
    box.start_runner(gpus="sim:1x24GiB")
    again = box.folder / "second"
    saving = f"trap 'echo saved; exit 0' TERM; [ -e {again} ] && exit 0; touch {again}; sleep 300 & wait"
    filler = box.submit(saving, "--preemptible", "-p", "low")
    eventually(again.exists)
    before = box.job(filler)
    urgent = box.submit(until(box, "a"))
    box.wait_state(urgent, "RUNNING")
    waiting = box.job(filler)
    assert (waiting["state"], waiting["attempt"], waiting["stop"]) == ("QUEUED", 1, None)
    assert box.log(filler) == "saved\n"
    told = [notice.payload.to_json() for notice in box.notices(filler) if notice.kind == "requeued"]
    assert [(one["reason"], one["why"]) for one in told] == [("PREEMPTED", f"it made room for #{urgent}")]
    go(box, "a")
    done = box.wait_state(filler, "SUCCEEDED")
    assert (done["attempt"], done["run_id"]) == (2, before["run_id"])

    began = box.folder / "began"
    slow = f"trap '{until(box, 'b')}; exit 0' TERM; touch {began}; sleep 300 & wait"
    filler = box.submit(slow, "--preemptible", "-p", "low", "--grace", "60s")
    eventually(began.exists)
    urgent, follower = box.submit("true"), box.submit("true", "--after-ok", str(filler))
    eventually(lambda: box.job(filler)["phase"] == "stopping")
    with box.queue() as queue:
        assert queue.stop(filler) == f"Job {filler} is being stopped."
        assert queue.stop(filler) == f"Job {filler} is already being stopped."
    go(box, "b")
    killed = box.wait_state(filler, "CANCELLED")
    assert (killed["reason"], killed["attempt"]) == ("USER", 1)
    assert box.wait_state(follower, "CANCELLED")["reason"] == "DEPENDENCY"
    box.wait_state(urgent, "SUCCEEDED")

    began.unlink()
    stuck = f"trap '' TERM; [ -e {began} ] && exit 0; touch {began}; sleep 300"
    filler = box.submit(stuck, "--preemptible", "-p", "low", "--grace", "60s")
    eventually(began.exists)
    box.submit("true")
    eventually(lambda: box.job(filler)["phase"] == "stopping")
    os.kill(next(pid for pid, name in box.processes().items() if name == "ns-supervisor"), signal.SIGKILL)
    assert box.wait_state(filler, "SUCCEEDED")["attempt"] == 2


def test_so_many_gpus_for_each_and_more_at_low_priority(box):
    box.start_runner(gpus="sim:4x24GiB", gpus_each="1", gpus_each_low="3")
    jobs = [box.submit(until(box, "a")) for _ in range(2)]
    low = box.submit(until(box, "a"), "-p", "low", "-g", "2")
    box.wait_state(low, "RUNNING")
    box.wait_state(jobs[0], "RUNNING")
    assert waits_for(box, jobs[1]) == "somebody has 1 of at most 1 GPU at once"
    done = box.run("submit", "-g", "2", "--", "true")
    assert (done.returncode, "-p low" in done.stderr) == (1, True)
    go(box, "a")
    box.wait_state(jobs[1], "SUCCEEDED")


# -- again -------------------------------------------------------------------------------------------


def end_pause(box, job_id, attempt):
    """The pause after this attempt is over; what the job said while it waited."""
    waiting = eventually(lambda: (job := box.job(job_id))["attempt"] == attempt and job["waiting_for"])
    with box.queue() as queue:
        begin_at, (ended,) = (
            queue.job(job_id).begin_at,
            [
                clock.moment(event["at"])
                for event in queue.jobs.events(job_id)
                if (event["kind"], event["attempt"]) == ("requeued", attempt)
            ],
        )
        queue.store.execute("UPDATE jobs SET begin_at = ? WHERE id = ?", (clock.text(clock.now()), job_id))
        queue.ring()
    return round((begin_at - ended).total_seconds()), re.sub(r" in \d+ s$", "", waiting)


def test_a_job_is_tried_again_for_the_reasons_it_names(box):
    box.start_runner()
    job_id = box.submit("exit 3", "--retries", "1", "--retry-on", "exit")
    other = box.submit("exit 3", "--retries", "1", "--retry-on", "signal")
    end_pause(box, job_id, 1)
    job = box.wait_state(job_id, "FAILED")
    assert (job["exit_code"], job["attempt"]) == (3, 2)
    assert box.wait_state(other, "FAILED")["attempt"] == 1


def test_a_job_that_always_fails_waits_longer_each_time_is_told_once_and_stops_the_queue(box):
    box.start_runner()
    job_id = box.submit("false", "--retries", "9999", "--retry-on", "exit")
    assert end_pause(box, job_id, 1) == (10, "retry 1 of 9999")
    assert end_pause(box, job_id, 2) == (20, "retry 2 of 9999")
    eventually(lambda: box.notices(None))  # the third attempt in a row
    (paused,) = box.notices(None)
    assert (paused.kind, list(paused.payload.jobs)) == ("paused", [job_id] * 3)
    assert paused.payload.why == "3 attempts in a row failed within seconds (exit code 1)"
    assert box.job(job_id)["waiting_for"].startswith("retry 3 of 9999 in ")
    started, again = box.notices(job_id)
    assert (started.kind, again.kind, again.payload.exit_code) == ("started", "requeued", 1)


def test_a_whole_box_goes_on_after_its_supervisors_were_lost(box):
    box.start_runner(retry_on="HOST,SUPERVISOR")
    job_id = box.submit(f"[ -e {box.folder}/again ] || {{ touch {box.folder}/again; sleep 300; }}")
    eventually((box.folder / "again").exists)
    box.wait_state(job_id, "RUNNING")
    supervisor = next(pid for pid, name in box.processes().items() if name == "ns-supervisor")
    os.kill(supervisor, signal.SIGKILL)
    assert box.wait_state(job_id, "SUCCEEDED")["attempt"] == 2


def test_what_was_asked_for_is_in_the_json(box):
    words = ("-g", "2", "-v", "sim", "--gpu-mem", "8G", "-c", "2", "-m", "4G", "--preemptible", "--group", "night")
    done = box.run("submit", "--json", *words, "--", "true")
    (job_id,) = json.loads(done.stdout)["ids"]
    job = json.loads(box.run("show", str(job_id), "--json").stdout)
    asked = {"gpu_type": "sim", "gpu_mem_mib": 8192, "cpus": 2, "ram_mib": 4096, "preemptible": True, "group": "night"}
    assert {key: job[key] for key in asked} == asked
