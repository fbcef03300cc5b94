"""When jobs start and when the queue is empty, as it is told at the terminal and in the chat."""

import contextlib
import json
import re
import time
from datetime import datetime, timedelta

import pytest

from runner import clock
from runner.config import home
from runner.gpu.published import publish
from runner.model import Gpu, Reason, Snapshot
from runner.processes import linux, process_lock
from tests.attempts import begin, end
from tests.jobs import submit
from tests.room import in_room

GPU = "GPU-0a1b2c3d-1111"
TRAIN = "python train.py --hidden {} --seed {}"
HOUR = timedelta(hours=1)
SLACK = timedelta(seconds=90)


@contextlib.contextmanager
def a_runner_with_one_gpu(folder):
    """As far as others can see."""
    gpu = Gpu(index=0, uuid=GPU, memory_total_mib=24 << 10, memory_used_mib=0, utilization=0, processes=(),
              sampled_at=time.monotonic() + 3600)  # fmt: skip
    with process_lock.held(folder, home.RUNNER_LOCK):
        seen = Snapshot(at=clock.text(clock.now()), boot_id=linux.boot_id(), simulated=False, gpus=(gpu,))
        publish(folder, json.dumps(seen.to_json()))
        yield


def ran(queue, number, for_s, **how):
    """A job that took so long."""
    at = clock.now()
    begin(queue, number, GPU)
    began = clock.text(at - timedelta(seconds=for_s))
    end(queue, number, started_at=began, finished_at=clock.text(at), duration_s=for_s, **how)


def runs_since(queue, number, ago_s):
    begin(queue, number, GPU)
    began = clock.text(clock.now() - timedelta(seconds=ago_s))
    queue.store.execute("UPDATE jobs SET started_at = ? WHERE id = ?", (began, number))


def start_of(queue, number, key="estimated_start"):
    (told,) = queue.view.describe([queue.job(number)])
    return clock.moment(told[key])


def is_about(moment, expected):
    assert moment is not None
    return abs(moment - expected) < SLACK


@pytest.fixture
def queue(box):
    with box.queue() as queue, a_runner_with_one_gpu(str(box.home)):
        yield queue


def minutes_about(moment):
    """As the clock on the wall shows it, to the nearest minute or one later."""
    return {f"{(moment + late).astimezone():%H:%M}" for late in (timedelta(seconds=30), SLACK)}


def test_a_job_that_begins_at_a_time_does_not_start_about_the_minute_before(queue, box):
    begins = (clock.now() + 2 * HOUR).replace(second=0, microsecond=0)
    submit(queue, "python late.py", begin_at=clock.text(begins))
    assert f"begins at {begins.astimezone():%H:%M}" in box.run("ls").stdout
    assert queue.view.outlook().start_words(1) == f"about {begins.astimezone():%H:%M}"


def test_a_year_that_is_not_the_coming_one_is_named(queue, box):
    begins = clock.now() + timedelta(days=800)
    submit(queue, "python late.py", begin_at=clock.text(begins))
    assert f"begins at {begins.astimezone():%H:%M on %d %b %Y}" in box.run("ls").stdout


def test_by_earlier_runs_of_the_same_command(queue, box):
    now = clock.now()
    first, running, second, third = submit(queue, *(TRAIN.format(64, seed) for seed in range(4)))
    ran(queue, first, 7200)
    runs_since(queue, running, 3600)
    assert is_about(start_of(queue, second), now + HOUR)
    assert is_about(start_of(queue, third), now + 3 * HOUR)
    listed = box.run("ls").stdout
    assert any(f"about {at}" in listed for at in minutes_about(now + HOUR))
    assert "The queue: empty at about " in listed
    assert re.search(r", in (4h 5\dm|5h 00m), if nothing takes longer than usual\.", listed)
    shown = box.run("show", str(third)).stdout
    assert "Takes        about 2h 00m by 1 run of the same command" in shown
    assert "Starts       about " in shown
    assert "by 1 run of the same command" in box.run("show", str(running)).stdout


