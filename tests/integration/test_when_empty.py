"""When nothing is left to do: it is told once, and the command that was set is run once."""

import contextlib
import json
import signal
import sqlite3 as reader  # a second copy of SQLite is fine where nothing is written

import pytest

from runner import clock
from runner.store.box import BoxKey
from tests.wait import eventually


def told(box, kind="queue empty"):
    return [notice.payload.to_json() for notice in box.notices(None) if notice.kind == kind]


def due(box):
    with box.queue() as queue:
        return queue.view.when_empty()


def run_to_the_end(box, command="true", *options):
    job_id = box.submit(command, "--gpus", "0", *options)
    eventually(lambda: box.job(job_id)["finished_at"], 20, f"job {job_id} has ended")
    return job_id


@pytest.fixture
def marks(box):
    """A file to which a command adds a line each time it is run."""
    return box.folder / "marks"


def until(box, name):
    """A command that ends when there is a file of this name."""
    return f"until [ -e {box.folder}/{name} ]; do sleep 0.05; done"


def runs(marks):
    return len(marks.read_text().splitlines()) if marks.exists() else 0


# -- telling -----------------------------------------------------------------------------------------


def test_it_is_told_once_with_what_was_done(box):
    box.start_runner(gpus="none")
    began = clock.now()
    with box.queue() as queue:
        queue.pause()
    jobs = [box.submit(command, "--gpus", "0") for command in ("true", "false", "true", "true")]
    with box.queue() as queue:
        queue.order.hold(jobs[3])
        queue.stop(jobs[2])
        queue.resume()
    [data] = eventually(lambda: told(box), what="it is told")
    since = clock.moment(data.pop("since"))
    assert began < since < clock.now()
    states = {"SUCCEEDED": 1, "FAILED": 1, "CANCELLED": 1}
    assert data == {"jobs": 3, "failed": 2, "states": states, "held": 1, "command": None, "due_at": None}

    with box.queue() as queue:
        queue.stop(jobs[3])  # nothing ran for it: the box was idle before and is idle now
    box.stop_runner()
    box.start_runner(gpus="none")
    run_to_the_end(box)
    again = eventually(lambda: told(box)[1:], what="it is told of the next")
    assert [(data["jobs"], data["failed"], data["held"]) for data in again] == [(2, 1, 0)]
    assert len(told(box)) == 2


def test_an_empty_queue_at_the_start_is_nothing_to_tell(box):
    box.start_runner(gpus="none")
    box.stop_runner()
    assert told(box) == []


def test_a_queue_that_a_person_holds_is_not_empty(box):
    box.start_runner(gpus="none", cpu_slots="1")
    first = box.submit(until(box, "go"), "--gpus", "0")
    box.submit("true", "--gpus", "0")
    box.wait_state(first, "RUNNING")
    box.run("pause")
    (box.folder / "go").touch()
    box.wait_state(first, "SUCCEEDED")
    box.stop_runner()
    assert told(box) == []


def test_it_is_told_by_the_next_runner_if_the_last_one_was_gone(box):
    box.start_runner(gpus="none")
    job_id = box.submit(until(box, "go"), "--gpus", "0")
    box.wait_state(job_id, "RUNNING")
    box.stop_runner(signal.SIGKILL)
    (box.folder / "go").touch()
    box.start_runner(gpus="none")
    assert [data["jobs"] for data in eventually(lambda: told(box))] == [1]


def test_a_drained_box_says_so_once(box):
    box.start_runner(gpus="none")
    job_id = box.submit(until(box, "go"), "--gpus", "0")
    box.wait_state(job_id, "RUNNING")
    with box.queue() as queue:
        queue.drain()
    assert told(box, "drained") == []
    (box.folder / "go").touch()
    box.wait_state(job_id, "SUCCEEDED")
    [data] = eventually(lambda: told(box, "drained"))
    assert data["by"] == "somebody"
    box.stop_runner()
    box.start_runner(gpus="none")
    box.stop_runner()
    assert len(told(box, "drained")) == 1


# -- running the command -----------------------------------------------------------------------------


