"""Groups of jobs: one name, one count, one notice when the last has ended."""

import csv
import io

import pytest

from runner.api import Queue, groups
from runner.api.edits import Edit
from runner.config.option_reader import read_words
from runner.errors import UserError
from runner.model import Reason, State
from runner.store.retention import Rules, prune
from runner.sweep.metrics import Metric
from tests.jobs import KEY, VARIABLES, a_spec, an_exit

LOSS = Metric("val_loss", "val_loss=(.*)")


@pytest.fixture
def queue(tmp_path):
    with Queue(str(tmp_path / "home"), actor="somebody") as queue:
        yield queue


def swept(queue, values=("1", "2", "3"), **template):
    specs = [a_spec(f"echo {value}", parameters={"a": value}, gpus=0) for value in values]
    return queue.submit(specs, {KEY: VARIABLES}, sweep=groups.Template(**template))


def grouped(queue, name, *commands, **values):
    return queue.submit([a_spec(command, group=name, gpus=0, **values) for command in commands], {KEY: VARIABLES})


def begin(queue, *numbers):
    for number in numbers:
        queue.jobs.claim(number, [("cpu", number)], "boot")
        queue.jobs.started(queue.job(number), "2026-01-01T00:00:00.000000+00:00")


def end(queue, *numbers, state=State.SUCCEEDED, reason=Reason.EXIT, **how):
    for number in numbers:
        begin(queue, number)
        queue.jobs.ended(queue.job(number), state, reason, an_exit(**how))


def told(queue):
    return [notice.payload.to_json() for notice in queue.notices.open(1000) if notice.kind == "group done"]


def test_a_sweep_is_a_group_of_its_own_name(queue):
    first, second = swept(queue), swept(queue, at_most=2, metric=LOSS, command="echo {a}", parameters={"a": ["1"]})
    assert [queue.job(number).spec.group for number in (*first, *second)] == ["sweep-1"] * 3 + ["sweep-2"] * 3
    assert [queue.job(number).spec.parameters for number in first] == [{"a": "1"}, {"a": "2"}, {"a": "3"}]
    found = queue.groups.get("sweep-2")
    assert (found.at_most, found.command, found.owner) == (2, "echo {a}", "somebody")
    assert Metric.from_json(found.metric) == LOSS


def test_a_name_is_not_given_twice(queue):
    grouped(queue, "sweep-1", "true")
    assert queue.job(swept(queue)[0]).spec.group == "sweep-2"
    end(queue, 2, 3, 4)
    prune(queue.store, Rules(keep_jobs=0.0))
    assert queue.groups.get("sweep-2") is None
    assert queue.groups.get("sweep-1") is not None
    assert queue.job(swept(queue)[0]).spec.group == "sweep-3"


def test_a_sweep_that_cannot_be_queued_leaves_no_group(queue):
    specs = [a_spec("true", gpus=0), a_spec("true", gpus=0, folder="/nowhere")]
    with pytest.raises(UserError, match="does not exist"):
        queue.submit(specs, {KEY: VARIABLES}, sweep=groups.Template())
    assert queue.groups.latest(9) == []
    assert queue.job(swept(queue)[0]).spec.group == "sweep-1"


def test_the_same_keys_make_no_second_group(queue):
    specs = [a_spec("true", gpus=0)] * 2
    ids = queue.submit(specs, {KEY: VARIABLES}, ["k1", "k2"], groups.Template())
    assert queue.submit(specs, {KEY: VARIABLES}, ["k1", "k2"], groups.Template()) == ids
    assert queue.groups.latest(9) == ["sweep-1"]


def test_one_status_line(queue):
    swept(queue, [str(n) for n in range(9)], at_most=2)
    end(queue, 1, 2, 3, 4)
    end(queue, 5, state=State.FAILED, exit_code=1)
    begin(queue, 6, 7)
    line = groups.standing(queue, "sweep-1").line
    assert line.startswith("sweep-1: 4 of 9 done, 1 failed, 2 running, 2 waiting, about ")
    assert line.endswith(" left; at most 2 at once")
    with pytest.raises(UserError, match=r"no group 'sweep-7'\. The latest: sweep-1"):
        groups.standing(queue, "sweep-7")


