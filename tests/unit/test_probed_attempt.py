"""What a supervisor makes of probes that nobody saw, that fail, or that leave memory behind; they are scripted here."""

import json
import os

import pytest

from runner import rundir
from runner.batch import BatchPlan, BatchSettings, Failed, Measured, OutOfMemory, Unmeasured
from runner.commands.placeholders import JobCommand
from runner.config.profiles import Profile
from runner.supervisor import probed_attempt
from runner.supervisor.gpu_memory import MemoryReading
from runner.supervisor.job_processes import Ready
from runner.supervisor.probe_records import ProbeOrder

BLIND = Unmeasured("the readings of its GPU stopped while it was probed", 4.0, blind=True)
BUDGET_MIB = 24_000.0


class Stage:
    """An attempt in a folder: outcomes for its probes, and readings of its GPU for between them."""

    def __init__(self, folder, monkeypatch) -> None:
        self.folder, self.outcomes, self.tried = folder, [], []
        self.ran: rundir.AttemptSpec | None = None
        self.ended_with: FakeTrial | None = None
        self.wake, self.tell = os.pipe2(os.O_NONBLOCK)
        self.gpu(used=0)
        monkeypatch.setattr(probed_attempt, "Trial", lambda folder, spec, *_: FakeTrial(self, spec))
        monkeypatch.setattr(probed_attempt, "Execution", lambda folder, spec, *_: FakeRun(self, spec))
        monkeypatch.setattr(probed_attempt, "Gauge", lambda *_: self)
        monkeypatch.setattr(probed_attempt, "BACK_WITHIN_S", 0.3)
        monkeypatch.setattr(probed_attempt, "BLIND_S", 0.2)
        monkeypatch.setattr(probed_attempt, "LOOK_EVERY_MS", 1)

    # the gauge
    since = 0.0
    sick: str | None = None
    seen: MemoryReading | None = None

    def gpu(self, used: float | None, sick: str | None = None) -> None:
        self.sick = sick
        self.seen = None if used is None else MemoryReading(0.0, used, 90, back=used < 64)

    def read(self):
        return self.seen

    def trouble(self):
        return self.sick

    def ran_well(self) -> Measured:
        """As a program does that takes 800 MiB for each sample: 25 are best."""
        return Measured(2000 + 800 * self.tried[-1])

    # the attempt
    def run(self, *outcomes, command: JobCommand | None = None):
        self.outcomes = list(outcomes)
        pipe = os.open(os.devnull, os.O_WRONLY)
        plan = BatchPlan.start(BatchSettings(own=3), BUDGET_MIB)
        order = ProbeOrder(
            plan=plan, values={"job_id": "1"}, command=command or JobCommand(argv=("x",)), profile=Profile(),
            readings="", gpus={"G": 0},
        )  # fmt: skip
        spec = rundir.AttemptSpec(
            job_id=1, attempt=1, run_id="ab", dir=str(self.folder), log_limit_bytes=10_000, log_tail_bytes=1000,
            probe=json.loads(json.dumps(order.to_json())),
        )  # fmt: skip
        ready = Ready(rundir.StartRecord(pid=1, boot_id="", at=""), self.wake, 0, pipe)
        self.ended_with = probed_attempt.run(str(self.folder), spec, ready, lambda: None)
        return self

    @property
    def batch(self) -> int | None:
        return int(self.ran.env_over["NIGHTSHIFT_BATCH_SIZE"]) if self.ran else None

    @property
    def plan(self) -> BatchPlan:
        return BatchPlan.from_json(json.loads((self.folder / rundir.PROBE).read_text())["plan"])


class FakeTrial:
    patience_s, unread_s, printed, reserved = 0.5, 0.1, b"", None
    asked_to_stop = False

    def __init__(self, stage: Stage, spec: rundir.AttemptSpec) -> None:
        self._stage = stage
        stage.tried.append(int(spec.env_over["NIGHTSHIFT_BATCH_SIZE"]))

    def measure(self, *_):
        outcome = self._stage.outcomes.pop(0)
        if callable(outcome):
            outcome = outcome()
        self._outcome = outcome

    @property
    def is_over(self):
        return self.asked_to_stop

    def outcome(self, _):
        return self._outcome


class FakeRun:
    def __init__(self, stage: Stage, spec: rundir.AttemptSpec) -> None:
        stage.ran = spec

    def start(self):
        return

    def watch(self):
        return


@pytest.fixture
def stage(tmp_path, monkeypatch):
    return Stage(tmp_path, monkeypatch)