def test_the_command_is_run_once_after_the_grace(box, marks):
    box.environ |= {"NIGHTSHIFT_TOKEN": "123:canary", "RUNPOD_POD_ID": "pod7"}
    command = f"env > {box.folder}/env; echo $RUNPOD_POD_ID >> {marks}; ps -o sid= $$; echo $$; exit 3"
    box.start_runner(gpus="none", when_empty=command, when_empty_grace="1s")
    run_to_the_end(box)
    [data] = eventually(lambda: told(box))
    assert data["command"] == command
    due_at = clock.moment(data["due_at"])
    [ran] = eventually(lambda: told(box, "when empty ran"))
    assert ran == {"command": command, "exit_code": 3}
    assert (box.folder / "env").stat().st_mtime > due_at.timestamp() - 0.02  # a file's time lags by a tick
    assert marks.read_text() == "pod7\n"
    assert "NIGHTSHIFT_" not in (box.folder / "env").read_text()
    log = (box.home / "when-empty.log").read_text().split("\n")
    assert command in log[0]
    assert log[1].strip() == log[2], "it has a session of its own"
    assert (box.home / "when-empty.log").stat().st_mode & 0o077 == 0

    box.stop_runner()
    box.start_runner(gpus="none", when_empty=command, when_empty_grace="1s")
    assert due(box) is None
    run_to_the_end(box)
    eventually(lambda: runs(marks) == 2, what="after the next jobs it is run again")
    assert len(told(box)) == 2


def test_a_job_in_time_prevents_it(box, marks):
    box.start_runner(gpus="none", when_empty=f"echo >> {marks}", when_empty_grace="3s")
    run_to_the_end(box)
    eventually(lambda: due(box))
    due_at = due(box)["due_at"]
    job_id = box.submit(until(box, "go"), "--gpus", "0")
    box.wait_state(job_id, "RUNNING")
    eventually(lambda: due(box) is None)
    eventually(lambda: clock.text(clock.now()) > due_at)
    run_to_the_end(box)  # the runner has looked since then
    assert runs(marks) == 0
    (box.folder / "go").touch()
    eventually(lambda: runs(marks) == 1, what="it is run after that one")


def test_somebody_can_prevent_it(box, marks):
    box.start_runner(gpus="none", when_empty=f"echo >> {marks}", when_empty_grace="2s")
    assert box.run("stay").returncode == 1
    run_to_the_end(box)
    assert eventually(lambda: due(box))["cancelled_by"] is None
    with box.queue() as queue:
        assert queue.acting_as("tg:1001").cancel_when_empty() is True
        assert queue.cancel_when_empty() is False
        last = queue.audit.rows()[-1]
        assert (last["actor"], last["action"]) == ("tg:1001", "stay")
        assert queue.box.get(BoxKey.WHEN_EMPTY)["cancelled_by"] == "tg:1001"
        due_at = queue.box.get(BoxKey.WHEN_EMPTY)["due_at"]
    eventually(lambda: clock.text(clock.now()) > due_at)
    run_to_the_end(box)  # the runner has looked since then
    assert runs(marks) == 0
    eventually(lambda: runs(marks) == 1, what="after the next jobs it is due again")


def test_a_pause_holds_it_and_a_resume_gives_the_whole_grace_again(box, marks):
    box.start_runner(gpus="none", when_empty=f"echo >> {marks}", when_empty_grace="2s")
    run_to_the_end(box)
    first = eventually(lambda: due(box))["due_at"]
    with box.queue() as queue:
        queue.pause()
    eventually(lambda: due(box)["due_at"] is None, what="its time passes")
    assert runs(marks) == 0
    box.run("resume")
    second = eventually(lambda: due(box)["due_at"])
    assert second > first
    eventually(lambda: runs(marks) == 1)
    assert [data["due_at"] for data in told(box)] == [first, second]


