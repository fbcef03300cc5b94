"""Ends that nobody asked for, and jobs that are hard to end."""

import os
import shutil
import signal
import sys
import time
from dataclasses import replace

import psutil
import pytest

from runner import rundir
from runner.engines.local.zygote_process import ZygoteProcess
from tests.wait import eventually


def supervisor_of(box, job_id):
    return rundir.read_started(rundir.folder_of(str(box.home), job_id, box.job(job_id)["attempt"])).pid


def test_a_supervisor_told_to_stop_by_the_host_loses_its_job_and_cancels_nothing(box):
    """A machine that shuts down sends SIGTERM to everybody; that is nobody's wish for this job."""
    box.start_runner()
    job_id = box.submit("echo up; sleep 300")
    eventually(lambda: "up" in box.log(job_id))
    box.wait_state(job_id, "RUNNING")
    os.kill(supervisor_of(box, job_id), signal.SIGTERM)
    job = box.wait_state(job_id, "LOST")
    assert (job["reason"], job["exit_code"], job["signal"]) == ("SUPERVISOR", None, None)


def test_where_a_retry_was_asked_for_it_is_tried_again(box, tmp_path):
    box.start_runner()
    runs = tmp_path / "runs"
    job_id = box.submit(f"echo x >> {runs}; test $(wc -l < {runs}) = 2 || sleep 300", "--retries", "1")
    eventually(runs.exists)
    box.wait_state(job_id, "RUNNING")
    os.kill(supervisor_of(box, job_id), signal.SIGTERM)
    assert box.wait_state(job_id, "SUCCEEDED")["attempt"] == 2


def test_a_signal_to_a_waiting_fork_is_not_for_its_next_job(box):
    box.start_runner()

    def forks():
        zygotes = [pid for pid, comm in box.processes().items() if comm == "ns-zygote"]
        return [pid for pid in zygotes if psutil.Process(pid).ppid() in zygotes]

    eventually(lambda: len(forks()) == 2)
    for pid in forks():
        os.kill(pid, signal.SIGTERM)
    for _ in range(3):
        box.wait_state(box.submit("sleep 0.1; exit 0"), "SUCCEEDED")


HOPPER = """
import os, sys, time
if os.fork(): sys.exit(0)
os.setsid()
hops = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
until = time.monotonic() + 120
while time.monotonic() < until:
    if os.fork(): os._exit(0)
    os.write(hops, b".")
    time.sleep(0.001)
"""


def test_a_hopping_process_without_mark_or_pipe_does_not_outlive_a_killed_supervisor(box, tmp_path):
    script, hops = tmp_path / "hopper.py", tmp_path / "hops"
    script.write_text(HOPPER)
    box.start_runner()
    job_id = box.submit(f"env -i {sys.executable} {script} {hops} >/dev/null 2>&1 </dev/null; echo up; sleep 300")
    eventually(lambda: "up" in box.log(job_id))
    box.wait_state(job_id, "RUNNING")
    eventually(lambda: hops.exists() and hops.stat().st_size > 10, what="it hops")
    os.kill(supervisor_of(box, job_id), signal.SIGKILL)
    box.wait_state(job_id, "LOST")

    def is_still():
        before = hops.stat().st_size
        time.sleep(0.3)
        return hops.stat().st_size == before

    eventually(is_still, what="it hops no more, long before it would end by itself")
    assert not [p.pid for p in psutil.process_iter(["cmdline"]) if str(script) in (p.info["cmdline"] or ())]


def test_a_process_whose_first_thread_has_ended_is_still_killed(box, tmp_path):
    script = tmp_path / "threads.py"
    script.write_text(
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(300,)).start()\n"
        "print('up', flush=True)\n"
        "ctypes.CDLL(None).syscall(60, 0)\n"  # exit of this thread alone
    )
    box.start_runner(stop_grace="200ms")
    job_id = box.submit(f"{sys.executable} {script}")
    eventually(lambda: "up" in box.log(job_id))
    box.run("kill", str(job_id))
    assert box.wait_state(job_id, "CANCELLED")["reason"] == "USER"


@pytest.mark.parametrize("removed", ["lock", "*"])
def test_a_job_that_removes_files_of_its_run_directory_still_ends(box, removed):
    box.start_runner()
    folder = box.home / "runs" / "1" / "1"
    job_id = box.submit(f"rm {folder}/{removed}; exit 3")
    job = box.wait_state(job_id, "FAILED")
    assert (job["reason"], job["exit_code"]) == ("EXIT", 3)


def test_a_limit_beyond_what_the_kernel_counts_in_milliseconds(box):
    box.start_runner()
    assert box.wait_state(box.submit("sleep 0.1", "--time", "30d", "--grace", "30d"), "SUCCEEDED")


def test_a_job_that_may_read_nothing_it_writes_still_ends(box):
    box.start_runner()
    done = box.run("submit", "--wait", "--", "umask; exit 5", env={"UMASK_CHECK": "1"})
    assert done.returncode == 5
    with box.queue() as queue:
        from dataclasses import replace

        spec = replace(queue.job(1).spec, umask=0o777)
        (job_id,) = queue.submit([spec], {})
    assert box.wait_state(job_id, "FAILED")["exit_code"] == 5
    mode = os.stat(os.path.join(rundir.folder_of(str(box.home), job_id, 1), rundir.EXIT)).st_mode & 0o777
    assert mode == 0o600
    assert box.log(job_id) == "0777\n"


