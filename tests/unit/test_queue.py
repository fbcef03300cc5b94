"""The queue as its callers use it: keys, changes, holding, order, and what can be asked of it at any length."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from runner import clock
from runner.api import Queue, queue_order
from runner.api.edits import Edit
from runner.errors import NoSuchJobError, UserError
from runner.model import Reason, State
from runner.schedule.order import start_order
from runner.store.box import box_limits
from runner.store.scheduling_queries import CPU
from runner.terminal.wait import wait_for
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
    return [waiting.id for waiting in start_order(queue.line.waiting(per_lane=100), box_limits(queue.store))]


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
    assert queue.job(again).spec == replace(queue.job(job_id).spec, owner="tg:1001", again_of=job_id)
    assert queue.job(again).run_id != queue.job(job_id).run_id
    assert queue.job(queue.rerun(again)).spec.owner == "tg:1001"
    assert actions(queue)[:2] == [("somebody", "submit"), ("tg:1001", "rerun")]


def test_a_script_takes_no_changed_arguments(queue):
    [job_id] = submit(queue, "echo $1", script=True)
    with pytest.raises(UserError, match="is a script"):
        queue.rerun(job_id, ["--lr", "1"])


def test_somebody_else_acts_over_the_same_connection(queue):
    other = queue.acting_as("tg:1001")
    [job_id] = submit(other, "true")
    queue.order.hold(job_id)
    other.order.release(job_id)
    assert actions(queue) == [("tg:1001", "submit"), ("somebody", "hold"), ("tg:1001", "release")]
    assert (queue.actor, other.actor) == ("somebody", "tg:1001")


def test_sentences_name_commands_as_they_are_typed(tmp_path):
    with Queue(str(tmp_path / "home"), actor="tg:1001", typed=lambda words: f"/{words}") as chat:
        with pytest.raises(NoSuchJobError, match=r"no job 7\. /ls lists"):
            chat.job(7)
        chat.pause()
        assert chat.reasons.why_paused() == "the queue is paused by tg:1001; /resume goes on"
        [job_id] = submit(chat, "true")
        assert chat.order.hold(job_id) == f"Job {job_id} is held: it does not start before /release {job_id}."
        assert chat.reasons.of([chat.job(job_id)])[job_id].endswith(f"/release {job_id} lets it start")


# -- holding and order -------------------------------------------------------------------------------


def test_a_held_job_is_not_among_those_that_may_start(queue):
    first, second = submit(queue, "a", "b")
    assert "is held" in queue.order.hold(first)
    assert in_order(queue) == [second]
    assert queue.jobs.claim(first, [(CPU, 0)], "boot") is None
    assert queue.job(first).held_by == "somebody"
    assert queue.view.describe([queue.job(first)])[0]["held_by"] == "somebody"
    assert "already held, by somebody" in queue.acting_as("another").order.hold(first)

    assert queue.order.release(first) == f"Job {first} is released."
    assert in_order(queue) == [first, second]  # at the place it had
    assert queue.job(first).held_by is None
    assert queue.order.release(first) == f"Job {first} is not held."
    assert kinds(queue, first) == ["submitted", "held", "released"]
    assert actions(queue)[1:] == [("somebody", "hold"), ("somebody", "release")]


def test_a_held_job_says_who_holds_it_whatever_else_holds_the_queue(queue):
    first, second = submit(queue, "a", "b")
    queue.order.hold(first)
    queue.pause()
    reasons = queue.reasons.of([queue.job(first), queue.job(second)])
    assert reasons[first] == f"held by somebody; `nightshift release {first}` lets it start"
    assert reasons[second] == "no runner is up"


def test_a_held_job_can_be_cancelled(queue):
    [job_id] = submit(queue, "a")
    queue.order.hold(job_id)
    assert "is cancelled" in queue.stop(job_id)
    assert (queue.job(job_id).state, queue.job(job_id).held_by) == (State.CANCELLED, None)


def test_to_the_front_is_before_all_of_the_same_priority(queue):
    urgent = submit(queue, "u", priority="high")[0]
    a, b, c = submit(queue, "a", "b", "c")
    other_lane = submit(queue, "d", gpus=0)[0]
    assert queue.order.move(other_lane, "first") == f"Job {other_lane} is now first."
    assert queue.order.move(c, "first") == f"Job {c} is now first."
    assert in_order(queue) == [urgent, c, other_lane, a, b]
    assert queue.order.move(c, "first") == f"Job {c} is already first."
    assert queue.order.move(urgent, "first") == f"Job {urgent} is already first of high priority."
    assert kinds(queue, c) == ["submitted", "moved to front"]
    later = submit(queue, "e")[0]
    assert in_order(queue)[-1] == later


def test_the_front_is_before_a_held_job_that_was_put_there(queue):
    a, b, c = submit(queue, "a", "b", "c")
    queue.order.move(b, "first")
    queue.order.hold(b)
    assert queue.order.move(c, "first") == f"Job {c} is now first."
    queue.order.release(b)
    assert in_order(queue) == [c, b, a]
    queue.order.hold(a)
    assert queue.order.move(a, "first") == f"Job {a} is held by somebody. Once it is released it is first."


def test_those_that_may_not_start_yet_have_their_places_too(queue):
    a, b, c = submit(queue, "a", "b", "c")
    queue.order.hold(a)
    queue.order.hold(b)
    assert queue.order.move(c, "first") == f"Job {c} is now first."
    assert queue.order.move(b, "sooner") == f"Job {b} is held by somebody. Once it is released it is before job {a}."
    assert queue.order.move(b, "sooner") == f"Job {b} is held by somebody. Once it is released it is before job {c}."
    assert queue.order.move(a, "first") == f"Job {a} is held by somebody. Once it is released it is first."
    assert queue.order.move(a, "first") == f"Job {a} is held by somebody. Once it is released it is first."
    assert queue.order.move(c, "later") == f"Job {c} is already last."
    assert queue.order.move(b, "later") == f"Job {b} is held by somebody. Once it is released it is after job {c}."
    queue.order.release(a)
    queue.order.release(b)
    assert in_order(queue) == [a, c, b]
    at = clock.now() + timedelta(hours=1)
    [later] = submit(queue, "d", begin_at=clock.text(at))
    begins = f"begins at {at.astimezone():%H:%M on %d %b}"
    assert queue.order.move(later, "first") == f"Job {later} may not start yet ({begins}). Then it is first."


def test_up_changes_places_with_the_one_before(queue):
    a, b = submit(queue, "a", "b")
    other_lane = submit(queue, "c", gpus=0)[0]
    held, last = submit(queue, "d", "e")
    queue.order.hold(held)
    assert queue.order.move(last, "sooner") == f"Job {last} is now before job {other_lane}."
    assert in_order(queue) == [a, b, last, other_lane]
    queue.order.move(last, "sooner")
    assert queue.order.move(last, "sooner") == f"Job {last} is now before job {a}."
    assert in_order(queue) == [last, a, b, other_lane]
    assert queue.order.move(last, "sooner") == f"Job {last} is already first."
    queue.order.release(held)
    assert set(in_order(queue)) == {last, a, b, other_lane, held}


def test_priority_is_not_crossed_by_moving_up(queue):
    urgent = submit(queue, "u", priority="high")[0]
    [normal] = submit(queue, "n")
    assert "already first" in queue.order.move(normal, "sooner")
    assert in_order(queue) == [urgent, normal]


def test_down_changes_places_with_the_one_behind(queue):
    a, b = submit(queue, "a", "b")
    other_lane = submit(queue, "c", gpus=0)[0]
    held, last = submit(queue, "d", "e")
    queue.order.hold(held)
    assert queue.order.move(b, "later") == f"Job {b} is now after job {other_lane}."
    assert queue.order.move(b, "later") == f"Job {b} is now after job {last}."
    assert in_order(queue) == [a, other_lane, last, b]
    assert queue.order.move(b, "later") == f"Job {b} is already last."
    assert kinds(queue, b) == ["submitted", "moved down", "moved down"]
    assert actions(queue)[-1] == ("somebody", "later")


def test_beside_another_those_between_keep_their_order(queue):
    a, b, c, d = submit(queue, *"abcd")
    other_lane = submit(queue, "e", gpus=0)[0]
    queue.order.hold(c)
    assert queue.order.move(other_lane, "after", a) == f"Job {other_lane} is now after job {a}."
    assert in_order(queue) == [a, other_lane, b, d]
    assert queue.order.move(a, "before", d) == f"Job {a} is now before job {d}."
    assert queue.order.move(b, "after", c) == f"Job {b} is now after job {c}."
    queue.order.release(c)
    assert in_order(queue) == [other_lane, c, b, a, d]
    assert queue.order.move(b, "after", c) == f"Job {b} is already right after job {c}."
    assert queue.order.move(other_lane, "last") == f"Job {other_lane} is now last."
    assert queue.order.move(other_lane, "last") == f"Job {other_lane} is already last."
    assert queue.order.move(d, "first") == f"Job {d} is now first."
    assert queue.order.move(b, "sooner") == f"Job {b} is now before job {c}."
    assert queue.order.move(b, "later") == f"Job {b} is now after job {c}."
    assert in_order(queue) == [d, c, b, a, other_lane]
    [newest] = submit(queue, "f")
    assert in_order(queue)[-1] == newest
    assert kinds(queue, a) == ["submitted", "moved before"]


def test_last_is_behind_a_held_job_too(queue):
    a, b = submit(queue, "a", "b")
    queue.order.hold(b)
    assert queue.order.move(a, "last") == f"Job {a} is now last."
    queue.order.release(b)
    assert in_order(queue) == [b, a]


def test_places_compare_only_among_one_persons_jobs_of_one_priority(queue):
    a = submit(queue, "a")[0]
    urgent, aside = submit(queue, "b", priority="high")[0], submit(queue, "c", preemptible=True)[0]
    [theirs] = queue.submit([replace(a_spec(), owner="ann")], {KEY: VARIABLES})
    before = in_order(queue)
    for other, why in {
        urgent: "edit 1 --priority high",
        aside: "is preemptible",
        theirs: "belongs to somebody",
    }.items():
        with pytest.raises(UserError, match=why):
            queue.order.move(a, "after", other)
    for where, other, why in (("after", None, "After which job"), ("after", a, "itself"), ("up", None, "Where to")):
        with pytest.raises(UserError, match=why):
            queue.order.move(a, where, other)
    with pytest.raises(UserError, match="Where to"):
        queue.order.move(a, "first", urgent)
    assert in_order(queue) == before


def test_moving_ones_own_leaves_the_places_of_others(queue):
    a, b = submit(queue, "a", "b")
    [theirs] = queue.submit([replace(a_spec(), owner="ann")], {KEY: VARIABLES})
    [c] = submit(queue, "c")
    place = queue.job(theirs).position
    assert queue.order.move(c, "sooner") == f"Job {c} is now before job {b}."
    assert queue.order.move(c, "later") == f"Job {c} is now after job {b}."
    queue.order.move(a, "after", c)
    queue.order.move(b, "last")
    assert queue.job(theirs).position == place
    assert [job_id for job_id in in_order(queue) if job_id != theirs] == [c, a, b]


def test_a_move_writes_one_row_however_far_it_goes(queue):
    numbers = submit(queue, *(str(number) for number in range(95)))

    def written(act):
        before = queue.store.connection.total_changes
        act()
        return queue.store.connection.total_changes - before

    nearby = written(lambda: queue.order.move(numbers[1], "after", numbers[2]))
    assert written(lambda: queue.order.move(numbers[0], "after", numbers[-2])) == nearby
    assert written(lambda: queue.order.move(numbers[3], "last")) == nearby
    assert written(lambda: queue.order.move(numbers[-1], "before", numbers[5])) == nearby
    assert in_order(queue) == [
        numbers[2], numbers[1], numbers[4], numbers[-1], *numbers[5:-1], numbers[0], numbers[3]
    ]  # fmt: skip


@pytest.mark.parametrize("after", [True, False])
def test_as_many_as_one_likes_can_be_put_at_one_place(queue, after):
    first, *numbers = submit(queue, *(str(number) for number in range(90)))
    for number in numbers:
        queue.order.move(number, "after" if after else "before", first)
    assert in_order(queue) == ([first, *reversed(numbers)] if after else [*numbers, first])


def test_all_can_be_put_last_again_and_again(queue):
    numbers = submit(queue, *(str(number) for number in range(40)))
    for number in numbers * 2:
        queue.order.move(number, "last")
    [new] = submit(queue, "new")
    assert in_order(queue) == [*numbers, new]
    queue.order.move(new, "first")
    assert in_order(queue) == [new, *numbers]


def test_pages_together_are_the_whole_queue_in_the_order_the_scheduler_sees(queue):
    for owner in ("ann", "bob", "cy"):
        for priority in ("low", "high", "normal"):
            specs = [replace(a_spec(priority=priority, gpus=gpus), owner=owner) for gpus in (1, 2, 0, 1)]
            queue.submit(specs, {KEY: VARIABLES})
    for number in (3, 11, 12):
        queue.order.hold(number)
    queue.order.move(5, "after", 7)
    long_ago = clock.text(clock.now() - timedelta(days=1, hours=1))
    queue.store.execute("UPDATE jobs SET submitted_at = ? WHERE id IN (2, 9, 20)", (long_ago,))
    in_order = [job.id for job in start_order(queue.line.waiting(100), box_limits(queue.store))]
    assert len(in_order) == 33
    whole = [*in_order, *(job.id for job in queue.listing.queued(100) if job.held_by)]
    pages = [[job.id for job in queue.listing.queued(5, skip=first)] for first in range(0, 45, 5)]
    assert [number for page in pages for number in page] == whole
    assert len(whole) == 36


def test_jobs_are_described_alike_from_their_rows(queue):
    a, b, c, d, _ = submit(queue, "a", "b", "c", "d", "e")
    submit(queue, "f", after=(a,), on=("0",), time="60s", group="g")
    queue.order.hold(b)
    claim(queue, c)
    queue.stop(c)
    end(queue, d)
    rows = queue.listing.rows(list(State))
    assert list(queue.view.describe_rows(rows)) == queue.view.describe(queue.jobs.find())


def test_where_several_wait_first_is_first_of_ones_own(queue):
    a, b = submit(queue, "a", "b")
    queue.submit([replace(a_spec(), owner="ann")], {KEY: VARIABLES})
    assert queue.order.move(b, "first") == f"Job {b} is now first of yours."
    assert queue.acting_as("admin").order.move(a, "first") == f"Job {a} is now first of somebody's."
    assert queue.order.move(a, "sooner") == f"Job {a} is already first of yours."
    [c] = submit(queue, "c", preemptible=True)
    assert queue.order.move(c, "first") == f"Job {c} is already first of yours that may be preempted."
    _, e = submit(queue, "d", "e", priority="high")
    assert queue.order.move(e, "first") == f"Job {e} is now first of yours of high priority."
    assert queue.order.move(a, "last") == f"Job {a} is now last of yours that may not be preempted."


def test_a_job_put_first_that_waits_for_another_says_so(queue):
    a, b = submit(queue, "a", "b")
    [c] = submit(queue, "c", after=(b,))
    assert queue.order.move(c, "first") == f"Job {c} starts only after #{b}. Then it is first."
    assert in_order(queue) == [a, b]


@pytest.mark.parametrize(
    ("act", "where"), [("hold", ()), ("release", ()), *(("move", (where,)) for where in queue_order.ALONE)]
)
def test_only_what_waits_can_be_held_or_moved(queue, act, where):
    running, ended = submit(queue, "a", "b")
    claim(queue, running)
    end(queue, ended)
    with pytest.raises(UserError, match="is already running"):
        getattr(queue.order, act)(running, *where)
    with pytest.raises(UserError, match="has ended"):
        getattr(queue.order, act)(ended, *where)
    with pytest.raises(NoSuchJobError):
        getattr(queue.order, act)(99, *where)
    assert [action for _, action in actions(queue)] == ["submit"]


def test_the_order_is_the_one_that_reasons_go_by(queue):
    """`ls` asks about jobs by what they are; a moved one must be reckoned with where it is now."""
    a, b = submit(queue, "a", "b")
    queue.order.move(b, "first")
    assert queue.job(b).position < queue.job(a).position
    assert [job.id for job in queue.listing.queued()] == [b, a]


# -- looking -----------------------------------------------------------------------------------------


def test_an_overview_counts_what_there_is(queue):
    waits, held, runs, succeeded, long_ago, cancelled = submit(queue, *"abcdef")
    queue.order.hold(held)
    claim(queue, runs)
    now = datetime.now(timezone.utc)
    end(queue, succeeded, finished_at=(now - timedelta(hours=23)).isoformat(timespec="microseconds"))
    end(queue, long_ago, finished_at=(now - timedelta(hours=25)).isoformat(timespec="microseconds"))
    queue.stop(cancelled)
    assert queue.view.overview() == (1, 1, 1, {State.SUCCEEDED: 1, State.CANCELLED: 1})
    assert queue.listing.unfinished(owner="somebody") == [waits, held, runs]
    assert queue.listing.unfinished(owner="somebody", states=[State.QUEUED]) == [waits, held]
    assert queue.listing.unfinished(owner="nobody") == []


def test_what_is_unfinished_can_be_asked_for_by_owner_group_and_state(queue):
    a, b, c = submit(queue, *"abc", group="g")
    [theirs] = queue.submit([replace(a_spec(), owner="ann", group="g")], {KEY: VARIABLES})
    [alone] = submit(queue, "d")
    claim(queue, a)
    end(queue, c)
    assert queue.listing.unfinished() == [a, b, theirs, alone]
    assert queue.listing.unfinished(owner="somebody") == [a, b, alone]
    assert queue.listing.unfinished(group="g") == [a, b, theirs]
    assert queue.listing.unfinished(group="g", owner="ann", states=[State.QUEUED]) == [theirs]
    assert queue.listing.unfinished(states=[State.STARTING, State.RUNNING]) == [a]
    assert (queue.listing.unfinished(group="h"), queue.listing.unfinished(owner="nobody")) == ([], [])


def test_what_is_asked_often_is_found_by_index(queue):
    """A scan of the table would read every job there ever was."""
    asked = []
    queue.store.connection.set_trace_callback(asked.append)
    queue.listing.unfinished(owner="somebody")
    queue.listing.unfinished(owner="somebody", states=[State.QUEUED])
    queue.view.overview()
    queue.line.waiting(4)
    queue.listing.queued(20)
    [job_id] = submit(queue, "a")
    queue.order.hold(job_id)
    queue.order.release(job_id)
    [other] = submit(queue, "b", group="g")
    queue.order.move(job_id, "sooner")
    queue.order.move(job_id, "later")
    queue.order.move(job_id, "first")
    queue.order.move(job_id, "after", other)
    queue.order.move(job_id, "last")
    queue.listing.unfinished(group="g")
    queue.listing.unfinished(states=[State.RUNNING])
    queue.edit(job_id, Edit(values={"after": (other,)}))
    queue.store.connection.set_trace_callback(None)
    selects = [sql for sql in asked if sql.startswith(("SELECT", "WITH")) and "jobs" in sql]
    assert len(selects) > 8
    for sql in selects:
        plan = [row["detail"] for row in queue.store.rows(f"EXPLAIN QUERY PLAN {sql}")]
        tables = [step for step in plan if step.startswith(("SCAN jobs", "SEARCH jobs"))]
        assert all("INDEX" in step or "PRIMARY KEY" in step for step in tables), (sql, plan)


def test_what_fails_between_the_check_and_the_queueing_is_seen(queue, monkeypatch):
    [first] = submit(queue, "false")
    checked = queue.checks.check

    def check_and_lose(spec):
        checked(spec)
        queue.stop(first)

    monkeypatch.setattr(queue.checks, "check", check_and_lose)
    with pytest.raises(UserError, match=f"Job {first} has ended"):
        submit(queue, "true", after_ok=(first,))
    assert [job.id for job in queue.jobs.find()] == [first]


def test_the_environment_of_a_job_is_what_it_was_given(queue, tmp_path):
    secrets = tmp_path / "keys"
    secrets.write_text("WANDB_API_KEY=abc\nBOTH=file\n")
    spec = replace(a_spec(env={"BOTH": "asked", "LR": "1"}), env_file=str(secrets))
    [job_id] = queue.submit([spec], {KEY: VARIABLES})
    found = queue.view.environment_of(queue.job(job_id))
    assert found == {**VARIABLES, "WANDB_API_KEY": "abc", "BOTH": "asked", "LR": "1"}
    secrets.unlink()
    assert queue.view.environment_of(queue.job(job_id)) == {**VARIABLES, "BOTH": "asked", "LR": "1"}


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


def test_a_job_whose_time_is_to_come_is_something_left_to_do(queue):
    """Or a rented machine would be stopped before it."""
    later = (datetime.now(timezone.utc) + timedelta(hours=2)).isoformat(timespec="microseconds")
    [job_id] = submit(queue, "a", begin_at=later)
    assert queue.line.any_to_do()
    queue.order.hold(job_id)
    assert not queue.line.any_to_do()
    assert queue.line.count_not_ready() == 1
    queue.order.release(job_id)
    assert queue.line.any_to_do()
    queue.stop(job_id)
    assert not queue.line.any_to_do()


def test_who_waits_for_a_job_that_is_held_is_told_so(queue):
    (job_id,) = submit(queue, "true")
    queue.order.hold(job_id)
    said = []

    def say(sentence):
        said.append(sentence)
        queue.stop(job_id)

    assert wait_for(queue, [job_id], say) == 1
    assert said == [
        f"held until somebody releases them: job {job_id}; `nightshift release {job_id}` or `nightshift kill {job_id}`"
    ]
