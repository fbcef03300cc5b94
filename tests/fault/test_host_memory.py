"""The kernel kills a job because the host's memory ran out: really, in a control group with little of it.

The kernel counts such kills for the whole host, so no other test may shoot its jobs meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.probing import BEST, WAIT_S, notes, nothing_is_left, probed
from tests.wait import eventually

GROUPS = Path("/sys/fs/cgroup/memory")
LIMIT_MIB = 245  # the trainer takes 10 for each sample and some 15 for itself: 25 samples are too many, 22 are not

pytestmark = [pytest.mark.timeout(120), pytest.mark.evidence]


@pytest.fixture
def little_memory() -> Iterator[Path]:
    group = GROUPS / f"nightshift-test-{os.getpid()}"
    if "oom_kill " not in Path("/proc/vmstat").read_text():
        pytest.skip("this kernel does not count the processes that it kills")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(f"{LIMIT_MIB}M")
    except OSError as error:
        pytest.skip(f"no control group with little memory can be made here: {error}")
    yield group

    def removed() -> bool:
        try:
            group.rmdir()
        except OSError:  # the kernel has not let go of the last process yet
            return False
        return True

    eventually(removed)


def test_it_is_called_out_of_memory_and_not_just_killed(box, little_memory):
    box.start_runner(gpus="sim:1x24GiB")
    greedy = "python3 -c 'bytearray(400 << 20)'"
    job_id = box.submit(f"echo $$ > {little_memory}/cgroup.procs; exec {greedy}")
    shot = box.submit("kill -9 $$")
    job = box.wait_state(job_id, "FAILED")
    assert (job["reason"], job["signal"], job["attempt"]) == ("OOM", 9, 1)
    assert box.wait_state(shot, "FAILED")["reason"] == "SIGNAL"


def test_in_a_probe_it_ends_the_job_and_says_whose_memory_it_was(box, little_memory):
    box.start_runner(gpus="sim:1x24GiB")
    greedy = "python3 -c 'bytearray(400 << 20)'"
    job_id = box.submit(f"echo $$ > {little_memory}/cgroup.procs; exec {greedy}", "--probe")
    job = box.wait_state(job_id, "FAILED")
    assert (job["reason"], job["batch_size"]) == ("OOM", None)
    assert "the probe at batch 8 failed (the machine ran out of memory, signal 9)" in box.log(job_id)
    nothing_is_left(box, job_id)


def test_the_real_run_steps_back(box, little_memory):
    box.start_runner(gpus="sim:1x24GiB", probe_quiet="0.5s", probe_limit="20s")
    job = box.wait_state(probed(box, "--host_group", str(little_memory)), "SUCCEEDED", timeout=WAIT_S)
    real = [seen["batch"] for seen in notes(box) if not seen["probing"]]
    assert real[0] == BEST
    assert job["batch_size"] == real[-1] <= 22
    assert job["attempt"] == len(real)
