"""Any of our processes may die at any moment; jobs and their exit codes survive it."""

import contextlib
import os
import signal

import psutil
import pytest

from runner.processes.doorbell import ring
from tests.fault.chaos import Chaos
from tests.wait import eventually


def part(box, name):
    """The pid of one of the box's own processes, by the name it gives itself."""
    return next((pid for pid, comm in box.processes().items() if comm == name), None)


def pid_of_job(box, job_id):
    return int(eventually(lambda: box.log(job_id).split()[:1])[0])


def test_the_runner_is_killed_with_one_job_running_and_five_queued(box, tmp_path):
    box.start_runner(gpus="sim:1x24GiB")
    ledger = tmp_path / "ledger"
    running = box.submit(f"echo $$; echo r >> {ledger}; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 5")
    queued = [box.submit(f"echo {n} >> {ledger}; exit {n}") for n in range(5)]
    pid = pid_of_job(box, running)

    box.stop_runner(signal.SIGKILL)
    assert psutil.pid_exists(pid)
    assert box.job(running)["waiting_for"] is None
    assert box.job(queued[0])["waiting_for"] == "no runner is up"
    box.start_runner(gpus="sim:1x24GiB")
    box.wait_state(running, "RUNNING")
    assert psutil.pid_exists(pid)
    (tmp_path / "go").touch()

    for job_id in (running, *queued):
        box.wait_state(job_id, "SUCCEEDED", "FAILED")
    assert [box.job(job_id)["exit_code"] for job_id in (running, *queued)] == [5, 0, 1, 2, 3, 4]
    assert ledger.read_text().split() == ["r", "0", "1", "2", "3", "4"]
    assert box.job(running)["attempt"] == 1


def test_a_job_that_ends_while_no_runner_is_up_keeps_its_exit_code(box, tmp_path):
    box.start_runner()
    job_id = box.submit(f"echo $$; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 42")
    pid = pid_of_job(box, job_id)
    box.stop_runner(signal.SIGKILL)
    (tmp_path / "go").touch()
    eventually(lambda: not psutil.pid_exists(pid))
    box.start_runner()
    assert box.wait_state(job_id, "FAILED")["exit_code"] == 42


@pytest.mark.parametrize("name", ["ns-zygote", "ns-sampler"])
def test_the_zygote_or_the_sampler_is_killed(box, tmp_path, name):
    box.start_runner(gpus="sim:1x24GiB")
    running = box.submit(f"echo $$; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 5")
    queued = [box.submit(f"exit {n}") for n in range(3)]
    pid = pid_of_job(box, running)
    victim = part(box, name)
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: part(box, name) not in (None, victim))
    assert psutil.pid_exists(pid)
    (tmp_path / "go").touch()
    for job_id in (running, *queued):
        box.wait_state(job_id, "SUCCEEDED", "FAILED")
    assert [box.job(job_id)["exit_code"] for job_id in (running, *queued)] == [5, 0, 1, 2]


STRAYS = """(setsid sleep 7300 &)
(env -i setsid sleep 7301 >/dev/null 2>&1 &)
(setsid sh -c 'trap "" TERM; sleep 7302' &)"""


def sleepers(*seconds):
    """By the time they sleep: each test has its own."""
    named = psutil.process_iter(["cmdline"])
    return [p.pid for p in named if p.info["cmdline"] and p.info["cmdline"][-1] in map(str, seconds)]


def test_the_supervisor_is_killed_and_nothing_of_its_job_is_left(box):
    box.start_runner()
    job_id = box.submit(f"echo $$\n{STRAYS}\nsleep 7303")
    pid_of_job(box, job_id)
    eventually(lambda: len(sleepers(7300, 7301, 7302, 7303)) >= 4)
    os.kill(part(box, "ns-supervisor"), signal.SIGKILL)

    job = box.wait_state(job_id, "LOST")
    assert (job["reason"], job["exit_code"]) == ("SUPERVISOR", None)
    assert [n.payload.state for n in box.notices(job_id) if n.kind == "ended"] == ["LOST"]
    eventually(lambda: sleepers(7300, 7301, 7302, 7303) == [], what="the strays are gone")
    assert box.wait_state(box.submit("exit 0"), "SUCCEEDED")


