"""What a paused queue is tried with, and when: without a runner, by a clock that is told how late it is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner import clock
from runner.api import Queue
from runner.config.settings import Settings
from runner.model import Phase, Reason, State
from runner.schedule.backoff import Retry
from runner.store.box import BoxKey
from runner.store.scheduling_queries import Line
from runner.watchdogs.breaker import BreakerWatch
from tests.attempts import begin, end
from tests.jobs import a_probe_report, an_exit, submit
from tests.step_context import a_context

PROBE = {"batches": [1]}


class Stage:
    """A queue in which three jobs have failed at once."""

    def __init__(self, queue: Queue, patch: pytest.MonkeyPatch) -> None:
        self.queue, self._now = queue, clock.now()
        patch.setattr("runner.clock.now", lambda: self._now)
        self.restart()

    def restart(self, **settings: Any) -> None:
        waiter: Any = SimpleNamespace(tick_in=lambda _: None, tick_within=lambda _: None)
        context = a_context(self.queue.store, Settings(home=self.queue.home, **settings), waiter=waiter)
        self.watch = BreakerWatch(context)

    def fails(self, *job_ids: int) -> None:
        for job_id in job_ids:
            begin(self.queue, job_id, *["GPU-a"] * self.queue.job(job_id).spec.gpus)
            end(self.queue, job_id, exit_code=1)
            self.watch.on_end(self.queue.job(job_id), State.FAILED, an_exit(exit_code=1), 0.0)

    def fails_and_waits(self, job_id: int, number: int) -> None:
        """An attempt fails, and another one is to be made after a pause."""
        self.queue.store.execute("UPDATE jobs SET begin_at = NULL, ready = 1 WHERE id = ?", (job_id,))
        begin(self.queue, job_id, "GPU-a")
        retry, failed = Retry(number, 9, wait_s=10.0, is_news=number == 1), an_exit(exit_code=1)
        after = (State.FAILED, Reason.EXIT)
        self.queue.jobs.back_to_queue(self.queue.job(job_id), retry.words, after, end=failed, retry=retry)
        self.watch.on_end(self.queue.job(job_id), State.FAILED, failed, 0.0)

    def has_a_stubborn_one(self) -> int:
        """A job that waits for its fourth attempt; no other waits."""
        self.queue.resume()
        for other in self.queue.listing.unfinished():
            self.queue.stop(other)
        (job_id,) = submit(self.queue, "python stubborn.py", retries=9)
        for number in range(1, 4):
            self.fails_and_waits(job_id, number)
        return job_id

    def pass_by(self, **time: float) -> None:
        self._now += timedelta(**time)

    def tried(self) -> list[int]:
        """With which jobs it may be tried now."""
        return [one.id for one in self.watch.candidates()]

    def told(self) -> list[str]:
        return [notice.kind for notice in self.queue.notices.open(100) if notice.job_id is None]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with Queue(str(tmp_path / "home"), actor="somebody") as queue:
        stage = Stage(queue, monkeypatch)
        bad = [submit(queue, f"python train.py --lr 0.{number}")[0] for number in range(5)]
        stage.fails(*bad[:3])
        yield stage


def test_a_job_without_gpus_shows_nothing_of_gpus(stage):
    submit(stage.queue, "rsync results", gpus=0)
    assert stage.tried() == []
    stage.pass_by(minutes=5.1)
    assert stage.tried() == [4]


def test_one_that_is_unlike_them_is_tried_when_it_comes(stage):
    assert stage.tried() == []
    assert stage.told() == ["paused"]
    (other,) = submit(stage.queue, "python eval.py")
    assert stage.tried() == [other]


def test_after_one_in_vain_the_next_waits_for_its_time(stage):
    (other,) = submit(stage.queue, "python eval.py")
    assert stage.tried() == [other]
    stage.watch.tries(other)
    stage.fails(other)
    assert stage.tried() == []
    submit(stage.queue, "python third.py")
    assert stage.tried() == []
    stage.pass_by(minutes=5.1)
    assert len(stage.tried()) == 1


def test_that_there_is_no_room_for_a_moment_is_not_told(stage, monkeypatch):
    moment = SimpleNamespace(now=0.0)
    monkeypatch.setattr("runner.watchdogs.breaker.time", SimpleNamespace(monotonic=lambda: moment.now))
    stage.queue.resume()
    (other,) = submit(stage.queue, "python eval.py")
    stage.fails(*(submit(stage.queue, "python train.py --lr 2")[0] for _ in range(3)))
    for moment.now in (100.0, 110.0, 114.0):
        assert stage.tried() == [other]
        stage.watch.tries(None)
        assert stage.told() == ["paused"]  # of the first time
    for moment.now in (116.0, 120.0):
        assert stage.tried() == [other]
        stage.watch.tries(None)
        assert stage.told() == ["paused", "paused"]


def test_while_it_looks_for_its_batch_it_has_not_run(stage):
    queue = stage.queue
    (other,) = submit(queue, "python eval.py --bs {batch_size}", probe=PROBE)
    assert stage.tried() == [other]
    stage.watch.tries(other)
    assert queue.jobs.claim(other, [("GPU-a", 0)], "boot")
    queue.jobs.started(queue.job(other), clock.text(clock.now()), Phase.PROBING)
    stage.pass_by(minutes=3)
    assert (stage.tried(), bool(queue.reasons.why_paused())) == ([], True)
    queue.jobs.probed(queue.job(other), a_probe_report(), 8, "")
    stage.pass_by(seconds=5)
    assert (stage.tried(), bool(queue.reasons.why_paused())) == ([], True)
    stage.pass_by(seconds=6)
    assert (stage.tried(), queue.reasons.why_paused(), stage.told()) == ([], None, ["paused", "goes on"])


def test_a_clock_that_is_set_back_does_not_make_it_wait_for_longer(stage):
    stage.pass_by(days=-2)
    assert stage.tried() == []
    stage.pass_by(minutes=5.1)
    assert stage.tried() == [4]


def test_where_it_is_not_to_be_tried_any_more_somebody_is_told(stage):
    (other,) = submit(stage.queue, "python eval.py")
    stage.queue.resume()
    bad = [submit(stage.queue, f"python train.py --lr 1.{number}")[0] for number in range(3)]
    stage.fails(*bad)
    assert stage.told() == ["paused"]  # of the first time
    stage.restart(breaker_again="0s")
    assert (stage.tried(), stage.told()) == ([], ["paused", "paused"])
    assert (stage.tried(), stage.told()) == ([], ["paused", "paused"])
    assert stage.queue.job(other).state is State.QUEUED


def test_the_attempts_of_one_job_count_and_those_of_one_that_is_tried(stage):
    queue, stubborn = stage.queue, stage.has_a_stubborn_one()
    assert queue.box.get(BoxKey.PAUSED)["why"] == "3 attempts in a row failed within seconds (exit code 1)"
    stage.pass_by(minutes=5.1)
    Line(queue.store).let_begin()
    assert stage.tried() == [stubborn]
    stage.watch.tries(stubborn)
    stage.fails_and_waits(stubborn, 4)
    assert (stage.tried(), queue.box.get(BoxKey.PAUSED)["tries"]) == ([], 1)


def test_while_another_job_runs_well_the_one_that_fails_again_and_again_is_held(stage):
    queue, stubborn = stage.queue, stage.has_a_stubborn_one()
    (other,) = submit(queue, "python eval.py")
    assert stage.tried() == [other]
    stage.watch.tries(other)
    begin(queue, other, "GPU-a")
    stage.pass_by(seconds=11)
    assert (stage.tried(), queue.reasons.why_paused()) == ([], None)
    assert "the breaker" in queue.job(stubborn).held_by


def test_who_submits_what_is_tried_at_once_is_not_told_that_it_waits(stage, monkeypatch):
    monkeypatch.setattr("runner.processes.process_lock.runner_is_up", lambda _: True)
    queue, like = stage.queue, 4
    queue.box.set(BoxKey.CPU_SLOTS, 1)
    (other,) = submit(queue, "python eval.py", gpus=0)
    # no GPUs are known here, so those that failed must not have had any
    queue.store.execute("UPDATE jobs SET lane = (SELECT lane FROM jobs WHERE id = ?)", (other,))
    why = queue.reasons.of([queue.job(like), queue.job(other)])
    assert why[other] == "starts next, and shows whether the paused queue may go on"
    assert "a job of another kind is tried at once, or one like them at" in why[like]
    assert queue.reasons.trial_job() == other
    stage.watch.tries(other)
    assert queue.reasons.trial_job() == other
    assert f"#{other} shows whether it may go on" in queue.reasons.why_paused()
