"""Jobs that leave their GPUs idle: a real runner on simulated GPUs, and the watch itself where time is to pass."""

from __future__ import annotations

import json
import re
import signal
from datetime import timedelta

import pytest

from bot.store.outbox import Outbox
from runner import clock
from runner.api import Queue
from runner.model import GpuHealth, Reason
from runner.processes import linux
from runner.store.box import BoxKey
from runner.store.watchdog_state import Watches
from tests.attempts import begin
from tests.idle_stage import IdleStage
from tests.jobs import submit
from tests.wait import eventually, is_on_time

ONE_SECOND = timedelta(seconds=1)
NOTHING = "sleep 300"
BUSY = "nightshift sim-load --memory 1G --load 90"


def events(box, job_id, kind):
    with box.queue() as queue:
        return [event for event in queue.jobs.events(job_id) if event["kind"] == kind]


def moment(event):
    return clock.moment(event["at"])


def warnings(box, job_id):
    return [notice.payload.to_json() for notice in box.notices(job_id) if notice.kind == "idle warning"]


def ends_idle(box, job_id, timeout=30):
    ended = box.wait_state(job_id, "CANCELLED", timeout=timeout)
    assert ended["reason"] == "IDLE"
    (stop,) = events(box, job_id, "stop asked")
    return moment(stop)


def started(box, job_id):
    return moment(events(box, job_id, "started")[0])


def test_what_does_nothing_is_warned_of_and_stopped_at_the_promised_second_and_nothing_else_is(box):
    # samples to wait for: a busy machine takes its time to start what makes load
    box.start_runner(gpus="sim:8x24GiB", idle="20%:2s:3:3")
    idle = box.submit(NOTHING)
    later = box.submit(NOTHING, "--idle", "20%:2s:2:5")
    spared = {
        "busy": box.submit(BUSY),
        "one of two is busy": box.submit("nightshift sim-load --gpu 1 --load 90", "-g", "2"),
        "off": box.submit(NOTHING, "--idle", "off"),
        "a rule of its own": box.submit(NOTHING, "--idle", "20%:1s:600"),
        "no GPU": box.submit(NOTHING, "-g", "0"),
        "kept": box.submit(NOTHING),
    }
    kept = spared["kept"]
    box.wait_state(kept, "RUNNING")
    said = box.run("keep", str(kept), "--for", "1h")
    assert (said.returncode, said.stdout) == (0, f"Job {kept} is kept for 1h 00m, even if its GPUs are idle.\n")

    stopped_at = ends_idle(box, idle)
    *_, warning = warnings(box, idle)  # where readings were missing there was one before
    assert is_on_time(stopped_at, clock.moment(warning["stops_at"]))
    assert is_on_time(stopped_at, started(box, idle) + timedelta(seconds=10))
    *_, told = events(box, idle, "idle warning")
    assert is_on_time(stopped_at, moment(told) + timedelta(seconds=2))  # in the second half of the window
    assert re.fullmatch(r"GPU 0 below 20 % in 2 samples over [4-9] s", warning["why"])
    with box.queue() as queue:
        against = queue.view.evidence(idle)
    assert re.fullmatch(r"GPU 0 below 20 % in 3 samples over [6-9] s", against["why"])
    assert [sample[1] for sample in against["samples"]][-3:] == [0.0] * 3
    assert "stopped, GPU idle" in box.run("show", str(idle)).stdout

    # five samples to wait for, and one more
    assert is_on_time(ends_idle(box, later), started(box, later) + timedelta(seconds=12))

    for why, job_id in spared.items():
        assert box.job(job_id)["state"] == "RUNNING", why
        assert warnings(box, job_id) == [], why
        assert events(box, job_id, "stop asked") == [], why
    assert "GPU 0" not in box.run("show", str(spared["no GPU"])).stdout
    assert "Kept         by" in box.run("show", str(kept)).stdout


@pytest.mark.evidence
def test_busy_again_after_a_warning_then_idle_again_is_warned_of_anew(box, tmp_path):
    box.start_runner(gpus="sim:1x24GiB", idle="20%:1s:6:0")
    again = f"while [ ! -e {tmp_path}/work ]; do sleep 0.02; done; {BUSY} --time 2s; echo done; sleep 300"
    job_id = box.submit(again)
    eventually(lambda: warnings(box, job_id))
    (tmp_path / "work").touch()
    eventually(lambda: "done" in box.log(job_id))
    assert box.job(job_id)["stop"] is None
    stopped_at = ends_idle(box, job_id)
    first, second = warnings(box, job_id)
    assert clock.moment(first["stops_at"]) + 2 * ONE_SECOND < clock.moment(second["stops_at"])
    assert stopped_at > clock.moment(second["stops_at"]) - ONE_SECOND