def test_it_is_told_once_when_the_last_has_ended(queue):
    swept(queue)
    end(queue, 1)
    end(queue, 2, state=State.FAILED, exit_code=1)
    assert told(queue) == []
    end(queue, 3)
    [notice] = told(queue)
    assert notice["group"] == "sweep-1"
    assert notice["counts"] == notice["in_all"] == {"SUCCEEDED": 2, "FAILED": 1}
    assert None not in (notice["since"], notice["until"])


def test_it_is_written_with_the_last_end_or_not_at_all(queue):
    """Killed before the commit, it is as if nothing had been: the next runner tells it once."""
    swept(queue, ["1"])
    begin(queue, 1)
    job = queue.job(1)
    queue.store.execute("BEGIN IMMEDIATE")
    queue.jobs.ended(job, State.SUCCEEDED, Reason.EXIT, an_exit())
    assert len(told(queue)) == 1
    queue.store.connection.rollback()
    assert told(queue) == []
    assert queue.job(1).state is State.RUNNING
    queue.jobs.ended(job, State.SUCCEEDED, Reason.EXIT, an_exit())
    assert len(told(queue)) == 1


def test_a_new_attempt_is_no_end(queue):
    swept(queue, ["1"])
    begin(queue, 1)
    queue.jobs.back_to_queue(queue.job(1), "lost", (State.LOST, Reason.HOST))
    assert told(queue) == []
    end(queue, 1)
    assert len(told(queue)) == 1


def test_what_is_added_later_is_told_again_by_itself(queue):
    swept(queue, ["1", "2"])
    end(queue, 1, 2)
    grouped(queue, "sweep-1", "true")
    end(queue, 3, state=State.FAILED, exit_code=1)
    first, again = told(queue)
    assert first["counts"] == {"SUCCEEDED": 2}
    assert again["counts"] == {"FAILED": 1}
    assert again["in_all"] == {"SUCCEEDED": 2, "FAILED": 1}


def test_cancelling_all_of_it_is_one_end(queue):
    ids = swept(queue)
    with queue.store.transaction():
        for number in ids:
            queue.stop(number)
    assert [notice["counts"] for notice in told(queue)] == [{"CANCELLED": 3}]


def test_what_can_never_run_ends_with_what_it_waited_for(queue):
    [first] = grouped(queue, "night", "false")
    grouped(queue, "night", "true", "true", after_ok=(first,))
    end(queue, first, state=State.FAILED, exit_code=1)
    assert [notice["counts"] for notice in told(queue)] == [{"FAILED": 1, "CANCELLED": 2}]


def test_a_group_that_only_waited_for_another_job_ends_with_it(queue):
    [first] = queue.submit([a_spec("false", gpus=0)], {KEY: VARIABLES})
    grouped(queue, "night", "true", after_ok=(first,))
    end(queue, first, state=State.FAILED, exit_code=1)
    assert [notice["counts"] for notice in told(queue)] == [{"CANCELLED": 1}]


def test_what_failed_and_was_run_again_counts_as_what_became_of_it(queue):
    swept(queue)
    end(queue, 1)
    end(queue, 2, state=State.FAILED, exit_code=1)
    end(queue, 3, state=State.CANCELLED, reason=Reason.TIMEOUT)
    assert [one.id for one in queue.groups.failed("sweep-1")] == [2, 3]
    assert groups.rerun(queue, "sweep-1", [2, 3]) == [4, 5]
    assert queue.groups.failed("sweep-1") == []
    assert queue.job(4).spec.parameters == {"a": "2"}
    end(queue, 4)
    end(queue, 5, state=State.FAILED, exit_code=1)
    assert groups.standing(queue, "sweep-1").line == "sweep-1: 2 of 3 done, 1 failed"
    assert [one.id for one in queue.groups.failed("sweep-1")] == [5]
    assert [job.id for job in groups.members(queue, "sweep-1")] == [1, 4, 5]
    assert told(queue)[-1]["counts"] == {"SUCCEEDED": 1, "FAILED": 1}
    assert told(queue)[-1]["in_all"] == {"SUCCEEDED": 2, "FAILED": 1}


