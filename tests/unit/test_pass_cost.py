"""A pass of the scheduler asks nothing that takes longer the more jobs there are, and grows evenly with the GPUs."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))  # benchmarks are not installed

from benchmarks.choose import scenes
from benchmarks.queue import QueueOf
from runner.store.connection import open_store


@pytest.fixture
def store(tmp_path):
    store = open_store(str(tmp_path / "home"))
    yield store
    store.close()


def test_every_question_of_a_pass_is_answered_by_an_index(store):
    queue, asked = QueueOf(store, 300), set()
    store.connection.set_trace_callback(asked.add)
    with store.transaction():
        begun = queue.begin(queue.decide())
        for job in begun:
            queue.run(job)
            queue.end(job.id)
    store.connection.set_trace_callback(None)
    assert len(begun) > 1
    questions = [sql for sql in asked if sql.startswith(("SELECT", "UPDATE", "DELETE", "WITH"))]
    assert len(questions) > 10
    for sql in questions:
        steps = [row["detail"] for row in store.rows(f"EXPLAIN QUERY PLAN {sql}")]
        read_whole = [step for step in steps if step.startswith(("SCAN jobs", "SCAN dep", "SCAN att", "SCAN ev"))]
        small = ("INDEX jobs_live", "INDEX jobs_to_begin")  # of these there are as many as run, or are to begin
        assert all(any(index in step for index in small) for step in read_whole), (sql, steps)


def test_what_is_looked_at_does_not_grow_with_the_queue(store):
    queue = QueueOf(store, 300)
    before = len(queue.line.waiting(per_lane=2))
    QueueOf(store, 3_000)
    lanes = len(queue.line.lanes())
    assert before <= len(queue.line.waiting(per_lane=2)) <= 2 * lanes <= 2 * 5 * 3 * 4


@pytest.mark.parametrize("scene", scenes(8))
def test_ten_times_the_gpus_take_no_more_than_fifteen_times_the_steps(scene):
    few, many = (steps_of(scenes(size)[scene]) for size in (30, 300))
    assert many <= 15 * few  # if each start looks at all GPUs, it is 80 times


def steps_of(act):
    """Return how many functions are called."""
    steps, before = 0, sys.getprofile()

    def count(_frame, event, _argument):
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(before)
    return steps
