"""A supervisor takes one job after another: nothing of one job reaches the next."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from runner import rundir
from runner.engines.local.zygote_process import ZygoteProcess
from runner.supervisor import left_behind
from tests.wait import eventually

LOOK = """
echo fds $(ls /proc/self/fd | tr '\\n' ' ')
echo secret ${SECRET_OF_ONE:-none}
echo mark $(grep 'realtime timeout' /proc/self/limits)
echo score $(cat /proc/self/oom_score_adj)
echo folder $PWD umask $(umask)
"""
LARGE = f"{sys.executable} -c 'held = bytearray(200 << 20)'"


def supervisor_of(box, job_id):
    return rundir.read_started(rundir.folder_of(str(box.home), job_id, 1)).pid


def test_the_next_job_has_nothing_of_the_one_before(box):
    box.start_runner("sim:1x24GiB")
    for _ in range(4):  # every fork that waits has served one of these
        first = box.submit(LARGE, "--env", "SECRET_OF_ONE=hunter2")
        box.wait_state(first, "SUCCEEDED")
    used = {supervisor_of(box, number) for number in range(1, first + 1)}
    job_id = box.submit(LOOK)
    job = box.wait_state(job_id, "SUCCEEDED")
    assert supervisor_of(box, job_id) in used, "no supervisor was used again"
    words = dict(line.split(" ", 1) for line in box.log(job_id).splitlines())
    assert words["fds"].split() == ["0", "1", "2", "3"]  # the last is of ls itself
    assert words["secret"] == "none"
    assert str(left_behind.mark_of(job_id, 1, job["run_id"])) in words["mark"].split()
    assert words["score"] == "500"
    end = rundir.read_exit(rundir.folder_of(str(box.home), job_id, 1))
    assert end.max_rss_mib < 100
    assert end.cpu_s < 30


def test_a_supervisor_takes_no_order_before_the_end_of_its_last_job_is_noted(tmp_path):
    """Until then a request to stop that job may still be on its way to it."""
    zygote = ZygoteProcess(str(tmp_path))
    base = rundir.AttemptSpec(
        job_id=0, attempt=1, run_id="aaaaaaaa", argv=("true",), env=dict(os.environ), stop_grace_s=0.1,
        log_limit_bytes=1000, log_tail_bytes=1000,
    )  # fmt: skip

    def start(number, *argv):
        folder = str(tmp_path / str(number))
        leash = zygote.start(folder, rundir.create(folder, replace(base, job_id=number, argv=argv)))
        pid = eventually(lambda: rundir.read_started(folder)).pid
        return folder, leash, pid

    folder, leash, first = start(1, "true")
    eventually(lambda: not rundir.lock_is_held(folder))
    others = [start(number, "sleep", "300") for number in range(2, 6)]
    assert first not in [pid for _, _, pid in others]
    os.close(leash)
    more, number = [], 6

    def taken():
        nonlocal number
        more.append(start(number, "sleep", "300"))
        number += 1
        return more[-1][2] == first

    eventually(taken, what="the first supervisor takes another order")
    for _, leash, pid in [*others, *more]:
        os.kill(pid, 15)
        os.close(leash)
    zygote.close()
    assert zygote._process.wait(60) == 0