def test_a_queue_that_lost_its_database_does_not_take_old_ends_for_new_ones(box):
    box.start_runner()
    box.wait_state(box.submit("echo old; exit 0"), "SUCCEEDED")
    box.stop_runner()
    for path in box.home.glob("nightshift.db*"):
        path.unlink()
    box.start_runner()
    job_id = box.submit("echo new; exit 7")
    assert job_id == 1
    assert box.wait_state(job_id, "FAILED")["exit_code"] == 7
    assert box.log(job_id) == "new\n"


def test_a_runner_whose_folder_is_removed_leaves(box):
    runner = box.start_runner()
    shutil.rmtree(box.home)
    assert runner.wait(60) == 2
    assert "was removed" in (box.folder / "runner.out").read_text()


def test_a_job_that_still_runs_is_adopted_after_a_restore(box, tmp_path):
    box.environ["NIGHTSHIFT_BACKUP_DIR"] = str(tmp_path / "volume")
    box.start_runner()
    job_id = box.submit(f"echo x >> {tmp_path}/runs; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 4",
                        "--retries", "1")  # fmt: skip
    box.wait_state(job_id, "RUNNING")
    box.stop_runner()
    for path in box.home.glob("nightshift.db*"):
        path.unlink()
    box.start_runner()
    box.wait_state(job_id, "RUNNING")
    (tmp_path / "go").touch()
    assert box.wait_state(job_id, "FAILED")["exit_code"] == 4
    assert (tmp_path / "runs").read_text() == "x\n"


def test_lowering_the_slots_does_not_overfill_a_gpu(box, tmp_path):
    box.start_runner(gpus="sim:1x24GiB", slots_per_gpu="2", settle="0s")
    first = box.submit(f"while [ ! -e {tmp_path}/first ]; do sleep 0.02; done")
    second = box.submit(f"while [ ! -e {tmp_path}/second ]; do sleep 0.02; done")
    box.wait_state(first, "RUNNING")
    box.wait_state(second, "RUNNING")
    box.stop_runner()
    box.start_runner(gpus="sim:1x24GiB", slots_per_gpu="1")
    (tmp_path / "first").touch()
    box.wait_state(first, "SUCCEEDED")
    third = box.submit("true")
    box.wait_state(box.submit("true", "--gpus", "0"), "SUCCEEDED")  # the runner has been at work since
    assert box.job(third)["state"] == "QUEUED"
    (tmp_path / "second").touch()
    box.wait_state(third, "SUCCEEDED")


def test_a_run_directory_somebody_has_been_at_stops_nobody_else(box):
    box.start_runner()
    job_id = box.submit("echo up; sleep 300")
    eventually(lambda: "up" in box.log(job_id))
    box.wait_state(job_id, "RUNNING")
    box.stop_runner(signal.SIGKILL)
    os.kill(supervisor_of(box, job_id), signal.SIGKILL)
    eventually(lambda: not any(comm == "ns-supervisor" for comm in box.processes().values()))
    started = box.home / "runs" / str(job_id) / "1" / "started.json"
    started.write_text(f'{{"run_id": "{box.job(job_id)["run_id"]}"}}')
    box.start_runner()
    box.wait_state(box.submit("exit 0"), "SUCCEEDED")


@pytest.mark.parametrize("text", ["echo \ud83d", "a\0b", ""])
def test_what_no_process_can_be_given_is_refused(box, text):
    from runner.errors import UserError

    with pytest.raises(UserError):
        box.submit(text)


def test_orders_that_nobody_took_are_given_up_when_the_runner_is_gone(tmp_path):
    """Their locks must not stay held for as long as the zygote's longest job runs."""
    zygote = ZygoteProcess(str(tmp_path))
    base = rundir.AttemptSpec(
        job_id=0, attempt=1, run_id="aaaaaaaa", argv=("sleep", "300"), env=dict(os.environ), stop_grace_s=0.1,
        log_limit_bytes=1000, log_tail_bytes=1000,
    )  # fmt: skip
    folders, leashes = [str(tmp_path / str(number)) for number in range(12)], []
    for number, folder in enumerate(folders):
        leashes.append(zygote.start(folder, rundir.create(folder, replace(base, job_id=number))))
    zygote.close()

    def settled():
        seen = [rundir.records(folder, "aaaaaaaa") for folder in folders]
        return all(facts.held == (facts.started is not None) for facts in seen)

    eventually(settled, what="each order is either under way or given up")
    for folder in folders:
        if started := rundir.read_started(folder):
            os.kill(started.pid, signal.SIGTERM)
    eventually(lambda: not any(rundir.lock_is_held(folder) for folder in folders))
    for leash in leashes:
        os.close(leash)
    assert zygote._process.wait(60) == 0  # the zygote leaves with its last supervisor
