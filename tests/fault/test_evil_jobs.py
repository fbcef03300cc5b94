"""Jobs that do not want to go leave nothing behind."""

import subprocess
import sys
import time

import psutil
import pytest

from tests.wait import eventually

EVIL = """
import os, signal, sys, time
mark = sys.argv[1]
def daemon(storm):
    if os.fork(): return
    os.setsid()
    if os.fork(): os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    until = time.monotonic() + 60
    while storm and time.monotonic() < until:
        if os.fork(): os._exit(0)  # the child goes on in its place, under another number
        time.sleep(0.001)
    time.sleep(60)
    os._exit(0)
for n in range(int(sys.argv[2])): daemon(storm=False)
for n in range(int(sys.argv[3])): daemon(storm=True)
print("ready", flush=True)
if sys.argv[4] == "leave": sys.exit(7)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(60)
"""


@pytest.fixture
def evil(tmp_path):
    script = tmp_path / "evil.py"
    script.write_text(EVIL)
    mark = str(tmp_path)

    def command(daemons, storms, then):
        return f"{sys.executable} {script} {mark} {daemons} {storms} {then}"

    def alive():
        return [p.pid for p in psutil.process_iter(["cmdline"]) if mark in (p.info["cmdline"] or ())]

    command.alive = alive
    return command


@pytest.mark.parametrize(("daemons", "storms"), [(4, 0), (2, 4)])
def test_after_kill(box, evil, daemons, storms):
    box.start_runner(stop_grace="0.3s")
    job_id = box.submit(evil(daemons, storms, "stay"))
    eventually(lambda: "ready" in box.log(job_id))
    eventually(lambda: len(evil.alive()) > daemons)
    began = time.monotonic()
    box.run("kill", str(job_id))
    job = box.wait_state(job_id, "CANCELLED")
    assert evil.alive() == []
    assert (job["reason"], job["signal"]) == ("USER", 9)
    assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize(("daemons", "storms"), [(4, 0), (2, 4)])
def test_after_the_main_process_has_ended_by_itself(box, evil, daemons, storms):
    box.start_runner(stop_grace="0.3s")
    job_id = box.submit(evil(daemons, storms, "leave"))
    job = box.wait_state(job_id, "FAILED")
    assert evil.alive() == []
    assert job["exit_code"] == 7
    assert "Left behind" in box.run("show", str(job_id)).stdout


def test_a_stopped_process_is_woken_to_be_told_and_then_killed(box, tmp_path):
    box.start_runner(stop_grace="0.3s")
    job_id = box.submit("echo $$; kill -STOP $$; sleep 60")
    pid = int(eventually(lambda: box.log(job_id).split())[0])
    eventually(lambda: psutil.Process(pid).status() == "stopped")
    box.run("kill", str(job_id))
    assert box.wait_state(job_id, "CANCELLED")["reason"] == "USER"
    assert not psutil.pid_exists(pid)


def test_a_job_that_tidies_up_in_its_grace_is_let_do_so(box, tmp_path):
    box.start_runner(stop_grace="20s")
    job_id = box.submit(f"trap 'sleep 0.2; echo saved > {tmp_path}/checkpoint; exit 3' TERM; echo up; sleep 60 & wait")
    eventually(lambda: "up" in box.log(job_id))
    box.run("kill", str(job_id))
    job = box.wait_state(job_id, "CANCELLED")
    assert (job["reason"], job["exit_code"]) == ("USER", 3)
    assert (tmp_path / "checkpoint").read_text() == "saved\n"


def test_exit_0_after_a_stop_is_a_success(box):
    box.start_runner(stop_grace="20s")
    job_id = box.submit("trap 'exit 0' TERM; echo up; sleep 60 & wait")
    eventually(lambda: "up" in box.log(job_id))
    box.run("kill", str(job_id))
    assert box.wait_state(job_id, "SUCCEEDED", "CANCELLED")["state"] == "SUCCEEDED"


def test_a_supervisor_cannot_be_ended_by_hang_up_or_interrupt(box):
    box.start_runner()
    job_id = box.submit("echo $PPID; sleep 1; exit 4")
    supervisor = int(eventually(lambda: box.log(job_id).split())[0])
    for name in ("HUP", "INT", "QUIT", "PIPE"):
        subprocess.run(["kill", f"-{name}", str(supervisor)], check=True)
    assert box.wait_state(job_id, "FAILED")["exit_code"] == 4