def test_a_runner_killed_in_the_middle_of_the_countdown(box):
    """It fires once, when it was promised; who kept a job is remembered as well."""
    settings = {"gpus": "sim:2x24GiB", "idle": "20%:5s:2:0"}  # ten seconds without readings are no gap
    box.start_runner(**settings)
    idle, kept = box.submit(NOTHING), box.submit(NOTHING)
    box.wait_state(kept, "RUNNING")
    assert box.run("keep", str(kept)).stdout.endswith("is kept for good, even if its GPUs are idle.\n")
    (warning,) = eventually(lambda: warnings(box, idle))
    box.stop_runner(signal.SIGKILL)
    box.start_runner(**settings)
    assert is_on_time(ends_idle(box, idle), clock.moment(warning["stops_at"]))
    assert len(warnings(box, idle)) == 1
    assert [notice.kind for notice in box.notices(idle)] == ["started", "idle warning", "ended"]
    assert box.job(kept)["state"] == "RUNNING"
    assert warnings(box, kept) == []
    with box.queue() as queue:
        assert queue.view.watched(kept)["kept"]["until"] is None
    assert "for good" in box.run("show", str(kept)).stdout


def test_beside_a_busy_one_on_the_same_gpu_nobody_knows_and_it_is_said(box, tmp_path):
    box.start_runner(gpus="sim:1x24GiB", slots_per_gpu="2", settle="0s", idle="20%:1s:3:0")
    (box.home / "sim" / "faults.conf").write_text("0 process_utilization na\n")
    works = box.submit(f"{BUSY} & until [ -e {tmp_path}/end ]; do sleep 0.02; done; kill $!; wait", "--idle", "off")
    eventually(lambda: gpu_load(box) == 90)
    idle = box.submit("nightshift sim-load --memory 1G")
    said = "not judged: GPU 0 is shared and the driver does not tell whose load it is"
    eventually(lambda: watched(box, idle)["idle"] == said, what="it is said")
    assert f"Idle watch   {said}\n" in box.run("show", str(idle)).stdout
    (tmp_path / "end").touch()
    ends = box.wait_state(works, "SUCCEEDED")["finished_at"]
    assert ends_idle(box, idle) > clock.moment(ends)  # alone, it is judged
    assert json.loads(box.run("show", str(idle), "--json").stdout)["watch"]["evidence"]["why"].startswith("GPU 0 below")


def test_beside_a_busy_one_it_is_judged_by_process_where_the_driver_tells(box):
    box.start_runner(gpus="sim:1x24GiB", slots_per_gpu="2", settle="0s", idle="20%:1s:3:6")
    works = box.submit(BUSY)
    eventually(lambda: gpu_load(box) == 90)
    idle = box.submit("nightshift sim-load --memory 1G --load 5")
    ends_idle(box, idle)
    with box.queue() as queue:
        assert [sample[1] for sample in queue.view.evidence(idle)["samples"]][-3:] == [5.0] * 3
    assert box.job(works)["state"] == "RUNNING"
    assert warnings(box, works) == []


def gpu_load(box):
    with box.queue() as queue:
        return queue.view.gpus()[0]["utilization"]