def test_emptied_under_a_pause_it_is_told_without_the_command(box, marks):
    box.start_runner(gpus="none", when_empty=f"echo >> {marks}", when_empty_grace="0s")
    job_id = box.submit(until(box, "go"), "--gpus", "0")
    box.wait_state(job_id, "RUNNING")
    box.run("pause")
    (box.folder / "go").touch()
    [data] = eventually(lambda: told(box))
    assert (data["command"], data["due_at"]) == (None, None)
    box.run("resume")
    eventually(lambda: runs(marks) == 1)
    assert [bool(data["command"]) for data in told(box)] == [False, True]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_is_due_outlives_the_runner(box, marks, number):
    settings = {"gpus": "none", "when_empty": f"echo >> {marks}", "when_empty_grace": "6s"}
    box.start_runner(**settings)
    run_to_the_end(box)
    before = eventually(lambda: due(box))["due_at"]
    box.stop_runner(number)
    box.start_runner(**settings)
    assert due(box)["due_at"] == before
    eventually(lambda: runs(marks) == 1)
    assert clock.text(clock.now()) >= before
    assert len(told(box)) == 1


def test_what_came_due_while_no_runner_was_up_gets_the_whole_grace(box, marks):
    settings = {"gpus": "none", "when_empty": f"echo >> {marks}", "when_empty_grace": "1h"}
    box.start_runner(**settings)
    run_to_the_end(box)
    before = eventually(lambda: due(box))
    box.stop_runner()
    with box.queue() as queue:
        queue.box.set(BoxKey.WHEN_EMPTY, {**before, "due_at": clock.text(clock.now())})
    box.start_runner(**settings)
    eventually(lambda: (due(box)["due_at"] or "") > before["due_at"], what="it is due an hour from now")
    assert f"this runs, unless you type `nightshift stay`:\n  echo >> {marks}\n" in box.run("ls").stdout
    assert len(told(box)) == 2
    assert runs(marks) == 0


def test_it_is_of_one_life_of_the_box(box, marks):
    """A pod that was stopped by the command, and is started again, must not stop at once."""
    settings = {"gpus": "none", "when_empty": f"echo >> {marks}", "when_empty_grace": "1h"}
    box.start_runner(**settings)
    run_to_the_end(box)
    eventually(lambda: due(box))
    box.stop_runner()
    for begun in (False, True):
        with box.queue() as queue:
            past = {**queue.box.get(BoxKey.WHEN_EMPTY, {}), "boot": "another", "begun": begun, "ran_at": None}
            queue.box.set(BoxKey.WHEN_EMPTY, {**past, "cancelled_by": None, "due_at": "2026-01-01", "command": "x"})
        box.start_runner(**settings)
        assert due(box) is None
        box.stop_runner()
    assert runs(marks) == 0


def test_the_copy_of_the_queue_knows_before_it_is_run(box):
    volume = box.folder / "volume"
    command = f"cp {volume}/nightshift.db {box.folder}/seen.db"
    box.start_runner(gpus="none", when_empty=command, when_empty_grace="0s", backup_dir=str(volume))
    run_to_the_end(box)
    assert eventually(lambda: told(box, "when empty ran"))[0]["exit_code"] == 0
    with contextlib.closing(reader.connect(f"file:{box.folder}/seen.db?mode=ro", uri=True)) as seen:
        [(value,)] = seen.execute("SELECT value FROM box WHERE name = 'when empty'").fetchall()
        states = [state for (state,) in seen.execute("SELECT state FROM jobs")]
    assert json.loads(value)["begun"] is True
    assert states == ["SUCCEEDED"]


def test_it_waits_for_a_copy_that_cannot_be_made(box, marks):
    volume = box.folder / "volume"
    box.start_runner(gpus="none", when_empty=f"echo >> {marks}", when_empty_grace="0s", backup_dir=str(volume))
    volume.rename(box.folder / "away")
    volume.write_text("no folder")
    run_to_the_end(box)
    eventually(lambda: (due(box) or {}).get("begun"))
    eventually(lambda: (box.folder / "runner.out").read_text().count("the backup in") > 1)
    assert runs(marks) == 0
    volume.unlink()
    eventually(lambda: runs(marks) == 1)


def test_one_that_cannot_be_run_is_told_as_well(box):
    box.start_runner(gpus="none", when_empty="no-such-program", when_empty_grace="0s")
    run_to_the_end(box)
    [ran] = eventually(lambda: told(box, "when empty ran"))
    assert ran["exit_code"] == 127
    assert "no-such-program" in (box.home / "when-empty.log").read_text()
