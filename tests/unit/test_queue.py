"""The queue as its callers use it: keys, changes, holding, order, and what can be asked of it at any length."""

import os
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from runner import clock, rundir
from runner.api import Queue
from runner.errors import NoSuchJobError, UserError
from runner.model import Reason, State
from runner.schedule import in_turn
from runner.store.limits import box_limits
from runner.store.line import CPU
from tests.jobs import KEY, VARIABLES, a_spec, an_exit, submit


@pytest.fixture
def queue(tmp_path):
    with Queue(str(tmp_path / "home"), actor="somebody") as queue:
        yield queue


def kinds(queue, job_id):
    return [event["kind"] for event in queue.jobs.events(job_id)]


def actions(queue):
    return [(row["actor"], row["action"]) for row in queue.audit.rows()]


def in_order(queue):
    return [waiting.id for waiting in in_turn(queue.line.waiting(per_lane=100), box_limits(queue.store))]


def claim(queue, job_id):
    assert queue.jobs.claim(job_id, [(CPU, job_id)], "boot") == 1
    return queue.job(job_id)


def end(queue, job_id, **changes):
    queue.jobs.ended(claim(queue, job_id), *(State.SUCCEEDED, Reason.EXIT), an_exit(**changes))


# -- submitting --------------------------------------------------------------------------------------


def test_the_same_key_submits_once(queue, tmp_path):
    spec = a_spec(folder=str(tmp_path))
    first = queue.submit([spec], {KEY: VARIABLES}, keys=["update 7"])
    vanished = replace(spec, dir="/nowhere")  # what was accepted once is not judged again
    assert queue.submit([vanished, spec], {KEY: VARIABLES}, keys=["update 7", "update 8"]) == [*first, first[0] + 1]
    assert [row["data"] for row in queue.audit.rows()] == [{"jobs": first}, {"jobs": [first[0] + 1]}]


def test_a_batch_with_one_that_cannot_be_queues_none(queue):
    with pytest.raises(UserError, match="does not exist"):
        queue.submit([a_spec(), replace(a_spec(), dir="/nowhere")], {KEY: VARIABLES}, keys=["a", "b"])
    assert queue.jobs.find() == []


def test_rerun_is_the_same_again_for_whoever_wants_it(queue):
    [job_id] = submit(queue, "true", name="small")
    again = queue.acting_as("tg:1001").rerun(job_id, key="update 9", owner="tg:1001")
    assert queue.rerun(job_id, key="update 9") == again
    assert queue.job(again).spec == replace(queue.job(job_id).spec, owner="tg:1001")
    assert queue.job(again).run_id != queue.job(job_id).run_id
    assert queue.job(queue.rerun(again)).spec.owner == "tg:1001"
    assert actions(queue)[:2] == [("somebody", "submit"), ("tg:1001", "rerun")]


def test_a_script_takes_no_changed_arguments(queue):
    [job_id] = submit(queue, "echo $1", script=True)
    with pytest.raises(UserError, match="a whole script"):
        queue.rerun(job_id, ["--lr", "1"])


def test_somebody_else_acts_over_the_same_connection(queue):
    other = queue.acting_as("tg:1001")
    [job_id] = submit(other, "true")
    queue.hold(job_id)
    other.release(job_id)
    assert actions(queue) == [("tg:1001", "submit"), ("somebody", "hold"), ("tg:1001", "release")]
    assert (queue.actor, other.actor) == ("somebody", "tg:1001")


def test_sentences_name_commands_as_they_are_typed(tmp_path):
    with Queue(str(tmp_path / "home"), actor="tg:1001", typed=lambda words: f"/{words}") as chat:
        with pytest.raises(NoSuchJobError, match=r"no job 7\. /ls lists"):
            chat.job(7)
        chat.pause()
        assert chat.held() == "the queue is paused by tg:1001; /resume goes on"
        [job_id] = submit(chat, "true")
        assert chat.hold(job_id) == f"Job {job_id} is held: it does not start before /release {job_id}."
        assert chat.waiting_reasons([chat.job(job_id)])[job_id].endswith(f"/release {job_id} lets it start")


# -- holding and order -------------------------------------------------------------------------------