def watched(box, job_id):
    with box.queue() as queue:
        return queue.view.watched(job_id) or {"idle": None}


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        (("--idle", "0%"), "nothing is ever below 0 %"),
        (("--idle", "5%:1ms"), "'1ms' is not a valid time between two samples"),
        (("--idle", "5%:5s:0"), "'0' is not a valid number of samples"),
        (("--idle", "sometimes"), "'sometimes' is not a threshold"),
        (("--idle", "5%:1h:10000"), "longer than 7 days"),
        (("--hung", "maybe"), "'maybe' is not a rule for hung jobs"),
        (("--hung", "kill:1s"), "is not a valid time without output"),
    ],
)
def test_nonsense_is_refused_at_the_terminal(box, option, sentence):
    refused = box.run("submit", *option, "--", "true")
    assert refused.returncode == 1
    assert sentence in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("IDLE", "0%", "NIGHTSHIFT_IDLE=0%: nothing is ever below 0 %"),
        ("IDLE", "5%:5s:60:-1", "NIGHTSHIFT_IDLE=5%:5s:60:-1: '-1' is not a valid number of samples to ignore"),
        ("IDLE_WARNING", "soon", "NIGHTSHIFT_IDLE_WARNING=soon: 'soon' is not a duration"),
        ("HUNG", "kill:never", "NIGHTSHIFT_HUNG=kill:never: 'never' is not a duration"),
    ],
)
def test_nonsense_is_refused_in_the_settings(box, name, value, sentence):
    refused = box.run("runner", env={f"NIGHTSHIFT_{name}": value, "NIGHTSHIFT_GPUS": "sim:1x24GiB"})
    assert refused.returncode == 2
    assert sentence in refused.stderr


def test_keeping_what_cannot_be_kept(box):
    box.start_runner(gpus="sim:1x24GiB")
    done = box.submit("true")
    box.wait_state(done, "SUCCEEDED")
    lasts = box.submit("trap '' TERM; echo up; while true; do sleep 0.1; done", "--grace", "20s")
    eventually(lambda: "up" in box.log(lasts))
    box.run("kill", str(lasts))
    refusals = {
        (str(done),): f"Job {done} has already ended (succeeded).",
        ("77",): "There is no job 77.",
        (str(lasts),): f"Job {lasts} is already being stopped: it is too late to keep it.",
        (str(lasts), "--for", "0s"): "The time to keep a job is at least 1s",
        (str(lasts), "--for", "a while"): "'a while' is not a duration",
    }
    for words, sentence in refusals.items():
        refused = box.run("keep", *words)
        assert refused.returncode == 1
        assert sentence in refused.stderr


# -- the watch alone, with time that passes when it is told ----------------------------------------------------------

A, B = "GPU-a", "GPU-b"
MINUTE = "20%:1s:60:0"


@pytest.fixture
def queue(tmp_path):
    with Queue(str(tmp_path / "home"), actor="somebody") as queue:
        yield queue


@pytest.fixture
def stage(queue, monkeypatch):
    return IdleStage(queue, monkeypatch, idle=MINUTE)


def running(queue, *gpus, **values):
    (job_id,) = submit(queue, "sleep 300", gpus=len(gpus), **values)
    begin(queue, job_id, *gpus)
    return job_id


def test_by_default_after_five_minutes_past_the_first_minute(queue, monkeypatch):
    stage = IdleStage(queue, monkeypatch)
    job_id = running(queue, A)
    began = stage.wall
    stage.pass_by(400, {A: 4})
    (warning,) = stage.warnings(job_id)
    assert abs(stage.stopped_at(job_id) - clock.moment(warning["stops_at"])) <= 5 * ONE_SECOND
    assert abs(stage.stopped_at(job_id) - began - timedelta(seconds=(12 + 60 - 1) * 5)) <= 5 * ONE_SECOND
    assert queue.job(job_id).stop.reason is Reason.IDLE
    assert queue.job(job_id).stop.by == "the idle watch"


def test_kept_for_a_while_the_window_begins_after_it(queue, stage):
    job_id = running(queue, A)
    stage.pass_by(40, {A: 0})
    assert len(stage.warnings(job_id)) == 1
    queue.keep(job_id, 100)
    assert queue.view.evidence(job_id) is None
    stage.pass_by(158, {A: 0})
    assert stage.stopped_at(job_id) is None
    assert len(stage.warnings(job_id)) == 2  # after the time was over, in the middle of a new window
    stage.pass_by(3, {A: 0})
    assert stage.stopped_at(job_id) is not None
    (kept,) = [event for event in queue.jobs.events(job_id) if event["kind"] == "kept"]
    assert kept["data"]["by"] == "somebody"


@pytest.mark.parametrize("moved_h", [12, -12])
def test_moving_the_wall_clock_does_not_change_how_long_a_job_is_kept(queue, stage, moved_h):
    job_id = running(queue, A)
    queue.keep(job_id, 3600)
    stage._wall += timedelta(hours=moved_h)
    stage.pass_by(3590, {A: 0}, step_s=10)
    assert stage.stopped_at(job_id) is None
    stage.pass_by(120, {A: 0})
    assert stage.stopped_at(job_id) is not None


