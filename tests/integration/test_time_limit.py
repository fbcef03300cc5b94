"""More time for a job that runs: the warning, the ways to extend it, and that it then lives on."""

import contextlib
import json
import signal
from datetime import timedelta

import pytest

from runner import clock, rundir
from runner.config.settings import Settings
from runner.errors import UserError
from runner.progress.pace import Progress
from runner.step import Context
from runner.store.box import keep_limits
from runner.store.spec_changes import TimeLimits
from runner.text.words import event_words
from runner.watchdogs.time_limit_warning import TimeWatch, lead_s, needs_too_long_s
from tests.attempts import begin, end
from tests.jobs import submit
from tests.room import data_of, in_room, labels
from tests.step_context import a_context
from tests.wait import eventually

HOUR = 3600.0
SLEEPS = "until [ -e done ]; do sleep 0.05; done"


def told_s(box, job_id):
    """The longer limit that the supervisor will find."""
    with box.queue() as queue:
        return rundir.limit_s(rundir.folder_of(str(box.home), job_id, 1), queue.job(job_id).run_id)


def finish(box, job_id):
    (box.folder / "done").touch()
    box.wait_state(job_id, "SUCCEEDED")


# -- the supervisor --------------------------------------------------------------------------------------


def test_a_job_that_was_given_more_time_lives_on_and_is_stopped_at_its_new_limit(box):
    job_id = box.submit("sleep 60", "--time", "200ms")
    other = box.submit("sleep 60", "--time", "200ms")
    with box.queue() as queue:
        for number, run_id, limit_s in ((job_id, queue.job(job_id).run_id, 1.5), (other, "another", HOUR)):
            folder = box.home / "runs" / str(number) / "1"
            folder.mkdir(parents=True)
            rundir.write_limit(str(folder), run_id, limit_s)
    box.start_runner(stop_grace="5s")
    for number in (job_id, other):  # what was given to another run under the same number is not given to this one
        assert box.wait_state(number, "CANCELLED")["reason"] == "TIMEOUT"
    assert json.loads((box.home / "runs" / str(job_id) / "1" / "exit.json").read_text())["duration_s"] >= 1.5


def test_extended_before_the_end_it_outlives_its_old_limit(box):
    box.start_runner()
    for limit_s in (2, 10, 50):  # more of it where the machine is too busy to come in time
        job_id = box.submit(SLEEPS, "--time", f"{limit_s}s")
        box.wait_state(job_id, "RUNNING", "CANCELLED")
        with box.queue() as queue, contextlib.suppress(UserError):
            queue.extend(job_id, HOUR)
            break
    began = clock.moment(box.job(job_id)["started_at"])
    eventually(lambda: clock.now() > began + timedelta(seconds=limit_s + 0.3))
    assert box.job(job_id)["state"] == "RUNNING"
    finish(box, job_id)


# -- from a command to the run directory -----------------------------------------------------------------


def test_extend_is_written_down_and_passed_on(box):
    box.start_runner()
    job_id = box.submit(SLEEPS, "--time", "1h")
    box.wait_state(job_id, "RUNNING")
    said = box.run("extend", str(job_id), "2h").stdout
    assert said.startswith(f"Job {job_id} may run for 3h 00m in all, until ")
    assert box.job(job_id)["time_limit_s"] == 3 * HOUR
    assert told_s(box, job_id) == 3 * HOUR
    assert "gave it 2h 00m more" in box.run("show", str(job_id)).stdout
    with box.queue() as queue:
        (entry,) = [one for one in queue.audit.rows() if one["action"] == "extend"]
    assert entry["data"]["limit_s"] == 3 * HOUR
    finish(box, job_id)


def test_it_needs_no_runner_and_a_new_one_passes_on_what_was_only_written_down(box):
    box.start_runner()
    job_id = box.submit(SLEEPS, "--time", "1h")
    box.wait_state(job_id, "RUNNING")
    box.stop_runner(signal.SIGKILL)
    with box.queue() as queue:
        queue.extend(job_id, HOUR)
        assert told_s(box, job_id) == 2 * HOUR
        with queue.store.transaction():
            TimeLimits(queue.store).change(queue.job(job_id), 5 * HOUR)
    assert told_s(box, job_id) == 2 * HOUR
    box.start_runner()
    eventually(lambda: told_s(box, job_id) == 5 * HOUR)
    finish(box, job_id)