def test_what_is_not_known_is_called_unknown(queue, box):
    running, waiting, last = submit(queue, "python a.py", "python b.py", "python c.py")
    runs_since(queue, running, 60)
    assert [start_of(queue, number) for number in (waiting, last)] == [None, None]
    assert start_of(queue, waiting, "estimated_start_not_after") is None
    assert "The queue: end unknown: 3 jobs of unknown length." in box.run("ls").stdout
    shown = box.run("show", str(last)).stdout
    assert "Starts       at a time unknown" in shown
    assert "Takes        unknown" in shown


def test_a_job_that_failed_tells_nothing(queue):
    first, second = submit(queue, "python a.py", "python a.py")
    ran(queue, first, 60, exit_code=1)
    assert queue.view.takes(second).length.most_s is None


def test_a_time_limit_is_a_bound(queue, box):
    now = clock.now()
    (running,) = submit(queue, "python a.py", time_limit_s=7200.0)
    (waiting,) = submit(queue, "python b.py", time_limit_s=3600.0)
    runs_since(queue, running, 3600)
    assert start_of(queue, waiting) is None
    assert is_about(start_of(queue, waiting, "estimated_start_not_after"), now + HOUR)
    listed = box.run("ls").stdout
    assert "by about" in listed
    assert "The queue: empty by about " in listed
    assert "2 jobs known by the time limit only" in listed


def test_relatives_tell_as_far_as_they_agree(queue):
    """A sweep over something that is no seed: the same program with other values."""
    numbers = submit(queue, *(TRAIN.format(hidden, 0) for hidden in (16, 32, 64, 128)))
    for number, for_s in zip(numbers, (100, 110, 120), strict=False):
        ran(queue, number, for_s)
    known = queue.view.takes(numbers[-1])
    assert (known.length.least_s, known.like) == (110, "of the same program")
    (grouped,) = submit(queue, "python other.py", group="night")
    assert not queue.view.takes(grouped).length.known
    for_group = submit(queue, "python first.py", "python second.py", group="night")
    for number in for_group:
        ran(queue, number, 600)
    assert queue.view.takes(grouped).like == "of night"
    far, farther, odd = submit(queue, *(f"python odd.py --epochs {n}" for n in (1, 2, 3)))
    ran(queue, far, 10)
    ran(queue, farther, 1000)
    assert not queue.view.takes(odd).length.known


def test_a_job_that_takes_longer_than_it_ever_did(queue, box):
    first, running, waiting = submit(queue, *(TRAIN.format(64, seed) for seed in range(3)))
    ran(queue, first, 600)
    runs_since(queue, running, 700)
    assert start_of(queue, waiting) is None
    assert "unknown, longer than usual by 1 run of the same command" in box.run("show", str(running)).stdout
    assert "not empty before" in box.run("ls").stdout


def test_a_held_queue_promises_nothing(queue):
    first, running, waiting = submit(queue, *(TRAIN.format(64, seed) for seed in range(3)))
    ran(queue, first, 600)
    runs_since(queue, running, 60)
    assert start_of(queue, waiting) is not None
    queue.order.hold(waiting)
    assert start_of(queue, waiting) is None
    queue.order.release(waiting)
    queue.pause()
    assert start_of(queue, waiting) is None
    assert queue.view.outlook().done_words() == ""


def test_jobs_far_behind_have_an_estimate_too(queue):
    numbers = submit(queue, *(TRAIN.format(64, seed) for seed in range(250)))
    ran(queue, numbers[0], 100)
    found = queue.view.outlook()
    assert found.start(numbers[20]).about_s == pytest.approx(1900, abs=2)
    assert found.start(numbers[40]).about_s == pytest.approx(3900, abs=2)
    assert found.start(numbers[-1]).about_s == pytest.approx(24800, abs=2)
    assert found.forecast.done.about_s == pytest.approx(24900, abs=2)
    assert clock.moment(found.described()[numbers[-1]]["estimated_start"]) is not None


def test_far_behind_a_job_of_unknown_length_nothing_is_made_up(queue):
    numbers = submit(queue, *(TRAIN.format(64, seed) for seed in range(100)))
    (unlike,) = submit(queue, "python other.py")
    ran(queue, numbers[0], 100)
    runs_since(queue, unlike, 5)
    assert queue.view.outlook().start_words(numbers[-1]) == ""


