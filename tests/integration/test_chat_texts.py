"""What is said stays true, and what is asked is answered: limits, ranges, scripts, the record."""

import re
from unittest import mock

import pytest

from runner.model import State
from tests.integration.test_chat_buttons import begin, end
from tests.room import in_room, labels


def text(messages):
    return "\n".join(message.text.text for message in messages)


# -- what stays true -------------------------------------------------------------------------------


@in_room()
async def test_a_job_that_starts_at_once_is_not_said_to_start_next_for_ever(room):
    with mock.patch("runner.processes.process_lock.runner_is_up", return_value=True):
        said = [*(await room.ask(room.uma, "/submit -g 0 true")), *(await room.ask(room.uma, "/rerun 1"))]
        said += await room.ask(room.uma, "/batch -g 0\ntrue\ntrue")
        assert "starts next" not in text(said)
        assert "#2 queued" in text(said)
        assert "starts next" in text(await room.ask(room.uma, "/queue"))  # that shows a moment, and can be refreshed
        room.chat.queue.pause()
        assert "the queue is paused" in text(await room.ask(room.uma, "/submit -g 0 true"))


@in_room()
async def test_jobs_are_told_by_the_numbers_they_have(room):
    for _ in range(10):
        await room.ask(room.uma, "/submit -g 0 true")
    begin(room, 5)
    end(room, 5)
    await room.settle()
    asked = (await room.ask(room.uma, "/kill queued"))[0]
    await room.tap(room.uma, asked, "Yes, kill 9 jobs")
    assert "⏹ 9 jobs cancelled by Uma on lab1 before they started: #1–#4, #6–#10" in text(room.said(room.uma))


@in_room()
async def test_a_held_job_that_is_put_first_is_said_to_be_held(room):
    """It stands behind all that may start until then."""
    await room.ask(room.uma, "/batch -g 0\ntrue\ntrue")
    await room.ask(room.uma, "/hold 2")
    shown = (await room.ask(room.uma, "/queue"))[0]
    await room.tap(room.uma, shown, "#2 true")
    await room.tap(room.uma, shown, "First")
    assert room.answers()[-1] == "Job 2 is held by Uma. Once it is released it is first."


# -- limits ----------------------------------------------------------------------------------------


@in_room(queued_per_person=2)
async def test_running_again_is_queueing_too(room):
    await room.ask(room.uma, "/submit -g 0 true")
    await room.ask(room.uma, "/rerun 1")
    assert "nothing was queued" in text(await room.ask(room.uma, "/rerun 1"))
    begin(room, 1)
    end(room, 1)
    await room.settle()
    await room.ask(room.uma, "/submit -g 0 true")
    assert room.chat.queue.jobs.count(State.QUEUED) == 2
    ended = next(one for one in room.said(room.uma) if "#1 finished" in one.text.text)
    await room.tap(room.uma, ended, "Rerun")
    assert room.chat.queue.jobs.count(State.QUEUED) == 2
    assert "nothing was queued" in room.answers()[-1]


@in_room(submits_per_minute=3)
async def test_buttons_count_as_submissions_too(room):
    for number in (1, 2, 3):
        await room.ask(room.uma, "/submit -g 0 true")
        begin(room, number)
        end(room, number)
    await room.settle()
    ended = next(one for one in room.said(room.uma) if "#1 finished" in one.text.text)
    await room.tap(room.uma, ended, "Rerun")
    assert "more than 3 submissions a minute" in room.answers()[-1]
    assert room.chat.queue.jobs.count(State.QUEUED) == 0


# -- numbers ---------------------------------------------------------------------------------------


@in_room()
async def test_a_range_may_have_gaps(room):
    await room.ask(room.uma, "/batch -g 0\n" + "true\n" * 3)
    room.chat.queue.store.execute("DELETE FROM jobs WHERE id = 2")
    asked = text(await room.ask(room.uma, "/kill 1-60"))
    assert asked.startswith("Stop these 2 jobs?\n⏳ #1 true\n⏳ #3 true")
    assert "There is no job #2" in text(await room.ask(room.uma, "/kill 1 2 3"))
    assert "There are no jobs 50-60." in text(await room.ask(room.uma, "/kill 50-60"))


@in_room()
async def test_what_log_cannot_do_is_said(room):
    await room.ask(room.uma, "/batch -g 0\ntrue\ntrue")
    for asked in ("/log 1 2 3", "/log 1-2"):
        assert "One job at a time" in text(await room.ask(room.uma, asked)), asked
    assert "too long to search for" in text(await room.ask(room.uma, f"/log 1 {'x' * 200}"))


# -- scripts ---------------------------------------------------------------------------------------

LOOP = "for seed in 1 2; do\n  python train.py --seed $seed\n  echo done $seed\ndone"
HEREDOC = "cat > hello.py <<EOF\nfor i in range(3):\n    print(i)\nEOF\npython hello.py"


@pytest.mark.parametrize("script", [LOOP, HEREDOC])
def test_what_is_plainly_one_script_is_offered_as_one_first_and_shown_as_it_is(tmp_path, script):
    @in_room()
    async def in_the_chat(room):
        (asked,) = await room.ask(room.uma, f"/submit -g 0 {script}")
        lines = script.count("\n") + 1
        assert asked.text.text == f"one script, or {lines} jobs?\n{script}"
        assert labels(asked) == ["One script", f"{lines} jobs", "Neither"]

    in_the_chat(tmp_path)


@in_room()
async def test_a_script_from_a_file_is_called_by_its_name(room):
    for name, content in (("hello.py", b"print(1)\n"), ("my run (2).sh", b"#!/bin/sh\ntrue\n")):
        room.people.send_document(room.uma, None, name, content)
        await room.settle()
        await room.tap(room.uma, room.said(room.uma)[-1], "One script")
    assert [room.chat.queue.job(number).spec.name for number in (1, 2)] == ["hello.py", "my-run-2-.sh"]
    room.people.send_document(room.uma, None, "hello.py", b"print(1)\n", caption="/submit --name night")
    await room.settle()
    await room.tap(room.uma, room.said(room.uma)[-1], "One script")
    assert room.chat.queue.job(3).spec.name == "night"


# -- the record ------------------------------------------------------------------------------------


@in_room()
async def test_the_record_shows_times_as_people_read_them(room):
    await room.ask(room.uma, "/submit -g 0 true")
    await room.ask(room.uma, "/keep 1 2h")
    await room.ask(room.uma, "/keep 1")
    first, second = [line for line in text(await room.ask(room.ada, "/audit")).splitlines() if ": keep" in line]
    assert re.search(r"Uma: keep \(job 1, until (\d\d:\d\d|\d{4}-\d\d-\d\d)\)$", first)  # another day near midnight
    assert second.endswith("Uma: keep (job 1)")