def test_a_supervisor_of_an_older_version_is_left_alone(box):
    box.start_runner()
    job_id = box.submit(SLEEPS, "--time", "1h")
    box.wait_state(job_id, "RUNNING")
    started = box.home / "runs" / str(job_id) / "1" / "started.json"
    record = json.loads(started.read_text())
    del record["extendable"]
    started.write_text(json.dumps(record))
    done = box.run("extend", str(job_id), "2h")
    assert (done.returncode, "older version" in done.stderr) == (1, True)
    assert box.job(job_id)["time_limit_s"] == HOUR
    finish(box, job_id)


def test_the_warning_comes_from_a_real_runner(box):
    box.start_runner()
    job_id = box.submit(SLEEPS, "--time", "1h")
    box.wait_state(job_id, "RUNNING")
    assert [one for one in box.notices(job_id) if one.kind == "time warning"] == []
    with box.queue() as queue:
        began = clock.text(clock.now() - timedelta(minutes=58))
        queue.store.execute("UPDATE jobs SET started_at = ? WHERE id = ?", (began, job_id))
        queue.ring()
    (told,) = eventually(lambda: [one for one in box.notices(job_id) if one.kind == "time warning"])
    assert (told.payload.limit_s, told.payload.more_s) == (HOUR, None)
    finish(box, job_id)


# -- what is refused -------------------------------------------------------------------------------------


@pytest.fixture
def queue(box):
    with box.queue() as queue:
        yield queue


def a_live_job(queue, *, ran_s=0.0, limit_s=HOUR):
    (number,) = submit(queue, "python train.py", time_limit_s=limit_s)
    begin(queue, number)
    began = clock.text(clock.now() - timedelta(seconds=ran_s))
    queue.store.execute("UPDATE jobs SET started_at = ? WHERE id = ?", (began, number))
    return number


def refused(queue, number, by_s=HOUR):
    with pytest.raises(UserError) as error:
        queue.extend(number, by_s)
    return str(error.value)


def test_what_cannot_be_extended_says_why(queue):
    assert "no time limit" in refused(queue, a_live_job(queue, limit_s=None))
    assert "too late" in refused(queue, a_live_job(queue, ran_s=HOUR + 1))
    stopped = a_live_job(queue)
    queue.stop(stopped)
    assert "too late" in refused(queue, stopped)
    ended = a_live_job(queue)
    end(queue, ended)
    assert "already ended" in refused(queue, ended)
    assert "write it like" in refused(queue, a_live_job(queue), by_s=0.5)


def test_the_ceiling_of_the_box_holds_for_everybody(queue, box):
    keep_limits(queue.box, Settings(home=str(box.home), time_max="3h"))
    number = a_live_job(queue)
    assert f"job {number} can be extended by at most 2h 00m" in refused(queue, number, 2.5 * HOUR)
    assert "3h 00m in all" in queue.extend(number, 2 * HOUR)
    assert "by at most 0 s" in refused(queue, number)


def test_a_job_that_waits_can_be_extended_too(queue):
    (number,) = submit(queue, "python train.py", time_limit_s=HOUR)
    assert queue.extend(number, HOUR) == f"Job {number} may run for 2h 00m in all."
    assert queue.line.waiting(5)[0].request.limit_s == 2 * HOUR


# -- the warning -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit_s", "setting_s", "expected_s"),
    [(HOUR, None, 360), (100 * HOUR, None, HOUR), (60, None, None), (HOUR, 600, 600), (60, 600, 30), (HOUR, 0, None)],
)
def test_how_long_before_the_end(limit_s, setting_s, expected_s):
    assert lead_s(limit_s, setting_s) == expected_s


def warned(queue, **settings):
    """What a runner with these settings tells at its next look."""
    before = len([one for one in queue.notices.open(1000) if one.kind == "time warning"])
    watch = TimeWatch(a_context(queue.store, Settings(home=queue.home, **settings)))
    with queue.store.transaction():
        watch.tick()
    return [one.job_id for one in queue.notices.open(1000) if one.kind == "time warning"][before:]


def test_each_limit_of_each_attempt_is_warned_of_once(queue):
    early, due, over = (a_live_job(queue, ran_s=ran_s) for ran_s in (600, 3300, 3700))
    a_live_job(queue, ran_s=3300, limit_s=None)
    assert warned(queue, time_warning="0s") == []
    assert warned(queue) == [due]
    assert warned(queue) == []  # nor by the runner after this one
    queue.extend(due, HOUR)
    assert warned(queue) == []
    queue.store.execute(
        "UPDATE jobs SET started_at = ? WHERE id = ?", (clock.text(clock.now() - timedelta(seconds=7100)), due)
    )
    assert warned(queue) == [due]
    queue.stop(early)
    assert warned(queue, time_warning="59m") == []
    assert over not in warned(queue)


