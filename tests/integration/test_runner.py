"""What the runner does with jobs, seen from outside."""

import getpass
import json
import os
import signal
import subprocess
import time
from datetime import datetime

import pytest

from runner.notices import Started
from tests.wait import eventually


def test_a_job_fails_with_its_code_and_its_output_is_kept(box):
    box.start_runner(gpus="sim:2x24GiB")
    assert box.run("submit", "--json", "--", "echo hi; exit 3").stdout == '{"ids": [1]}\n'
    job = box.wait_state(1, "FAILED")
    assert (job["reason"], job["exit_code"], job["signal"]) == ("EXIT", 3, None)
    assert box.run("log", "1").stdout == "hi\n"


def test_a_job_sees_its_gpu_and_itself_and_no_secrets(box):
    box.environ["NIGHTSHIFT_TOKEN"] = "123:canary"
    box.start_runner()
    job_id = box.submit("env; echo cwd=$(pwd); readlink /proc/self/fd/0; ulimit -c; umask", "--dir", "/tmp")
    job = box.wait_state(job_id, "SUCCEEDED")
    said = dict(line.split("=", 1) for line in box.log(job_id).splitlines() if "=" in line)
    assert [said["CUDA_VISIBLE_DEVICES"]] == job["gpus"]
    assert said["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert (said["NIGHTSHIFT_JOB_ID"], said["NIGHTSHIFT_RUN_ID"]) == (str(job_id), job["run_id"])
    assert said["PYTHONUNBUFFERED"] == "1"
    assert said["cwd"] == "/tmp"
    lines = box.log(job_id).splitlines()
    assert lines[-3:] == ["/dev/null", "0", "0022"]
    assert "canary" not in box.log(job_id)
    assert "canary" not in (box.home / "runs" / str(job_id) / "1" / "spec.json").read_text()


def test_a_killed_job_tells_its_signal(box):
    box.start_runner()
    job = box.wait_state(box.submit("kill -SEGV $$"), "FAILED")
    assert (job["reason"], job["exit_code"], job["signal"]) == ("SIGNAL", None, 11)


def test_what_cannot_be_executed_fails_as_spawn(box, tmp_path):
    box.start_runner()
    job_id = box.submit(argv=["no-such-program", "x"])
    job = box.wait_state(job_id, "FAILED")
    assert (job["reason"], job["exit_code"]) == ("SPAWN", None)
    assert "no-such-program" in box.run("show", str(job_id)).stdout
    gone = tmp_path / "gone"
    gone.mkdir()
    box.run("pause")
    job_id = box.submit("true", "--dir", str(gone))
    gone.rmdir()
    box.run("resume")
    assert box.wait_state(job_id, "FAILED")["reason"] == "SPAWN"


def test_the_time_limit_is_exact(box):
    box.start_runner(stop_grace="5s")
    job_id = box.submit("sleep 60", "--time", "700ms")
    job = box.wait_state(job_id, "CANCELLED")
    assert (job["reason"], job["signal"]) == ("TIMEOUT", 15)
    end = json.loads((box.home / "runs" / str(job_id) / "1" / "exit.json").read_text())
    assert 0.7 <= end["duration_s"] < 10


def test_a_job_that_ignores_the_limit_is_killed_after_the_grace(box):
    box.start_runner(stop_grace="300ms")
    for limit in ("200ms", "2s", "10s"):  # more of it where the machine is too busy for it to become deaf in time
        job_id = box.submit("trap '' TERM; echo deaf; sleep 60", "--time", limit)
        job = box.wait_state(job_id, "CANCELLED")
        if box.log(job_id) == "deaf\n":
            break
    assert (job["reason"], job["signal"]) == ("TIMEOUT", 9)


def test_jobs_take_turns_on_a_gpu_and_run_side_by_side_on_two(box, tmp_path):
    box.start_runner(gpus="sim:2x24GiB")
    ids = [box.submit(f"echo $NIGHTSHIFT_JOB_ID >> {tmp_path}/up; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done")
           for _ in range(3)]  # fmt: skip
    eventually(lambda: (tmp_path / "up").exists() and len((tmp_path / "up").read_text().split()) == 2)
    eventually(lambda: [box.job(i)["state"] for i in ids] == ["RUNNING", "RUNNING", "QUEUED"])
    assert box.job(ids[2])["waiting_for"] == "needs 1 GPU, 0 free"
    gpus = [box.job(i)["gpus"][0] for i in ids[:2]]
    assert len(set(gpus)) == 2
    (tmp_path / "go").touch()
    for job_id in ids:
        box.wait_state(job_id, "SUCCEEDED")
    assert box.job(ids[2])["gpus"][0] in gpus


def test_k_jobs_per_gpu(box, tmp_path):
    box.start_runner(gpus="sim:1x24GiB", slots_per_gpu="3", settle="0s")
    ids = [box.submit(f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done") for _ in range(4)]
    eventually(lambda: [box.job(i)["state"] for i in ids] == ["RUNNING"] * 3 + ["QUEUED"])
    (tmp_path / "go").touch()
    box.wait_state(ids[3], "SUCCEEDED")


def test_jobs_without_a_gpu_run_beside_those_with_one(box, tmp_path):
    box.start_runner(gpus="sim:1x24GiB", cpu_slots="2")
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    gpu_job = box.submit(wait)
    cpu_jobs = [box.submit(wait + '; echo "<$CUDA_VISIBLE_DEVICES>"', "--gpus", "0") for _ in range(3)]
    eventually(lambda: [box.job(i)["state"] for i in (gpu_job, *cpu_jobs)] == ["RUNNING"] * 3 + ["QUEUED"])
    assert box.job(cpu_jobs[2])["waiting_for"] == "waits for a CPU slot"
    (tmp_path / "go").touch()
    box.wait_state(cpu_jobs[2], "SUCCEEDED")
    assert box.log(cpu_jobs[2]) == "<>\n"


def test_higher_priority_goes_first(box, tmp_path):
    box.start_runner(gpus="sim:1x24GiB")
    box.run("pause")
    order = [box.submit(f"echo {p} >> {tmp_path}/order", "--priority", p) for p in ("low", "normal", "high", "normal")]
    box.run("resume")
    for job_id in order:
        box.wait_state(job_id, "SUCCEEDED")
    assert (tmp_path / "order").read_text().split() == ["high", "normal", "normal", "low"]


def test_held_jobs_wait_and_moved_ones_go_first(box, tmp_path):
    box.start_runner(gpus="sim:1x24GiB")
    box.run("pause")
    a, b, c, d = (str(box.submit(f"echo {name} >> {tmp_path}/order")) for name in "abcd")
    assert box.run("hold", a).stdout == f"Job {a} is held: it does not start before `nightshift release {a}`.\n"
    assert box.run("first", d, c).returncode == 0
    assert box.run("sooner", c).stdout == f"Job {c} is now before job {d}.\n"
    refused = box.run("hold", "99", b)
    assert (refused.returncode, "There is no job 99" in refused.stderr) == (1, True)
    box.run("release", b)
    box.run("resume")
    for job_id in (b, c, d):
        box.wait_state(int(job_id), "SUCCEEDED")
    assert (tmp_path / "order").read_text().split() == ["c", "d", "b"]
    assert f"held by {getpass.getuser()}; `nightshift release {a}`" in box.run("ls").stdout
    assert box.job(int(a))["state"] == "QUEUED"
    assert box.run("release", a).stdout == f"Job {a} is released.\n"
    box.wait_state(int(a), "SUCCEEDED")
    assert "put first by" in box.run("show", d).stdout


def test_notices_say_who_stopped_a_job_and_how_long_it_ran(box):
    box.start_runner()
    running, waiting = box.submit("sleep 60"), box.submit("true", "--gpus", "0")
    box.wait_state(running, "RUNNING")
    [started] = [notice.payload for notice in box.notices(running) if notice.kind == "started"]
    assert started == Started(attempt=1, gpus=tuple(box.job(running)["gpus"]))
    with box.queue() as queue:
        queue.acting_as("tg:1001").stop(running)
    box.wait_state(running, "CANCELLED")
    [said] = [notice.payload.to_json() for notice in box.notices(running) if notice.kind == "ended"]
    assert (said["state"], said["reason"], said["by"], said["stop_reason"]) == ("CANCELLED", "USER", "tg:1001", "USER")
    assert 0 < said["duration_s"] < 60
    assert not said["duration_about"]
    box.wait_state(waiting, "SUCCEEDED")
    [said] = [notice.payload.to_json() for notice in box.notices(waiting) if notice.kind == "ended"]
    assert (said["by"], said["duration_s"] >= 0, said["exit_code"]) == (None, True, 0)


def test_a_rerun_may_change_arguments(box):
    pytest.importorskip("runner.commands.argument_changes")
    box.start_runner()
    job_id = box.submit(argv=["echo", "--lr", "1", "--name", "x"])
    for changes in (["--", "--lr", "3e-4"], ["--lr", "3e-4"], ["--lr=3e-4"]):
        done = box.run("rerun", "--json", str(job_id), *changes)
        [again] = json.loads(done.stdout)["ids"]
        box.wait_state(again, "SUCCEEDED")
        assert box.log(again) == "--lr 3e-4 --name x\n"
    done = box.run("rerun", "--json", str(job_id), "seed=7", "--json")
    assert box.job(json.loads(done.stdout)["ids"][0])["command"] == "echo --lr 1 --name x seed=7 --json"


def test_signals_let_jobs_run_and_a_restart_takes_them_up(box, tmp_path):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        runner = box.start_runner(gpus="sim:1x24GiB")
        flag = tmp_path / f"go{number}"
        job_id = box.submit(f"echo $$; while [ ! -e {flag} ]; do sleep 0.02; done; exit 8")
        pid = int(eventually(lambda job_id=job_id: box.log(job_id).split())[0])
        waiting = box.submit("true")
        box.stop_runner(number)
        assert runner.returncode == 0
        os.kill(pid, 0)
        assert box.job(waiting)["state"] == "QUEUED"
        box.start_runner(gpus="sim:1x24GiB")
        os.kill(pid, 0)
        flag.touch()
        assert box.wait_state(job_id, "FAILED")["exit_code"] == 8
        box.wait_state(waiting, "SUCCEEDED")
        box.stop_runner()


def test_a_restarted_runner_can_stop_a_job_it_did_not_start(box):
    box.start_runner()
    job_id = box.submit("echo $$; sleep 300")
    eventually(lambda: box.log(job_id))
    box.stop_runner(signal.SIGKILL)
    assert "being stopped" in box.run("kill", str(job_id)).stdout  # asked for while nobody is there
    box.start_runner()
    assert box.wait_state(job_id, "CANCELLED")["reason"] == "USER"


def test_a_waiting_job_is_cancelled_without_a_runner(box):
    job_id = box.submit("true")
    assert "had not started" in box.run("kill", str(job_id)).stdout
    job = box.job(job_id)
    assert (job["state"], job["reason"], job["exit_code"]) == ("CANCELLED", "USER", None)


def test_only_one_runner_per_state_folder(box):
    box.start_runner()
    second = box.run("runner", env={"NIGHTSHIFT_GPUS": "sim:1x24GiB"})
    assert second.returncode == 2
    assert "already up" in second.stderr


def test_pause_holds_and_resume_goes_on(box):
    box.start_runner()
    box.run("pause")
    job_id = box.submit("true")
    assert "paused" in box.job(job_id)["waiting_for"]
    box.run("resume")
    box.wait_state(job_id, "SUCCEEDED")


def test_drain_lets_running_jobs_finish_and_starts_no_more(box, tmp_path):
    box.start_runner()
    running = box.submit(f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done")
    box.wait_state(running, "RUNNING")
    box.run("drain")
    waiting = box.submit("true")
    draining = subprocess.Popen(box.command("drain", "--wait"), env=box.environ, stdout=subprocess.DEVNULL)
    assert "draining" in box.job(waiting)["waiting_for"]
    (tmp_path / "go").touch()
    assert draining.wait(60) == 0
    assert box.job(running)["state"] == "SUCCEEDED"
    assert box.job(waiting)["state"] == "QUEUED"
    box.run("resume")
    box.wait_state(waiting, "SUCCEEDED")


def test_the_breaker_pauses_a_queue_that_fails_at_once(box):
    box.start_runner(gpus="sim:1x24GiB")
    ids = [box.submit("no-such-venv-python train.py") for _ in range(6)]
    eventually(lambda: [box.job(i)["state"] for i in ids] == ["FAILED"] * 3 + ["QUEUED"] * 3)
    assert "3 jobs in a row failed within seconds (exit code 127)" in box.job(ids[5])["waiting_for"]
    assert [n.kind for n in box.notices(None)] == ["paused"]
    box.run("resume")
    eventually(lambda: [box.job(i)["state"] for i in ids] == ["FAILED"] * 6)
    assert [n.kind for n in box.notices(None)] == ["paused", "paused", "queue empty"]


def test_the_breaker_stays_out_where_it_is_off(box):
    box.start_runner(breaker="0")
    ids = [box.submit("exit 1") for _ in range(5)]
    assert [box.wait_state(job_id, "FAILED")["exit_code"] for job_id in ids] == [1] * 5
    assert {n.kind for n in box.notices(None)} == {"queue empty"}


def test_output_beyond_the_limit_keeps_head_and_tail(box):
    box.start_runner(log_limit="1M", log_tail="1M")
    job_id = box.submit("seq 1000000")
    box.wait_state(job_id, "SUCCEEDED")
    lines = box.log(job_id).splitlines()
    assert lines[:3] == ["1", "2", "3"]
    assert lines[-1] == "1000000"
    assert any("bytes of output were not kept here" in line for line in lines)
    kept = sum(f.stat().st_size for f in (box.home / "runs" / str(job_id) / "1").glob("output.*"))
    assert kept < 3.5 * 2**20


def test_times_are_the_moments_of_the_lines(box):
    box.start_runner()
    began = time.time()
    job_id = box.submit("echo one; sleep 0.4; echo two >&2")
    box.wait_state(job_id, "SUCCEEDED")
    lines = box.run("log", str(job_id), "--times").stdout.splitlines()
    moments = [datetime.fromisoformat(line.split(" ", 1)[0]).timestamp() for line in lines]
    assert [line.split(" ", 1)[1] for line in lines] == ["one", "two"]
    assert began <= moments[0] <= moments[1] <= time.time()
    assert 0.35 < moments[1] - moments[0] < 10


def test_placeholders_are_filled_and_other_braces_left_alone(box):
    box.start_runner()
    job_id = box.submit("echo {job_id} {run_id} {a,b} ${HOME:+set} {lr}")
    job = box.wait_state(job_id, "SUCCEEDED")
    assert box.log(job_id) == f"{job_id} {job['run_id']} a b set {{lr}}\n"


def test_a_rerun_is_a_new_job_with_a_new_run_id(box):
    box.start_runner()
    first = box.submit("echo same", "--name", "x")
    box.wait_state(first, "SUCCEEDED")
    second = json.loads(box.run("rerun", str(first), "--json").stdout)["ids"][0]
    again = box.wait_state(second, "SUCCEEDED")
    assert again["name"] == "x"
    assert again["run_id"] != box.job(first)["run_id"]
    assert box.log(second) == "same\n"


def test_a_very_long_command_runs(box):
    box.start_runner()
    text = "echo start\n" + "# filler\n" * 30000 + "echo end"
    job_id = box.submit(text)
    box.wait_state(job_id, "SUCCEEDED")
    assert box.log(job_id) == "start\nend\n"


def test_a_job_can_queue_the_next_one(box):
    box.start_runner()
    first = box.submit("nightshift submit -- echo second")
    box.wait_state(first, "SUCCEEDED")
    second = box.wait_state(first + 1, "SUCCEEDED")
    assert second["command"] == "echo second"
    assert box.log(first + 1) == "second\n"


@pytest.mark.parametrize(
    "setting", [{"slots_per_gpu": "0"}, {"stop_grace": "10"}, {"gpus": "sim:2x"}, {"log_limit": "x"}]
)
def test_a_bad_setting_is_named_and_nothing_starts(box, setting):
    env = {f"NIGHTSHIFT_{key.upper()}": value for key, value in {"gpus": "sim:1x24GiB", **setting}.items()}
    refused = box.run("runner", env=env)
    assert refused.returncode == 2
    (name,) = setting
    assert f"NIGHTSHIFT_{name.upper()}" in refused.stderr or "sim:2x24GiB" in refused.stderr
    assert "Traceback" not in refused.stderr