def test_it_is_not_reckoned_again_while_nothing_changes(queue):
    numbers = submit(queue, *(TRAIN.format(64, seed) for seed in range(4)))
    ran(queue, numbers[0], 100)
    runs_since(queue, numbers[1], 50)
    found = queue.view.outlook()
    assert queue.view.outlook() is found


def test_whatever_changes_the_queue_shows_at_once(queue):
    first, running, second, third = submit(queue, *(TRAIN.format(64, seed) for seed in range(4)))
    ran(queue, first, 100)
    runs_since(queue, running, 50)
    assert queue.view.outlook().start(third).about_s == pytest.approx(150, abs=5)
    queue.order.move(third, "before", second)
    assert queue.view.outlook().start(third).about_s == pytest.approx(50, abs=5)
    queue.order.hold(third)
    assert queue.view.outlook().start(third).about_s is None
    queue.order.release(third)
    began = clock.text(clock.now() - timedelta(seconds=100))
    end(queue, running, started_at=began, finished_at=clock.text(clock.now()), duration_s=100)
    assert queue.view.outlook().start(third).about_s == 0
    (fourth,) = submit(queue, TRAIN.format(64, 9))
    assert queue.view.outlook().start(fourth).about_s == pytest.approx(200, abs=5)
    with queue.store.transaction():
        queue.jobs.claim(third, [(GPU, 0)], "boot")
    assert queue.view.outlook().start(second).about_s > 0


def test_a_day_that_is_not_today_is_named(queue):
    numbers = submit(queue, *(TRAIN.format(64, seed) for seed in range(30)))
    ran(queue, numbers[0], 10 * 3600)
    runs_since(queue, numbers[1], 0)
    found = queue.view.outlook()
    in_two_days, in_ten_days = found.start_words(numbers[6]), found.start_words(numbers[26])
    assert datetime.strptime(in_two_days.removeprefix("about "), "%a %H:%M")  # noqa: DTZ007
    assert datetime.strptime(in_ten_days.removeprefix("about "), "%Y-%m-%d")  # noqa: DTZ007


def test_who_makes_room_just_now_is_reckoned_with(queue):
    (before,) = submit(queue, TRAIN.format(64, 0))
    ran(queue, before, 3600)
    filler, behind = submit(queue, TRAIN.format(64, 1), TRAIN.format(64, 2), priority="low", preemptible=True)
    runs_since(queue, filler, 0)
    (urgent,) = submit(queue, TRAIN.format(64, 3))
    queue.jobs.ask_to_stop(queue.job(filler), Reason.PREEMPTED, f"#{urgent}")
    assert is_about(start_of(queue, behind), clock.now() + 2 * HOUR)
    queue.stop(filler)
    assert is_about(start_of(queue, behind), clock.now() + HOUR)


def test_limits_that_add_up_beyond_the_calendar_are_listed_all_the_same(queue, box):
    submit(queue, *(f"python {number}.py" for number in range(30)), time_limit_s=300 * 365 * 86400.0)
    done = box.run("ls")
    assert (done.returncode, "empty by about 3" in done.stdout) == (0, True)
    assert queue.view.describe([queue.job(30)])[0]["estimated_start_not_after"].startswith("3")


@in_room()
async def test_the_chat_tells_it_too(room):
    for seed in range(4):
        await room.ask(room.uma, "/submit " + TRAIN.format(64, seed))
    queue, now = room.chat.queue, clock.now()
    ran(queue, 1, 7200)
    runs_since(queue, 2, 3600)
    with a_runner_with_one_gpu(queue.home):
        for command in ("/queue", "/status"):
            said = (await room.ask(room.vic, command))[-1].text.text
            times = minutes_about(now + HOUR)
            assert any(
                f"#3 python train.py --hidden 64 --seed 2 — needs 1 GPU, 0 free · about {at}" in said for at in times
            )
            assert "🌅 empty at about " in said
            assert "if nothing takes longer than usual" in said
        assert "· about " in (await room.ask(room.vic, "/status 4"))[-1].text.text