# -- a job that will not make its limit --------------------------------------------------------------------


def eta(low_s, about_s=None):
    at = clock.monotonic()
    return Progress(eta_s=about_s or low_s, eta_low_s=low_s, eta_high_s=2 * low_s, at=at)


@pytest.mark.parametrize(
    ("progress", "ran_s", "left_s", "expected_s"),
    [
        (Progress(eta_s=7 * HOUR, eta_low_s=6 * HOUR, at=0.0), HOUR, 5 * HOUR, 7 * HOUR - 60),
        (Progress(eta_s=7 * HOUR, eta_low_s=4 * HOUR, at=0.0), HOUR, 5 * HOUR, None),  # it may make it
        (Progress(eta_s=7 * HOUR, eta_low_s=5 * HOUR + 30, at=0.0), HOUR, 5 * HOUR, None),  # 60 s have passed since
        (Progress(eta_s=7 * HOUR, eta_low_s=6 * HOUR, at=0.0), 599, 5 * HOUR, None),  # too little was seen
        (Progress(eta_s=1060, eta_low_s=900, at=0.0), 120, 400, 1000),  # a tenth of a short run
        (Progress(eta_s=1060, eta_low_s=900, at=0.0), 100, 400, None),
        (Progress(eta_s=7 * HOUR, at=0.0), HOUR, HOUR, None),
        (Progress(phase="download", at=0.0), HOUR, HOUR, None),
        (None, HOUR, HOUR, None),
    ],
)
def test_when_a_job_will_not_make_its_limit(progress, ran_s, left_s, expected_s):
    assert needs_too_long_s(progress, ran_s, left_s, now=60.0) == expected_s


class Looks:
    """A runner's watchdog that looks again after a while, with this progress of every job."""

    def __init__(self, queue, monkeypatch, **settings):
        self._queue, self._began, self._passed_s = queue, clock.monotonic(), 0.0
        monkeypatch.setattr(clock, "monotonic", lambda: self._began + self._passed_s)
        self._watch = TimeWatch(a_context(queue.store, Settings(home=queue.home, **settings)))

    def after(self, seconds, progress, monkeypatch):
        self._passed_s += seconds
        monkeypatch.setattr(Context, "progress", lambda *_: progress())
        before = len(self._queue.notices.open(1000))
        with self._queue.store.transaction():
            self._watch.tick()
        return [one.payload.needs_s for one in self._queue.notices.open(1000)[before:] if one.kind == "time warning"]


def test_a_job_that_will_not_make_its_limit_is_warned_of_early_and_once(queue, monkeypatch):
    job_id = a_live_job(queue, ran_s=HOUR, limit_s=6 * HOUR)
    looks, slow = Looks(queue, monkeypatch), lambda: eta(6 * HOUR, 7 * HOUR)
    assert looks.after(0, slow, monkeypatch) == []
    assert looks.after(299, slow, monkeypatch) == []
    assert looks.after(1, lambda: eta(HOUR), monkeypatch) == []  # the first steps were slow
    assert looks.after(0, slow, monkeypatch) == []
    assert looks.after(300, slow, monkeypatch) == [7 * HOUR]
    assert looks.after(300, slow, monkeypatch) == []
    again = Looks(queue, monkeypatch)  # nor by the runner after this one
    assert [again.after(seconds, slow, monkeypatch) for seconds in (0, 300)] == [[], []]
    queue.extend(job_id, 60)  # too little
    assert [again.after(seconds, slow, monkeypatch) for seconds in (0, 300)] == [[], [7 * HOUR]]
    began = clock.text(clock.now() - timedelta(hours=5.9))
    queue.store.execute("UPDATE jobs SET started_at = ? WHERE id = ?", (began, job_id))
    assert again.after(0, slow, monkeypatch) == [None]  # the usual warning comes too
    assert again.after(300, slow, monkeypatch) == []