def test_a_held_job_is_not_among_those_that_may_start(queue):
    first, second = submit(queue, "a", "b")
    assert "is held" in queue.hold(first)
    assert in_order(queue) == [second]
    assert queue.jobs.claim(first, [(CPU, 0)], "boot") is None
    assert queue.job(first).held_by == "somebody"
    assert queue.describe([queue.job(first)])[0]["held_by"] == "somebody"
    assert "held already, by somebody" in queue.acting_as("another").hold(first)

    assert queue.release(first) == f"Job {first} is released."
    assert in_order(queue) == [first, second]  # at the place it had
    assert queue.job(first).held_by is None
    assert queue.release(first) == f"Job {first} is not held."
    assert kinds(queue, first) == ["submitted", "held", "released"]
    assert actions(queue)[1:] == [("somebody", "hold"), ("somebody", "release")]


def test_a_held_job_says_who_holds_it_whatever_else_holds_the_queue(queue):
    first, second = submit(queue, "a", "b")
    queue.hold(first)
    queue.pause()
    reasons = queue.waiting_reasons([queue.job(first), queue.job(second)])
    assert reasons[first] == f"held by somebody; `nightshift release {first}` lets it start"
    assert reasons[second] == "no runner is up"


def test_a_held_job_can_be_cancelled(queue):
    [job_id] = submit(queue, "a")
    queue.hold(job_id)
    assert "is cancelled" in queue.stop(job_id)
    assert (queue.job(job_id).state, queue.job(job_id).held_by) == (State.CANCELLED, None)


def test_to_the_front_is_before_all_of_the_same_priority(queue):
    urgent = submit(queue, "u", priority="high")[0]
    a, b, c = submit(queue, "a", "b", "c")
    other_lane = submit(queue, "d", gpus=0)[0]
    assert queue.to_front(other_lane) == f"Job {other_lane} is now first."
    assert queue.to_front(c) == f"Job {c} is now first."
    assert in_order(queue) == [urgent, c, other_lane, a, b]
    assert queue.to_front(c) == f"Job {c} is first already."
    assert queue.to_front(urgent) == f"Job {urgent} is first already of high priority."
    assert kinds(queue, c) == ["submitted", "moved to front"]
    later = submit(queue, "e")[0]
    assert in_order(queue)[-1] == later


def test_the_front_is_before_a_held_job_that_was_put_there(queue):
    a, b, c = submit(queue, "a", "b", "c")
    queue.to_front(b)
    queue.hold(b)
    assert queue.to_front(c) == f"Job {c} is now first."
    queue.release(b)
    assert in_order(queue) == [c, b, a]
    queue.hold(a)
    assert queue.to_front(a) == f"Job {a} is now first, but held by somebody."


def test_up_changes_places_with_the_one_before(queue):
    a, b = submit(queue, "a", "b")
    other_lane = submit(queue, "c", gpus=0)[0]
    held, last = submit(queue, "d", "e")
    queue.hold(held)
    assert queue.move_up(last) == f"Job {last} is now before job {other_lane}."
    assert in_order(queue) == [a, b, last, other_lane]
    queue.move_up(last)
    assert queue.move_up(last) == f"Job {last} is now before job {a}."
    assert in_order(queue) == [last, a, b, other_lane]
    assert queue.move_up(last) == f"Job {last} is first already."
    queue.release(held)
    assert set(in_order(queue)) == {last, a, b, other_lane, held}


def test_priority_is_not_crossed_by_moving_up(queue):
    urgent = submit(queue, "u", priority="high")[0]
    [normal] = submit(queue, "n")
    assert "first already" in queue.move_up(normal)
    assert in_order(queue) == [urgent, normal]


@pytest.mark.parametrize("act", ["hold", "release", "to_front", "move_up"])
def test_only_what_waits_can_be_held_or_moved(queue, act):
    running, ended = submit(queue, "a", "b")
    claim(queue, running)
    end(queue, ended)
    with pytest.raises(UserError, match="runs already"):
        getattr(queue, act)(running)
    with pytest.raises(UserError, match="has ended"):
        getattr(queue, act)(ended)
    with pytest.raises(NoSuchJobError):
        getattr(queue, act)(99)
    assert [action for _, action in actions(queue)] == ["submit"]