def test_kept_for_a_while_over_a_restart_of_the_machine(queue, stage, monkeypatch):
    """The monotonic clock begins anew then: an hour must not become weeks."""
    job_id = running(queue, A, retries=1)
    queue.keep(job_id, 3600)
    monkeypatch.setattr(linux, "boot_id", lambda: "another boot")
    stage.passed_s -= 100_000
    stage._wall += timedelta(seconds=100_000)
    stage.restart()
    stage.pass_by(600, {A: 0})
    assert stage.stopped_at(job_id) is None
    stage.pass_by(3600, {A: 0})
    assert stage.stopped_at(job_id) is not None


def test_kept_before_it_began(queue, stage):
    (job_id,) = submit(queue, "sleep 300", gpus=1)
    assert queue.keep(job_id) == f"Job {job_id} is kept for good, even if its GPUs are idle."
    begin(queue, job_id, A)
    stage.pass_by(200, {A: 0})
    assert stage.kinds(job_id) == ["started"]


def test_the_next_runner_goes_on_where_this_one_was_killed(queue, stage):
    job_id = running(queue, A)
    stage.pass_by(45, {A: 0})
    stage.restart()
    stage.pass_by(14, {A: 0})
    assert stage.stopped_at(job_id) is None
    stage.pass_by(3, {A: 0})  # the new one's first reading comes before it knows of the job
    assert stage.stopped_at(job_id) is not None
    assert stage.kinds(job_id) == ["started", "idle warning"]


def test_while_no_runner_is_up_nothing_is_known(queue, stage):
    job_id = running(queue, A)
    stage.pass_by(45, {A: 0})
    stage.passed_s += 30
    stage.restart()
    stage.pass_by(58, {A: 0})
    assert stage.stopped_at(job_id) is None
    stage.pass_by(4, {A: 0})
    assert stage.stopped_at(job_id) is not None
    assert len(stage.warnings(job_id)) == 2  # the first promise did not hold


def test_a_full_disk_loses_neither_warning_nor_stop_and_makes_none_twice(queue, stage):
    job_id = running(queue, A)
    stage.pass_by(20, {A: 0})
    with stage.full_disk():
        stage.pass_by(20, {A: 0})
        assert stage.warnings(job_id) == []
    stage.pass_by(1, {A: 0})
    assert len(stage.warnings(job_id)) == 1
    with stage.full_disk():
        stage.pass_by(30, {A: 0})
        assert stage.stopped_at(job_id) is None
    stage.pass_by(1, {A: 0})
    assert stage.stopped_at(job_id) is not None
    stage.pass_by(30, {A: 0})
    assert stage.kinds(job_id) == ["started", "idle warning"]
    assert len([event for event in queue.jobs.events(job_id) if event["kind"] == "stop asked"]) == 1


def test_a_job_taken_up_on_a_full_disk_is_taken_up_later(queue, stage):
    job_id = running(queue, A)
    with stage.full_disk():
        stage.pass_by(5, {A: 0})
    stage.pass_by(62, {A: 0})
    assert stage.stopped_at(job_id) is not None


def test_a_warning_is_withdrawn_when_it_works_again_over_a_restart_too(queue, stage):
    job_id = running(queue, A)
    stage.pass_by(40, {A: 0})
    stage.pass_by(1, {A: 90})
    stage.restart()
    stage.pass_by(40, {A: 0})
    assert len(stage.warnings(job_id)) == 2
    assert queue.view.evidence(job_id)["why"].startswith("GPU 0 below 20 % in 30 samples")


def test_what_the_operator_sets_holds_for_what_already_runs(queue, stage, monkeypatch):
    ours, its_own = running(queue, A), running(queue, B, idle="20%:1s:60:0")
    stage.pass_by(45, {A: 0, B: 0})
    monkeypatch.setattr(stage, "_settings", stage._settings.model_copy(update={"idle": "off"}))
    stage.restart()
    stage.pass_by(30, {A: 0, B: 0})
    assert stage.stopped_at(ours) is None
    assert stage.stopped_at(its_own) is not None


def test_what_somebody_stops_is_not_warned_of(queue, stage):
    job_id = running(queue, A)
    stage.pass_by(20, {A: 0})
    queue.stop(job_id)
    stage.pass_by(60, {A: 0})
    assert stage.kinds(job_id) == ["started"]
    assert queue.job(job_id).stop.reason is Reason.USER


