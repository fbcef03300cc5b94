"""Names work wherever numbers do."""

from dataclasses import replace

import pytest

from runner.api import Queue
from runner.api.job_names import SeveralJobsError, job_named
from runner.model import State
from tests.integration.test_chat_picker import begin, end, label, queue
from tests.jobs import a_spec
from tests.room import in_room, labels


def job(room, number):
    return room.chat.queue.jobs.get(number)


def test_a_name_means_ones_own_job_then_the_unfinished_one_then_the_latest(tmp_path):
    with Queue(str(tmp_path), actor="ada", begin=True) as jobs:
        for owner in ("uma", "ada", "ada", "uma"):
            jobs.jobs.add(replace(a_spec(name="nano"), owner=owner))
        with pytest.raises(SeveralJobsError, match="2 jobs called nano wait or run: #3, #2"):
            job_named(jobs, "nano")
        jobs.stop(3)
        assert job_named(jobs, "nano") == 2
        jobs.stop(2)
        assert job_named(jobs, "nano") == 3
        jobs.stop(4)
        assert job_named(jobs.acting_as("una"), "nano") == 1
        assert job_named(jobs, "other") is None
        jobs.jobs.add(a_spec(group="night"))
        with pytest.raises(SeveralJobsError, match="night is a group: #5"):
            job_named(jobs, "night")


@in_room()
async def test_chat_commands_take_names(room):
    await queue(room, room.uma, "-t 1h --name nano python a.py --lr 1", "--name other true")
    (asked,) = await room.ask(room.uma, "/kill nano")
    assert labels(asked) == ["Yes, kill #1", "No"]
    for sent, answer in (
        ("/status Nano", "#1 nano"),
        ("/hold nano", "Job 1 is held"),
        ("/release nano other", "Job 1 is released"),
        ("/extend nano 1h", "Job 1 may run for 2h"),
        ("/edit nano --time 4h", "Job 1 is edited"),
        ("/move nano after other", "Job 1 is now after job 2"),
        ("/keep nano", "Job 1 is kept for good"),
        ("/log nobody", "“nobody” is not a job number, nor a job's name"),
    ):
        said = await room.ask(room.uma, sent)
        assert answer in said[0].text.text, sent
    await begin(room, 1)
    await end(room, 1)
    await room.ask(room.uma, "/rerun nano --lr 3")
    assert job(room, 3).spec.command == "python a.py --lr 3"


@in_room()
async def test_a_name_of_several_jobs_offers_them(room):
    await queue(room, room.uma, "--name nano true 1", "--name nano true 2")
    (asked,) = await room.ask(room.uma, "/kill nano")
    assert "2 jobs called nano wait or run" in asked.text.text
    assert labels(asked) == ["⏳ #2 nano 2", "⏳ #1 nano 1", "None of these"]
    await room.tap(room.uma, asked, label(asked, 2))
    assert [job(room, number).state for number in (1, 2)] == [State.QUEUED, State.CANCELLED]


def test_terminal_commands_take_names(box):
    with box.queue() as jobs:
        jobs.submit([a_spec(name="nano"), a_spec(name="two"), a_spec(name="two")], {})
    assert "Job 1 is held" in box.run("hold", "nano").stdout
    assert '"id": 1' in box.run("show", "nano", "--json").stdout
    several = box.run("kill", "two")
    assert (several.returncode, several.stdout) == (1, "")
    assert "2 jobs called two wait or run: #3, #2. Which one?" in several.stderr
    assert "Job 1 is cancelled" in box.run("kill", "nano").stdout
    nobody = box.run("log", "nobody")
    assert "'nobody' is not a job number, nor a job's name" in nobody.stderr