def test_supervisor_and_zygote_are_killed_together(box):
    """Then nobody above the strays is left; they are still found, whatever they have cast off."""
    box.start_runner()
    daemon = "(env -i setsid sh -c '(exec sleep 7313) &' >/dev/null 2>&1 </dev/null &)"
    job_id = box.submit(f"echo $$; (setsid sleep 7310 &); (env -i setsid sleep 7311 &); {daemon}; sleep 7312")
    pid_of_job(box, job_id)
    eventually(lambda: len(sleepers(7310, 7311, 7312, 7313)) >= 4)
    os.kill(part(box, "ns-zygote"), signal.SIGKILL)
    os.kill(part(box, "ns-supervisor"), signal.SIGKILL)
    assert box.wait_state(job_id, "LOST")["reason"] == "SUPERVISOR"
    assert sleepers(7310, 7311, 7312, 7313) == []


def test_a_lost_job_is_run_again_where_that_was_asked_for(box, tmp_path):
    box.start_runner()
    runs = tmp_path / "runs"
    job_id = box.submit(f"echo x >> {runs}; test $(wc -l < {runs}) = 2 || sleep 300", "--retries", "1")
    eventually(runs.exists)
    os.kill(eventually(lambda: part(box, "ns-supervisor")), signal.SIGKILL)
    job = box.wait_state(job_id, "SUCCEEDED")
    assert job["attempt"] == 2
    assert [n.kind for n in box.notices(job_id)] == ["started", "requeued", "started", "ended"]


def test_a_reboot_is_told_from_a_killed_supervisor(box):
    """A run directory of another boot, as it is found when the machine comes up again."""
    box.start_runner()
    job_id = box.submit("echo $$; sleep 300")
    pid_of_job(box, job_id)
    box.stop_runner(signal.SIGKILL)
    for pid in box.processes():
        with contextlib.suppress(ProcessLookupError):  # some end with those that were killed before them
            os.kill(pid, signal.SIGKILL)
    started = box.home / "runs" / str(job_id) / "1" / "started.json"
    eventually(lambda: not box.processes())
    import json

    started.write_text(json.dumps({**json.loads(started.read_text()), "boot_id": "another"}))
    box.start_runner()
    job = box.wait_state(job_id, "LOST")
    assert job["reason"] == "HOST"


def test_a_removed_run_directory_ends_the_job_as_lost_and_not_twice(box, tmp_path):
    import shutil

    box.start_runner()
    job_id = box.submit(f"echo x >> {tmp_path}/runs; echo $$; sleep 300")
    pid_of_job(box, job_id)
    box.wait_state(job_id, "RUNNING")
    box.stop_runner(signal.SIGKILL)
    shutil.rmtree(box.home / "runs")
    box.start_runner()
    assert box.wait_state(job_id, "LOST")["reason"] == "SUPERVISOR"
    assert (tmp_path / "runs").read_text() == "x\n"


def test_a_job_that_was_claimed_and_never_executed_goes_back_to_the_queue_and_runs(box, tmp_path):
    """As a runner leaves it that dies between the claim and the start."""
    first = box.submit(f"echo x >> {tmp_path}/runs", "--gpus", "0")
    second = box.submit("true", "--gpus", "0")
    with box.queue() as queue:
        assert queue.jobs.claim(first, [("cpu", 0)], "boot") == 1
    box.start_runner()

    def ended():
        ring(str(box.home), "runner.sock")  # a busy box: the pause after such an attempt is not begun anew each time
        return box.job(first)["state"] == "SUCCEEDED"

    eventually(ended)
    assert box.job(first)["attempt"] == 2
    box.wait_state(second, "SUCCEEDED")
    assert (tmp_path / "runs").read_text() == "x\n"
    assert [n.kind for n in box.notices(first)] == ["started", "ended"]


def test_a_claimed_job_that_is_to_stop_is_cancelled_and_not_queued_again(box):
    job_id = box.submit("true", "--gpus", "0")
    with box.queue() as queue:
        queue.jobs.claim(job_id, [("cpu", 0)], "boot")
        queue.stop(job_id)
    box.start_runner()
    job = box.wait_state(job_id, "CANCELLED")
    assert (job["reason"], job["exit_code"]) == ("USER", None)


@pytest.mark.timeout(180)
def test_a_little_chaos(tmp_path):
    report = Chaos(tmp_path, seed=7).run(jobs=80, kills=20, timeout_s=150)
    assert report.problems == [], str(report)
    assert sum(report.kills.values()) >= 14, str(report)


@pytest.mark.evidence
@pytest.mark.timeout(3600)
def test_a_thousand_kills(tmp_path):
    report = Chaos(tmp_path, seed=2026).run(jobs=3000, kills=1000, timeout_s=3300)
    print(f"\n{report}")
    assert report.problems == [], str(report)
    assert sum(report.kills.values()) >= 1000, str(report)
