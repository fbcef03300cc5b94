"""How long a job waits before it is tried again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from runner import clock
from runner.api import Queue
from runner.model import Reason, State
from runner.schedule.backoff import LONGEST_S, Retry, is_news, pause_s
from runner.store.scheduling_queries import Line
from tests.attempts import begin
from tests.jobs import submit

FAILED, LOST, HOST = (State.FAILED, Reason.EXIT), (State.LOST, Reason.SUPERVISOR), (State.LOST, Reason.HOST)


def pauses(how, count, ran_s=1.0):
    before: float | None = None
    found = []
    for _ in range(count):
        before = pause_s(before, *how, ran_s)
        found.append(before)
    return found


def test_the_pause_grows_to_a_limit():
    assert pauses(FAILED, 9) == [10, 20, 40, 80, 160, 320, 600, 600, 600]
    assert LONGEST_S == 600


def test_a_loss_is_made_good_at_once_but_not_for_ever():
    assert pauses(LOST, 4) == [0, 10, 20, 40]
    assert pauses(HOST, 4) == [0, 0, 0, 0]


def test_an_attempt_that_ran_for_long_begins_a_new_series():
    assert pauses(FAILED, 3, ran_s=3600.0) == [10, 10, 10]
    assert [is_news(None, 1.0), is_news(10.0, 1.0), is_news(10.0, 3600.0)] == [True, False, True]


@pytest.fixture
def queue(tmp_path):
    with Queue(str(tmp_path / "home"), actor="somebody") as queue:
        yield queue


def put_off(queue, wait_s):
    (job_id,) = submit(queue, "false", gpus=0, retries=3, retry_on=("EXIT",))
    begin(queue, job_id)
    queue.jobs.use_retry(queue.job(job_id))
    retry = Retry(1, 3, wait_s, is_news=True)
    queue.jobs.back_to_queue(queue.job(job_id), retry.words, FAILED, retry=retry)
    return job_id


def test_a_clock_that_is_set_back_does_not_put_a_retry_off(queue, monkeypatch):
    job_id = put_off(queue, 20.0)
    (other,) = submit(queue, "true", gpus=0, begin_at=clock.text(clock.now() + timedelta(days=3)))
    now = clock.now() - timedelta(days=2)
    monkeypatch.setattr("runner.clock.now", lambda: now)
    Line(queue.store).let_begin()
    assert (queue.job(job_id).begin_at - now).total_seconds() == LONGEST_S
    assert (queue.job(other).begin_at - now) > timedelta(days=4)


def test_putting_it_first_says_that_it_waits_for_its_retry(queue):
    submit(queue, "true", gpus=0)
    job_id = put_off(queue, 600.0)
    assert queue.reasons.of([queue.job(job_id)])[job_id].startswith("retry 1 of 3 in ")
    assert queue.order.move(job_id, "first").startswith(f"Job {job_id} may not start yet (retry 1 of 3 in ")