def test_a_probe_that_nobody_saw_is_repeated_once_readings_are_back(stage):
    stage.run(BLIND, stage.ran_well, stage.ran_well)
    assert stage.tried[:2] == [8, 8]
    assert stage.batch == 25
    assert stage.plan.probes == 3
    assert stage.plan.probed_s == 4.0


def test_but_once_only(stage):
    stage.run(BLIND, BLIND)
    assert (stage.tried, stage.batch) == ([8, 8], 3)
    assert stage.plan.step.why == BLIND.why


def test_where_readings_do_not_come_back_the_users_batch_is_run(stage):
    stage.gpu(None)
    stage.run(BLIND)
    assert (stage.tried, stage.batch) == ([8], 3)
    assert stage.plan.line is None


def test_readings_that_stop_after_a_probe_was_measured_take_nothing_from_it(stage):
    def second():
        stage.gpu(None)
        return stage.ran_well()

    stage.run(stage.ran_well, second)
    assert stage.batch == 25


def test_memory_that_does_not_come_back_makes_the_measurement_worthless(stage):
    def second():
        stage.gpu(5000)
        return stage.ran_well()

    stage.run(stage.ran_well, second)
    assert stage.batch == 3
    assert "did not come back" in stage.plan.step.why
    assert stage.plan.line is None


def test_a_failure_while_the_gpu_is_lost_says_nothing_about_the_batch(stage):
    def second():
        stage.gpu(None, sick="GPU 0 fell off the bus")
        return Failed("exit code 1", "CUDA error: unspecified launch failure")

    stage.run(stage.ran_well, second)
    assert stage.batch == 3
    assert stage.plan.step.why == "the probe at batch 21 failed (exit code 1), and GPU 0 fell off the bus"
    assert stage.plan.line is None  # so that nothing is remembered


def test_nor_does_one_while_nothing_can_be_read(stage):
    """As on a full disk, which stops readings and programs alike."""

    def second():
        stage.gpu(None)
        return Failed("exit code 1", "No space left on device")

    stage.run(stage.ran_well, second)
    assert (stage.batch, stage.plan.line) == (3, None)
    assert "no reading" in stage.plan.step.why


def test_but_one_while_all_is_well_does(stage):
    stage.run(stage.ran_well, Failed("exit code 1", "too few samples"))
    assert (stage.batch, stage.plan.failure) == (8, "the probe at batch 21 failed (exit code 1)")


def test_a_batch_that_ran_out_of_memory_is_not_run_for_want_of_readings(stage):
    stage.gpu(None)
    stage.run(OutOfMemory(), OutOfMemory(), BLIND)
    assert (stage.tried, stage.batch) == ([8, 4, 2], 3)
    stage.run(OutOfMemory(), OutOfMemory(), OutOfMemory(), BLIND)
    assert stage.batch == 1


def test_a_first_failure_ends_the_job_whatever_the_gpu_says(stage):
    stage.gpu(None, sick="GPU 0 fell off the bus")
    stage.run(Failed("exit code 1", "no data"))
    assert stage.ran is None
    assert stage.ended_with is not None


def test_a_stop_between_two_probes_is_obeyed(stage):
    def first():
        os.write(stage.tell, bytes([15]))
        stage.gpu(5000)
        return stage.ran_well()

    stage.run(first)
    assert (stage.tried, stage.ran) == ([8], None)
    assert stage.ended_with.asked_to_stop


def test_what_a_full_disk_kept_back_is_told_at_the_end(stage, monkeypatch):
    write, full = rundir.write_atomically, [True]

    def fails_while_full(path, body, mode=0o600):
        if full[0]:
            raise OSError(28, "No space left on device")
        write(path, body, mode)

    monkeypatch.setattr(rundir, "write_atomically", fails_while_full)
    monkeypatch.setattr(FakeRun, "watch", lambda _: full.clear() or full.append(False))
    stage.run(stage.ran_well, stage.ran_well)
    assert stage.plan.step.batch == 25


def test_who_waits_for_room_for_a_script_still_hears_a_stop(stage, monkeypatch):
    def full(*_, **__):
        os.write(stage.tell, bytes([15]))
        raise OSError(28, "No space left on device")

    passed_on = []
    monkeypatch.setattr(rundir, "write_atomically", full)
    monkeypatch.setattr(probed_attempt.os, "kill", lambda *what: passed_on.append(what))
    stage.run(Failed("exit code 127"), command=JobCommand(text="#!/bin/sh", script=True))
    assert passed_on == [(os.getpid(), 15)]  # to the probe that cannot be, which ends with it