@pytest.mark.parametrize("spoilt", ['{"window": {"boot_id": "BOOT"}}', "{}", '{"window": null}', "[]"])
def test_what_another_version_wrote_down_is_watched_anew(queue, stage, spoilt):
    job_id = running(queue, A)
    stage.pass_by(10, {A: 0})
    queue.store.execute("UPDATE watches SET state = ?", (spoilt.replace("BOOT", linux.boot_id()),))
    stage.restart()
    stage.pass_by(62, {A: 0})
    assert stage.stopped_at(job_id) is not None


def test_a_rule_that_cannot_be_read_stops_no_runner(queue, stage):
    job_id = running(queue, A, idle="rubbish")
    stage.pass_by(62, {A: 0})
    assert stage.stopped_at(job_id) is not None  # by the box's own rule


def test_asleep_and_unread_is_never_idle(queue, stage):
    job_id = running(queue, A, B)
    for _ in range(5):
        stage.pass_by(40, {A: 0, B: 0})
        stage.asleep_s += 7200
    for _ in range(3):
        stage.pass_by(40, {A: 0, B: 0})
        stage.pass_by(1, {A: 0, B: None})
        stage.pass_by(40, {A: 0, B: 0})
        stage.pass_by(1, {A: 0, B: 0}, health=GpuHealth.UNKNOWN)
        stage.pass_by(40, {A: 0, B: 0})
        stage.pass_by(1, {A: 0})
    assert stage.stopped_at(job_id) is None


def test_nothing_of_a_countdown_is_kept_when_the_job_is_over(queue, stage):
    job_id = running(queue, A)
    stage.pass_by(45, {A: 0})
    with queue.store.transaction():
        queue.jobs.ended(queue.job(job_id), *_succeeded())
    stage.pass_by(1, {A: 0})
    assert Watches(queue.store).of([job_id])[job_id].state == {}


def _succeeded():
    from runner.model import State
    from tests.jobs import an_exit

    return State.SUCCEEDED, Reason.EXIT, an_exit()


def test_put_off_once_because_nobody_could_be_warned(queue, stage):
    queue.box.set(BoxKey.BOT_ID, 4711)
    job_id = running(queue, A)
    stage.pass_by(65, {A: 0})
    assert stage.stopped_at(job_id) is None
    assert [event["kind"] for event in queue.jobs.events(job_id)].count("stop put off") == 1
    stage.pass_by(53, {A: 0})
    assert stage.stopped_at(job_id) is None
    stage.pass_by(4, {A: 0})
    assert stage.stopped_at(job_id) is not None
    assert stage.kinds(job_id) == ["started", "idle warning"]


def test_a_warning_that_arrives_late_leaves_time_to_answer_it(queue, stage):
    queue.box.set(BoxKey.BOT_ID, 4711)
    job_id = running(queue, A)
    stage.pass_by(65, {A: 0})
    arrive(queue, job_id)
    stage.pass_by(1, {A: 0})
    assert stage.stopped_at(job_id) is None
    _, second = stage.warnings(job_id)
    stage.pass_by(28, {A: 0})
    assert stage.stopped_at(job_id) is None
    stage.pass_by(3, {A: 0})
    assert abs(stage.stopped_at(job_id) - clock.moment(second["stops_at"])) <= ONE_SECOND
    assert len(stage.warnings(job_id)) == 2


def test_a_warning_nobody_wanted_to_hear_puts_nothing_off(queue, stage):
    queue.box.set(BoxKey.BOT_ID, 4711)
    job_id = running(queue, A)
    stage.pass_by(40, {A: 0})
    (notice,) = [notice for notice in queue.notices.about(job_id) if notice.kind == "idle warning"]
    Outbox(queue.store).handled(notice.id)
    stage.pass_by(22, {A: 0})
    assert stage.stopped_at(job_id) is not None


def arrive(queue, job_id):
    """The bot has told it, and the person's phone has it."""
    (notice,) = [notice for notice in queue.notices.about(job_id) if notice.kind == "idle warning"]
    outbox = Outbox(queue.store)
    outbox.done(outbox.add(1, "sendMessage", {"text": "x"}, notice_id=notice.id), 17)
    outbox.handled(notice.id)
