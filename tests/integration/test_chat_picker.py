"""A command that names no job offers jobs as buttons."""

import pytest

from bot.handlers.job_picker import OFFERED
from runner.model import State
from tests.integration import test_chat_buttons as runner
from tests.room import in_room, labels


def job(room, number):
    return room.chat.queue.jobs.get(number)


async def queue(room, person, *commands):
    for command in commands:
        await room.ask(person, f"/submit -g 0 {command}")


async def begin(room, number):
    runner.begin(room, number)
    await room.settle()


async def end(room, number):
    runner.end(room, number)
    await room.settle()


def label(message, number):
    """The label of the button for this job."""
    (one,) = (text for text in labels(message) if f"#{number} " in text)
    return one


@in_room()
async def test_kill_without_a_number_offers_ones_own_jobs_and_a_tap_stops_one(room):
    await queue(room, room.uma, "--name a true", "--name b true")
    await queue(room, room.una, "--name c true")
    await begin(room, 2)
    (asked,) = await room.ask(room.uma, "/kill")
    assert [text.split(" · ")[0] for text in labels(asked)] == ["▶️ #2 b", "⏳ #1 a", "None of these"]
    await room.tap(room.uma, asked, label(asked, 1))
    assert job(room, 1).state is State.CANCELLED
    assert job(room, 2).state is State.RUNNING
    assert labels(asked) == []
    assert "Job 1 is cancelled" in asked.text.text


@in_room()
async def test_with_one_job_kill_asks_about_it_and_log_shows_it(room):
    await queue(room, room.uma, "--name a true")
    (asked,) = await room.ask(room.uma, "/kill")
    assert labels(asked) == ["Yes, kill #1", "No"]
    await begin(room, 1)
    (shown,) = await room.ask(room.vic, "/log")
    assert "#1 a" in shown.text.text


@in_room()
async def test_an_admin_is_offered_their_own_jobs_before_those_of_others(room):
    await queue(room, room.uma, "--name a true")
    await queue(room, room.ada, "--name b true")
    await begin(room, 1)
    (asked,) = await room.ask(room.ada, "/kill")
    assert [text.split()[1] for text in labels(asked)[:2]] == ["#2", "#1"]


@in_room()
async def test_a_log_that_was_picked_replaces_the_question(room):
    await queue(room, room.uma, "--name a true", "--name b true")
    for number in (1, 2):
        await begin(room, number)
    (asked,) = await room.ask(room.vic, "/log")
    assert await room.tap(room.vic, asked, label(asked, 1)) == []
    assert "#1 a · so far" in asked.text.text
    assert labels(asked) == ["Refresh", "Live", "Whole log", "Details"]  # a viewer gets no Kill


@in_room()
async def test_what_follows_the_command_counts_for_the_job_that_is_picked(room):
    await queue(room, room.uma, "-t 1h python a.py --lr 1", "-t 1h python b.py --lr 1")
    (asked,) = await room.ask(room.uma, "/extend 2h")
    await room.tap(room.uma, asked, label(asked, 2))
    assert (job(room, 1).spec.time_limit_s, job(room, 2).spec.time_limit_s) == (3600, 3 * 3600)
    for number in (1, 2):
        await begin(room, number)
        await end(room, number)
    (asked,) = await room.ask(room.uma, "/rerun --lr 3")
    await room.tap(room.uma, asked, label(asked, 1))
    assert job(room, 3).spec.command == "python a.py --lr 3"
    assert "#3 queued" in asked.text.text


@in_room()
async def test_extend_offers_jobs_with_a_limit_and_by_how_much(room):
    await queue(room, room.uma, "-t 1h --name a true", "--name b true")
    (asked,) = await room.ask(room.uma, "/extend")
    assert labels(asked) == ["#1 a +1 h", "+4 h", "None of these"]
    await room.tap(room.uma, asked, "+4 h")
    assert job(room, 1).spec.time_limit_s == 5 * 3600
    (asked,) = await room.ask(room.uma, "/extend 1")
    assert "By how much?" in asked.text.text
    await room.tap(room.uma, asked, "#1 a +1 h")
    assert job(room, 1).spec.time_limit_s == 6 * 3600