def test_what_somebody_stopped_did_not_fail(queue):
    swept(queue, ["1"])
    queue.stop(1)
    assert queue.groups.failed("sweep-1") == []
    assert [one.id for one in queue.groups.ended("sweep-1")] == [1]


def test_another_limit_and_another_metric(queue):
    swept(queue)
    assert groups.change(queue, "sweep-1", {"at_most": 3, "metric": LOSS}) == (
        "sweep-1: at most 3 at once, compared by val_loss, the smallest is best."
    )
    assert queue.groups.get("sweep-1").at_most == 3
    groups.change(queue, "sweep-1", {"at_most": None})
    assert queue.groups.get("sweep-1").at_most is None
    assert queue.groups.get("sweep-1").metric == LOSS.to_json()


def test_a_changed_rerun_is_another_combination(queue):
    swept(queue, ["1"])
    end(queue, 1, state=State.FAILED, exit_code=1)
    changed = queue.job(queue.rerun(1, ["--b", "2"]))
    assert (changed.spec.parameters, changed.spec.again_of, changed.spec.group) == ({}, None, "sweep-1")
    assert [one.id for one in queue.groups.failed("sweep-1")] == [1]


def results(queue, numbers, largest=False):
    found = {number: groups.MetricValue(str(value), value) for number, value in numbers.items()}
    return groups.compared(groups.members(queue, "sweep-1"), found, LOSS._replace(largest=largest))


def test_results_are_sorted_and_the_best_is_one_that_succeeded(queue):
    swept(queue, ["1", "2", "3", "4", "5"])
    end(queue, 1, 2)
    end(queue, 3, state=State.FAILED, exit_code=1)
    begin(queue, 4)
    found = results(queue, {1: 0.5, 2: 0.25, 3: 0.125})
    assert [row.job.id for row in found.rows] == [3, 2, 1, 4, 5]
    assert groups.best_words(found) == "best val_loss 0.25 with a=2"
    assert [row.job.id for row in results(queue, {1: 0.5, 2: 0.25, 3: 0.125}, largest=True).rows] == [1, 2, 3, 4, 5]
    lines = groups.as_csv(found).splitlines()
    assert lines[0].startswith("job,a,val_loss,state,reason,exit_code,")
    assert lines[1].startswith("3,3,0.125,FAILED,EXIT,")
    assert lines[-1].startswith("5,5,,QUEUED,,,,,,echo 5")


def test_no_cell_of_a_spreadsheet_is_a_formula(queue):
    odd = ["=1+1", "+cmd", "-x", "@sum", "\t=1", "\n=1", "-0.5", "a=b"]
    given = [*odd[:5], "\r=1", *odd[6:]]
    specs = [a_spec("=cmd|' /C calc'!A0", gpus=0, parameters={"=a": value}) for value in given]
    queue.submit(specs, {KEY: VARIABLES}, sweep=groups.Template())
    rows = list(csv.reader(io.StringIO(groups.as_csv(results(queue, {})), newline="")))
    assert rows[0][1] == "'=a"
    assert [row[1] for row in rows[1:]] == [*(f"'{value}" for value in odd[:6]), "-0.5", "a=b"]
    assert {row[-1] for row in rows[1:]} == {"'=cmd|' /C calc'!A0"}