def test_no_early_warning_where_warnings_are_off_or_what_it_says_was_rolled_back(queue, monkeypatch):
    a_live_job(queue, ran_s=HOUR, limit_s=6 * HOUR)
    off, slow = Looks(queue, monkeypatch, time_warning="0s"), lambda: eta(6 * HOUR)
    assert [off.after(seconds, slow, monkeypatch) for seconds in (0, 300)] == [[], []]
    looks = Looks(queue, monkeypatch)
    looks.after(0, slow, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(TimeLimits, "warned", None)
        with pytest.raises(TypeError):
            looks.after(300, slow, monkeypatch)
    assert looks.after(1, slow, monkeypatch) == [6 * HOUR]


# -- in the chat -----------------------------------------------------------------------------------------


async def a_warning(room, **settings):
    """Uma's job, of which six minutes are left, and what she is told."""
    await room.ask(room.uma, "/submit -t 1h --name night python train.py")
    queue = room.chat.queue
    begin(queue, 1)
    queue.store.execute("UPDATE jobs SET started_at = ?", (clock.text(clock.now() - timedelta(minutes=55)),))
    assert warned(queue, **settings) == [1]
    queue.ring()
    await room.settle()
    return room.said(room.uma)[-1]


@in_room()
async def test_a_warning_and_extend_1_h(room):
    warning = await a_warning(room)
    limit = "⏰ #1 night on lab1 has almost reached its limit of 1h 00m and will be stopped at "
    assert warning.text.text.startswith(limit)
    assert "unless it is extended\n" in warning.text.text
    assert not warning.silent
    assert labels(warning) == ["Extend 1 h", "Extend 4 h", "Log", "Details", "Kill"]
    await room.tap(room.uma, warning, "Extend 1 h")
    assert room.answers()[-1].startswith("Job 1 may run for 2h 00m in all, until ")
    assert labels(room.said(room.uma)[-1]) == ["✓ Extended 1 h", "Log", "Details", "Kill"]
    assert warning.text.text.startswith("⏰ #1 night on lab1 had almost reached its limit of 1h 00m\n")
    assert room.chat.queue.job(1).spec.time_limit_s == 2 * HOUR
    (entry,) = [one for one in room.chat.queue.audit.rows() if one["action"] == "extend"]
    assert entry["actor"] == f"tg:{room.uma.id}"


@in_room()
async def test_a_button_pressed_twice_gives_its_time_once(room):
    warning = await a_warning(room)
    nonce = data_of(warning, "Extend 4 h")
    await room.tap(room.uma, warning, "Extend 4 h")
    room.people.tap(room.uma, warning.chat, warning.message_id, nonce)
    await room.settle()
    assert room.chat.queue.job(1).spec.time_limit_s == 5 * HOUR


@in_room()
async def test_no_more_is_offered_than_is_allowed(room):
    warning = await a_warning(room, time_max="90m")
    assert labels(warning) == ["Extend 30m 00s", "Log", "Details", "Kill"]


@in_room()
async def test_at_the_longest_that_is_allowed_nothing_is_offered(room):
    warning = await a_warning(room, time_max="1h")
    assert "the longest allowed here" in warning.text.text
    assert labels(warning) == ["Log", "Details", "Kill"]


@in_room()
async def test_extend_by_a_command_and_who_may(room):
    await a_warning(room)
    assert "2h 00m in all" in (await room.ask(room.uma, "/extend 1 1h"))[-1].text.text
    assert "3h 00m in all" in (await room.ask(room.ada, "/extend #1 1h"))[-1].text.text
    assert "belongs to Uma" in (await room.ask(room.una, "/extend 1 1h"))[-1].text.text
    assert "takes a user" in (await room.ask(room.vic, "/extend 1 1h"))[-1].text.text
    assert "Send /extend 12 2h" in (await room.ask(room.uma, "/extend 1"))[-1].text.text
    assert "not a duration" in (await room.ask(room.uma, "/extend 1 long"))[-1].text.text
    assert room.chat.queue.job(1).spec.time_limit_s == 3 * HOUR


@in_room()
async def test_a_warning_that_a_job_will_not_make_its_limit(room):
    await room.ask(room.uma, "/submit -t 6h --name night python train.py")
    queue = room.chat.queue
    begin(queue, 1)
    queue.store.execute("UPDATE jobs SET started_at = ?", (clock.text(clock.now() - timedelta(hours=1)),))
    with pytest.MonkeyPatch.context() as patch:
        looks = Looks(queue, patch)
        for seconds in (0, 300):
            looks.after(seconds, lambda: eta(6 * HOUR, 7 * HOUR), patch)
    queue.ring()
    await room.settle()
    warning = room.said(room.uma)[-1]
    assert warning.text.text.startswith(
        "⏰ #1 night on lab1 will not make its limit of 6h 00m: needs about 7h 00m, has 5h 00m. "
        "It will be stopped unless it is extended\n"
    )
    assert labels(warning) == ["Extend 1 h", "Extend 4 h", "Log", "Details", "Kill"]
    assert "warned: it will not make its time limit" in [event_words(one, {}) for one in queue.jobs.events(1)]
