"""Jobs that hang at 100 %: what is said, who is asked, and which are stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from runner import clock
from runner.api import Queue
from runner.model import Reason, Ref
from runner.processes import linux
from runner.rundir import OUTPUT
from runner.store.box import BoxKey
from tests.attempts import begin
from tests.idle_stage import IdleStage
from tests.jobs import submit

A, B = "GPU-a", "GPU-b"
BOTH = {A: 100, B: 100}
STEP_S = 5  # every tenth second is looked at
FEW_SECONDS = timedelta(seconds=12)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with Queue(str(tmp_path / "home"), actor="somebody") as queue:
        yield queue


class Hanging:
    """A job that worked for five minutes, printing all the while, and then spins."""

    def __init__(
        self,
        queue: Queue,
        stage: IdleStage,
        *gpus: str,
        says: bool = True,
        idle_too: tuple[str, ...] = (),
        **values: Any,
    ) -> None:
        self.queue, self.stage, self.gpus, self._idle = queue, stage, gpus or (A, B), idle_too
        (self.id,) = submit(queue, "torchrun train.py", gpus=len(self.gpus), **values)
        folder = begin(queue, self.id, *self.gpus, output=b"step 1\n" if says else b"")
        self._log = folder / OUTPUT
        self.spoke()
        for _ in range(30):
            self.pass_by(10, power_w=350.0)
            self.spoke()

    def spoke(self) -> None:
        at = self.stage.wall.timestamp()
        os.utime(self._log, (at, at))

    def pass_by(self, seconds: float, power_w: float = 90.0, **percent: int) -> None:
        load = {uuid: percent.get(uuid[-1], 100) for uuid in self.gpus} | dict.fromkeys(self._idle, 0)
        own = {"name": "NVIDIA RTX A5000", "memory_total_mib": 24576, "memory_used_mib": 0}
        self.stage.pass_by(seconds, load, STEP_S, power_w=power_w, power_limit_w=400.0, **own)

    @property
    def told(self) -> list[dict[str, Any]]:
        return [one.payload.to_json() for one in self.queue.notices.about(self.id) if one.kind == "looks hung"]

    @property
    def stopped(self) -> bool:
        return self.stage.stopped_at(self.id) is not None


def waits(queue: Queue, **values: Any) -> int:
    (job_id,) = submit(queue, "python next.py", **values)
    return job_id


@pytest.fixture
def stage(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> IdleStage:
    return IdleStage(queue, monkeypatch)


def test_it_is_stopped_at_the_promised_time_where_another_job_waits(queue, stage):
    job = Hanging(queue, stage)
    waits(queue)
    job.pass_by(290)
    assert job.told == []
    job.pass_by(40)
    (told,) = job.told
    assert told["why"] == "looks hung: 5 min silent at 26 % of its usual power"
    assert told["yields"]
    job.pass_by(250)
    assert not job.stopped
    job.pass_by(40)
    assert abs(stage.stopped_at(job.id) - clock.moment(told["stops_at"])) <= FEW_SECONDS
    stop = queue.job(job.id).stop
    assert (stop.reason, stop.by) == (Reason.HUNG, "the watch over hung jobs")
    assert queue.view.evidence(job.id)["why"] == "looks hung: 10 min silent at 26 % of its usual power"
    assert len(job.told) == 1


def test_it_is_let_be_while_nobody_waits_for_its_gpus_and_stopped_when_somebody_does(queue, stage):
    job = Hanging(queue, stage)
    waits(queue, gpus=0)
    waits(queue, on=("7",))
    waits(queue, gpu_type="h100")
    held = waits(queue)
    queue.order.hold(held)
    job.pass_by(3600)
    assert not job.stopped
    assert len(job.told) == 1
    queue.pause()
    waits(queue, gpu_type="a5000", on=("1",))
    job.pass_by(20)
    assert not job.stopped
    queue.resume()
    job.pass_by(STEP_S)
    assert job.stopped


@pytest.mark.parametrize(
    "asks",
    [
        pytest.param({"gpus": 1}, id="it starts on the free one in this very moment"),
        pytest.param({"gpus": 4}, id="all together would not be enough"),
        pytest.param({"gpus": 1, "group": "full"}, id="its group is full"),
    ],
)
def test_it_is_let_be_where_its_end_would_start_nobody(queue, stage, asks):
    queue.groups.join("full", "somebody", "")
    queue.groups.limit("full", 0)
    job = Hanging(queue, stage, idle_too=("GPU-c",))
    job.pass_by(620)
    waits(queue, **asks)
    job.pass_by(5)
    assert not job.stopped


def test_it_is_let_be_where_another_leaves_anyway(queue, stage):
    job = Hanging(queue, stage, idle_too=("GPU-c",))
    (leaves,) = submit(queue, "python short.py")
    begin(queue, leaves, "GPU-c", output=b"")
    job.pass_by(620)
    queue.stop(leaves)
    waits(queue)
    job.pass_by(5)
    assert not job.stopped
    waits(queue)
    job.pass_by(5)
    assert job.stopped


@pytest.mark.parametrize(
    "lives",
    [
        pytest.param({"power_w": 350.0}, id="it draws its usual power"),
        pytest.param({"power_w": 180.0}, id="more than what only spins"),
        pytest.param({"a": 60}, id="one of them loads data"),
    ],
)
def test_what_may_be_alive_is_not_stopped(queue, stage, lives):
    job = Hanging(queue, stage)
    waits(queue)
    job.pass_by(3600, **lives)
    assert not job.stopped


def test_one_gpu_at_rest_and_the_other_waiting_for_it_is_a_dead_lock_too(queue, stage):
    job = Hanging(queue, stage)
    waits(queue)
    job.pass_by(620, a=0)
    assert job.stopped


def test_on_a_single_gpu_it_is_only_said(queue, stage):
    job = Hanging(queue, stage, A)
    waits(queue)
    job.pass_by(590)
    assert job.told == []
    job.pass_by(3600)
    (told,) = job.told
    assert told["stops_at"] is None
    assert not job.stopped


def test_kill_stops_it_on_a_single_gpu_and_whether_anybody_waits_or_not(queue, stage):
    job = Hanging(queue, stage, A, hung="kill")
    job.pass_by(620)
    (told,) = job.told
    assert not told["yields"]
    assert abs(stage.stopped_at(job.id) - clock.moment(told["stops_at"])) <= FEW_SECONDS


def test_alert_only_says_so_after_the_whole_silence(queue, stage):
    job = Hanging(queue, stage, hung="alert")
    waits(queue)
    job.pass_by(590)
    assert job.told == []
    job.pass_by(3600)
    assert [(one["why"], one["stops_at"]) for one in job.told] == [
        ("looks hung: 10 min silent at 26 % of its usual power", None)
    ]
    assert not job.stopped


def test_off_says_nothing(queue, stage):
    job = Hanging(queue, stage, hung="off")
    waits(queue)
    job.pass_by(3600)
    assert (job.told, job.stopped) == ([], False)


def test_one_that_never_printed_anything_has_not_fallen_silent(queue, stage):
    """`python train.py > log.txt`."""
    job = Hanging(queue, stage, says=False)
    waits(queue)
    job.pass_by(3600)
    assert (job.told, job.stopped) == ([], False)


def test_a_word_from_it_takes_the_warning_back(queue, stage):
    job = Hanging(queue, stage)
    waits(queue)
    job.pass_by(590)
    assert len(job.told) == 1
    job.spoke()
    job.pass_by(290)
    assert (len(job.told), job.stopped) == (1, False)
    job.pass_by(320)
    assert (len(job.told), job.stopped) == (2, True)


@pytest.mark.parametrize("hung", ["yield", "kill"])
def test_kept_for_a_while_a_whole_new_silence_is_needed(queue, stage, hung):
    job = Hanging(queue, stage, hung=hung)
    waits(queue)
    job.pass_by(400)
    queue.keep(job.id, 3600)
    job.pass_by(3600 + 260)
    assert (len(job.told), job.stopped) == (1, False)
    job.pass_by(50)
    assert (len(job.told), job.stopped) == (2, False)
    job.pass_by(310)
    assert job.stopped


def test_a_warning_that_could_not_be_delivered_puts_it_off_once(queue, stage):
    queue.box.set(BoxKey.BOT_ID, 7)
    job = Hanging(queue, stage)
    waits(queue)
    job.pass_by(1190)
    assert not job.stopped
    job.pass_by(40)
    assert job.stopped


def test_a_runner_that_is_killed_in_between_neither_forgets_nor_repeats_it(queue, stage):
    job = Hanging(queue, stage)
    waits(queue)
    job.pass_by(400)
    stage.restart()
    job.pass_by(150)
    stage.restart()
    job.pass_by(70)
    assert (len(job.told), job.stopped) == (1, True)


def test_what_was_not_written_down_was_not_said(queue, stage):
    job = Hanging(queue, stage)
    waits(queue)
    with stage.full_disk():
        job.pass_by(400)
    assert job.told == []
    job.pass_by(10)
    (told,) = job.told
    assert not job.stopped
    job.pass_by(310)
    assert abs(stage.stopped_at(job.id) - clock.moment(told["stops_at"])) <= FEW_SECONDS


WRITES = """
import os, sys
while sys.stdin.readline():
    os.write(1, b"x" * (2 << 20))
    print("saved", file=sys.stderr, flush=True)
"""


def test_what_reads_or_writes_is_alive(queue, stage, monkeypatch):
    """One rank saves a large checkpoint while the others wait for it at 100 %."""
    job = Hanging(queue, stage)
    waits(queue)
    monkeypatch.setattr(stage.readings, "moved_bytes", lambda _: linux.moved_bytes(linux.descendants(os.getpid())))
    stage.context.running.add(Ref(job.id, 1, queue.job(job.id).run_id))
    with subprocess.Popen(
        [sys.executable, "-c", WRITES], stdin=-1, stdout=subprocess.DEVNULL, stderr=-1, text=True
    ) as saving:
        for _ in range(80):
            print(file=saving.stdin, flush=True)
            assert saving.stderr.readline() == "saved\n"
            job.pass_by(15)
        assert (job.told, job.stopped) == ([], False)
        job.pass_by(630)
        assert (len(job.told), job.stopped) == (1, True)
        saving.stdin.close()