def test_the_order_is_the_one_that_reasons_go_by(queue):
    """`ls` asks about jobs by what they are; a moved one must be reckoned with where it is now."""
    a, b = submit(queue, "a", "b")
    queue.to_front(b)
    assert queue.job(b).position < queue.job(a).position
    assert [job.id for job in queue.listing.queued()] == [b, a]


# -- looking -----------------------------------------------------------------------------------------


def test_an_overview_counts_what_there_is(queue):
    waits, held, runs, succeeded, long_ago, cancelled = submit(queue, *"abcdef")
    queue.hold(held)
    claim(queue, runs)
    now = datetime.now(timezone.utc)
    end(queue, succeeded, finished_at=(now - timedelta(hours=23)).isoformat(timespec="microseconds"))
    end(queue, long_ago, finished_at=(now - timedelta(hours=25)).isoformat(timespec="microseconds"))
    queue.stop(cancelled)
    assert queue.overview() == (1, 1, 1, {State.SUCCEEDED: 1, State.CANCELLED: 1})
    assert queue.unfinished_of("somebody") == [waits, held, runs]
    assert queue.queued_of("somebody") == 2
    assert (queue.unfinished_of("nobody"), queue.queued_of("nobody")) == ([], 0)


def test_what_is_asked_often_is_found_by_index(queue):
    """A scan of the table would read every job there ever was."""
    asked = []
    queue.store.connection.set_trace_callback(asked.append)
    queue.unfinished_of("somebody")
    queue.queued_of("somebody")
    queue.overview()
    queue.line.waiting(4)
    queue.listing.queued(20)
    [job_id] = submit(queue, "a")
    queue.hold(job_id)
    queue.release(job_id)
    queue.move_up(job_id)
    queue.to_front(job_id)
    queue.store.connection.set_trace_callback(None)
    selects = [sql for sql in asked if sql.startswith(("SELECT", "WITH")) and "jobs" in sql]
    assert len(selects) > 8
    for sql in selects:
        plan = [row["detail"] for row in queue.store.rows(f"EXPLAIN QUERY PLAN {sql}")]
        tables = [step for step in plan if step.startswith(("SCAN jobs", "SEARCH jobs"))]
        assert all("INDEX" in step or "PRIMARY KEY" in step for step in tables), (sql, plan)


def test_the_environment_of_a_job_is_what_it_was_given(queue, tmp_path):
    secrets = tmp_path / "keys"
    secrets.write_text("WANDB_API_KEY=abc\nBOTH=file\n")
    spec = replace(a_spec(env={"BOTH": "asked", "LR": "1"}), env_file=str(secrets))
    [job_id] = queue.submit([spec], {KEY: VARIABLES})
    found = queue.environment_of(queue.job(job_id))
    assert found == {**VARIABLES, "WANDB_API_KEY": "abc", "BOTH": "asked", "LR": "1"}
    secrets.unlink()
    assert queue.environment_of(queue.job(job_id)) == {**VARIABLES, "BOTH": "asked", "LR": "1"}


def test_when_the_output_last_grew(queue):
    [job_id] = submit(queue, "true")
    assert queue.last_log_at(job_id) is None
    claim(queue, job_id)
    folder = rundir.folder_of(queue.home, job_id, 1)
    os.makedirs(folder)
    for name, at in ((rundir.OUTPUT, 1000), (rundir.TAILS[0], 3000), (rundir.TIMES, 9000)):
        path = os.path.join(folder, name)
        with open(path, "w"):
            os.utime(path, (at, at))
    assert queue.last_log_at(job_id) == datetime.fromtimestamp(3000, timezone.utc)


def test_a_job_does_not_wait_while_it_runs(queue, monkeypatch):
    passed_s, began = 0.0, datetime.now(timezone.utc)
    monkeypatch.setattr("runner.clock.now", lambda: began + timedelta(seconds=passed_s))
    [job_id] = submit(queue, "true")
    passed_s = 100.0
    queue.jobs.started(claim(queue, job_id), clock.text(clock.now()))
    passed_s = 1100.0
    assert [round(one.waited_s) for one in queue.line.running()] == [100]
    queue.jobs.back_to_queue(queue.job(job_id), "it made room", (State.CANCELLED, Reason.PREEMPTED))
    passed_s = 1150.0
    assert [round(one.waited_s) for one in queue.line.waiting(per_lane=9)] == [150]