def test_what_is_drawn(queue):
    specs = [
        a_spec("true", gpus=0, parameters={"lr": lr, "opt": opt, "seed": "7"})
        for lr in ("1e-5", "1e-3", "1e-2")
        for opt in ("sgd", "adam")
    ]
    queue.submit(specs, {KEY: VARIABLES}, sweep=groups.Template())
    end(queue, *range(1, 7))
    plot = groups.plotted(results(queue, {number: number / 8 for number in range(1, 7)}), 100)
    assert (plot["over"], plot["logarithmic"], plot["shades"]) == ("lr", True, ["opt=sgd", "opt=adam"])
    assert plot["results"][0] == [1e-5, 0.125, 0]
    assert plot["best"] == 0
    assert groups.plotted(results(queue, {1: 0.5}), 100) is None


@pytest.mark.parametrize("name", ["12", "12-15", "#3", "all", "Mine", "failed", "", "a b", "-x", "x" * 65])
def test_what_could_be_meant_otherwise_is_no_name_of_a_group(name):
    with pytest.raises(UserError, match=r"--group(:| needs)"):
        read_words(["--group", name, "true"])


def test_its_counts_are_found_by_index(queue):
    plan = queue.store.rows(
        "EXPLAIN QUERY PLAN SELECT 1 FROM jobs WHERE group_name = ? AND state IN ('QUEUED', 'RUNNING') LIMIT 1", ("x",)
    )
    assert "jobs_of_group" in plan[0]["detail"]


# -- what came after what failed -------------------------------------------------------------------


def test_what_was_to_come_after_a_failure_failed_as_well_and_comes_after_it_again(queue):
    [prep] = queue.submit([a_spec("prep", gpus=0)], {KEY: VARIABLES})
    train, check = grouped(queue, "night", "train", after_ok=(prep,)) + grouped(queue, "night", "check")
    report = grouped(queue, "night", "report", after_ok=(train,), after=(check,))[0]
    end(queue, prep, state=State.FAILED, exit_code=1)
    end(queue, check)
    assert [one.id for one in queue.groups.failed("night")] == [train, report]
    assert groups.standing(queue, "night").line == "night: 1 of 3 done, 2 cancelled by dependency"
    with pytest.raises(UserError, match=f"first: `nightshift rerun {prep}`"):
        groups.rerun(queue, "night", [train, report])
    assert queue.jobs.count(State.QUEUED) == 0
    prep_again = queue.rerun(prep)
    train_again, report_again = groups.rerun(queue, "night", [report, train])
    specs = [queue.job(number).spec for number in (train_again, report_again)]
    assert [(spec.after_ok, spec.after) for spec in specs] == [((prep_again,), ()), ((train_again,), ())]
    assert queue.groups.failed("night") == []
    end(queue, prep_again)
    named = queue.rerun(report)  # after what that has become, which waits
    assert queue.job(named).spec.after_ok == (train_again,)
    end(queue, train_again)
    assert queue.job(queue.rerun(report)).spec.after_ok == ()


def test_what_was_to_come_after_something_that_was_stopped_did_not_fail(queue):
    [prep] = queue.submit([a_spec("prep", gpus=0)], {KEY: VARIABLES})
    [train] = grouped(queue, "night", "train", after_ok=(prep,))
    grouped(queue, "night", "report", after_ok=(train,))
    queue.stop(prep)
    assert queue.groups.failed("night") == []


def test_who_leaves_a_group_may_be_the_last_it_waited_for(queue):
    a, b = grouped(queue, "night", "a", "b")
    [other] = grouped(queue, "day", "c")
    end(queue, a)
    queue.edit(b, Edit(values={"group": "day"}))
    assert [(one["group"], one["counts"]) for one in told(queue)] == [("night", {"SUCCEEDED": 1})]
    queue.edit(b, Edit(values={"clear": ("group",)}))
    end(queue, other)
    queue.edit(b, Edit(values={"group": "day"}))  # of lower number than what was told of
    end(queue, b)
    assert [(one["group"], one["counts"]) for one in told(queue)][1:] == [
        ("day", {"SUCCEEDED": 1}),
        ("day", {"SUCCEEDED": 2}),
    ]
    [alone] = grouped(queue, "short", "d")
    queue.edit(alone, Edit(values={"clear": ("group",)}))
    assert len(told(queue)) == 3