@in_room()
async def test_hold_release_and_edit_offer_what_they_can_change(room):
    await queue(room, room.uma, "--name a true", "--name b true", "--name c true")
    await begin(room, 3)
    (asked,) = await room.ask(room.uma, "/hold")
    assert [text.split()[1] for text in labels(asked)[:-1]] == ["#1", "#2"]
    await room.tap(room.uma, asked, label(asked, 1))
    assert job(room, 1).held_by
    (asked,) = await room.ask(room.uma, "/release")
    assert labels(asked) == ["✋ #1 a", "None of these"]
    await room.tap(room.uma, asked, label(asked, 1))
    assert not job(room, 1).held_by
    (asked,) = await room.ask(room.uma, "/edit --time 4h")
    await room.tap(room.uma, asked, label(asked, 2))
    assert job(room, 2).spec.time_limit_s == 4 * 3600
    await room.tap(room.uma, (await room.ask(room.uma, "/hold"))[0], "None of these")
    assert not job(room, 1).held_by


@in_room()
async def test_the_button_of_a_picker_obeys_the_role_of_its_moment(room):
    await queue(room, room.una, "--name a true", "--name b true")
    for number in (1, 2):
        await begin(room, number)
        await end(room, number)
    (asked,) = await room.ask(room.una, "/rerun")
    room.chat.gate._by_settings.pop(room.una.id)
    room.people.tap(room.una, None, asked.message_id, asked.reply_markup["inline_keyboard"][0][0]["callback_data"])
    await room.settle()
    assert room.chat.queue.jobs.count(*State) == 2
    (refused,) = await room.ask(room.vic, "/rerun")
    assert "That takes a user of this box" in refused.text.text


@in_room()
async def test_only_the_likeliest_of_many_are_offered(room):
    await room.ask(room.uma, "/batch -g 0\n" + "true\n" * (OFFERED + 3))
    (asked,) = await room.ask(room.uma, "/kill")
    assert len(labels(asked)) == OFFERED + 1
    assert "… and 3 more: send /kill 12" in asked.text.text


@in_room()
async def test_rows_that_would_read_the_same_say_what_differs(room):
    long = "python -m training.of.something.large"
    await queue(room, room.uma, f"{long} --lr 1 --seed 1", f"{long} --lr 1 --seed 2", f"--name x {long} --seed 3")
    (asked,) = await room.ask(room.uma, "/kill")
    assert labels(asked)[:3] == ["⏳ #1 --seed 1", "⏳ #2 --seed 2", "⏳ #3 x"]


@in_room()
async def test_groups_are_offered_too(room):
    await room.ask(room.uma, "/sweep -g 0 echo {a} ; a=1,2")
    (asked,) = await room.ask(room.vic, "/group")
    assert labels(asked) == ["sweep-1"]
    (shown,) = await room.tap(room.vic, asked, "sweep-1")
    assert "0 of 2 done" in shown.text.text


@pytest.mark.parametrize(
    "command", ["log", "kill", "rerun", "keep", "hold", "extend", "fit", "release", "edit", "move"]
)
def test_with_no_job_to_offer_every_command_says_what_to_send(command, tmp_path):
    @in_room()
    async def check(room):
        (said,) = await room.ask(room.ada, f"/{command}")
        assert f"/{command} 12" in said.text.text
        assert labels(said) == []

    check(tmp_path)


@in_room()
async def test_the_lines_about_an_error_need_no_number_either(room):
    await queue(room, room.uma, "--name a false", "--name b false")
    for number in (1, 2):
        await begin(room, number)
        await end(room, number)
    (asked,) = await room.ask(room.uma, "/log error")
    assert await room.tap(room.uma, asked, label(asked, 1)) == []
    assert "#1 a" in asked.text.text
