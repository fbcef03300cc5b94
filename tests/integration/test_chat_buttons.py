"""Buttons show what they can do: for whom, for which job, and as long as it lasts."""

import asyncio
import time

import pytest

from bot.handlers.button_taps import GONE
from bot.outbound import notifier as notify
from runner.lifecycle import outcome
from runner.model import State
from runner.store.box import BoxKey
from runner.store.retention import tidy
from tests.jobs import an_exit
from tests.room import data_of, in_room, labels

SUBMIT = "/submit -g 0 --name night true"


def begin(room, number):
    """As the runner does."""
    jobs = room.chat.queue.jobs
    jobs.claim(number, [("cpu", number)], "boot")
    jobs.started(jobs.get(number), "2026-01-01T00:00:00.000000+00:00")


COPY = ["Copy command", "Copy run id"]


def end(room, number, **how):
    jobs, exit_ = room.chat.queue.jobs, an_exit(**how)
    jobs.ended(jobs.get(number), *outcome(exit_, None), exit_)


def rows(message):
    return [[button["text"] for button in row] for row in message.reply_markup["inline_keyboard"]]


# -- when the job has ended ------------------------------------------------------------------------


@in_room()
async def test_when_a_job_ends_nothing_that_was_said_of_it_offers_to_kill_it(room):
    await room.ask(room.uma, SUBMIT)
    begin(room, 1)
    await room.settle()
    await room.ask(room.uma, "/status 1")
    of_ada = (await room.ask(room.ada, "/status 1"))[0]
    card, status = room.said(room.uma)[-2:]
    assert [labels(one)[-1] for one in (card, status, of_ada)] == ["Kill"] * 3
    end(room, 1)
    await room.settle()
    assert labels(card) == []
    assert labels(status) == labels(of_ada) == [*COPY, "Log", "Rerun"]
    assert "#2 night queued" in (await room.tap(room.uma, status, "Rerun"))[0].text.text


@in_room()
async def test_an_open_question_about_a_job_that_ended_asks_no_more(room):
    queued = (await room.ask(room.uma, SUBMIT))[0]
    await room.tap(room.uma, queued, "Kill")
    asked = (await room.ask(room.uma, "/kill 1"))[0]
    begin(room, 1)
    end(room, 1)
    await room.settle()
    assert labels(queued) == labels(asked) == []


@in_room()
async def test_what_was_killed_from_a_message_is_not_offered_there_to_be_killed(room):
    queued = (await room.ask(room.uma, SUBMIT))[0]
    begin(room, 1)
    await room.tap(room.uma, queued, "Kill")
    await room.tap(room.uma, queued, "Yes, kill #1")
    assert labels(queued) == ["Log", "Details", "Kill"]  # it has not ended yet
    end(room, 1, exit_code=None, signal=15)
    await room.settle()
    assert labels(queued) == []


@in_room()
async def test_what_waits_to_be_sent_leaves_without_the_button(room):
    await room.ask(room.uma, "/notify more")
    await room.ask(room.uma, SUBMIT)
    room.faults.outage = True
    begin(room, 1)
    await room.settle()
    assert "started" not in room.said(room.uma)[-1].text.text
    end(room, 1)
    await room.settle()
    room.faults.outage = False
    room.chat.queue.store.execute("UPDATE messages SET next_try_at = NULL")
    await room.settle()
    started = next(one for one in room.said(room.uma) if "started" in one.text.text)
    assert labels(started) == ["Log", "Details", "Rerun"]


@in_room()
async def test_of_many_ends_at_once_some_messages_are_changed_now_and_the_rest_later(room):
    """Telegram would have us wait, and with us what is news."""
    last = notify.BURST + 3
    numbers = room.queue_apart(room.uma, last)
    await room.ask(room.uma, "/notify more")
    for number in numbers:
        begin(room, number)
    await room.settle()
    started = {number: one for one in room.said(room.uma) for number in numbers if f"#{number} " in one.text.text}

    def offer_to_kill():
        return [number for number, message in started.items() if "Kill" in labels(message)]

    assert offer_to_kill() == [*numbers]
    for number in numbers:
        end(room, number)
        await room.settle()
    assert offer_to_kill() == [*numbers[-3:]]
    await room.tap(room.uma, started[last], "Kill")
    assert room.answers()[-1].startswith(f"#{last} has ended: succeeded (")
    assert offer_to_kill() == [*numbers[-3:-1]]
    await room.die()  # and whoever comes after it goes on
    await room.open()
    await room.settle()
    assert offer_to_kill() == []
    assert not room.chat.queue.box.get(BoxKey.STALE_BUTTONS)


@in_room()
async def test_the_rest_is_changed_when_its_minute_has_come(room):
    await room.ask(room.uma, SUBMIT)
    begin(room, 1)
    await room.settle()
    await room.ask(room.uma, "/status 1")
    started, notifier = room.said(room.uma)[-1], room.bot.notifier
    notifier._tidied_at += [time.monotonic() - notify.BURST_S + 0.2] * notify.BURST
    end(room, 1)
    notifier.wake()
    deadline = time.monotonic() + 40
    while "Kill" in labels(started):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@in_room()
async def test_a_script_chosen_by_a_button_is_not_offered_to_be_killed_when_it_has_ended(room):
    """The message was a question before it was about the job."""
    asked = (await room.ask(room.uma, "/submit -g 0 echo a\necho b"))[0]
    await room.tap(room.uma, asked, "One script")
    assert labels(asked) == ["Details", "Kill"]
    begin(room, 1)
    end(room, 1)
    await room.settle()
    assert labels(asked) == []


# -- pressed too late ------------------------------------------------------------------------------


@in_room()
async def test_a_chosen_job_that_has_begun_or_ended_says_so_and_the_queue_is_shown(room):
    await room.ask(room.uma, "/batch -g 0\ntrue 1\ntrue 2\ntrue 3")
    shown = (await room.ask(room.uma, "/queue"))[0]
    await room.tap(room.uma, shown, "#1 true 1")
    begin(room, 1)
    await room.tap(room.uma, shown, "Hold")
    assert "only a job that waits can be held" in room.answers()[-1]
    assert labels(shown) == ["#2 true 2", "#3 true 3", "Refresh"]
    await room.tap(room.uma, shown, "#2 true 2")
    hold = data_of(shown, "Hold")
    room.chat.queue.stop(2)
    room.people.tap(room.uma, None, shown.message_id, hold)
    await room.settle()
    assert room.answers()[-1].startswith("#2 has ended: cancelled (")
    assert labels(shown) == ["#3 true 3", "Refresh"]


@in_room()
async def test_a_button_of_the_queue_from_an_older_version_still_moves_its_job(room):
    await room.ask(room.uma, "/batch -g 0\ntrue 1\ntrue 2")
    shown = (await room.ask(room.uma, "/queue"))[0]
    with room.chat.transaction():
        old = room.chat.buttons.make(room.uma.id, "front", 2, {"first": 0})
    room.people.tap(room.uma, None, shown.message_id, old)
    await room.settle()
    assert labels(shown) == ["#2 true 2", "#1 true 1", "Refresh"]


@in_room()
async def test_a_button_that_was_forgotten_long_ago_says_that_it_is_no_longer_good(room):
    queued = (await room.ask(room.uma, SUBMIT))[0]
    room.chat.queue.store.execute("UPDATE buttons SET created_at = '2000-01-01'")
    assert tidy(room.chat.queue.store)
    await room.tap(room.uma, queued, "Kill")
    assert room.answers()[-1] == GONE


@in_room()
async def test_buttons_outlive_the_bot(room):
    queued = (await room.ask(room.uma, SUBMIT))[0]
    await room.close()
    await room.open()
    await room.tap(room.uma, queued, "Kill")
    await room.tap(room.uma, queued, "Yes, kill #1")
    assert room.chat.queue.jobs.get(1).state is State.CANCELLED
    assert labels(queued) == []


# -- for whom --------------------------------------------------------------------------------------


@in_room()
async def test_nobody_is_shown_a_button_that_would_refuse_them(room):
    await room.ask(room.uma, SUBMIT)
    begin(room, 1)
    await room.settle()
    of = {
        person.first_name: (await room.ask(person, "/status 1"))[0]
        for person in (room.uma, room.una, room.vic, room.ada)
    }
    assert {name: labels(said) for name, said in of.items()} == {
        "Uma": [*COPY, "Log", "Kill"], "Una": [*COPY, "Log"], "Vic": [*COPY, "Log"], "Ada": [*COPY, "Log", "Kill"],
    }  # fmt: skip
    end(room, 1)
    await room.settle()
    of = {person.first_name: (await room.ask(person, "/status 1"))[0] for person in (room.uma, room.una, room.vic)}
    assert {name: labels(said) for name, said in of.items()} == {
        "Uma": [*COPY, "Log", "Rerun"], "Una": [*COPY, "Log", "Rerun"], "Vic": [*COPY, "Log"],
    }  # fmt: skip


@in_room()
async def test_a_job_of_somebody_else_can_be_chosen_but_not_changed(room):
    await room.ask(room.uma, "/batch -g 0\ntrue 1\ntrue 2")
    for person, offered in (
        (room.ada, ["First", "Sooner", "Later", "Hold", "Edit", "Kill", "◀ Queue"]),
        (room.una, ["◀ Queue"]),
        (room.vic, ["◀ Queue"]),
    ):
        shown = (await room.ask(person, "/queue"))[0]
        await room.tap(person, shown, "#1 true 1")
        assert labels(shown) == offered
        assert "#1" in shown.text.text


@in_room()
async def test_the_jobs_in_the_status_lead_to_their_pages(room):
    await room.ask(room.uma, "/batch -g 0\ntrue 1\ntrue 2")
    begin(room, 1)
    end(room, 1)
    begin(room, 2)
    await room.settle()
    shown = (await room.ask(room.vic, "/status"))[0]
    assert labels(shown) == ["▶️ #2", "✅ #1", "Refresh", "Queue", "GPUs"]
    (page,) = await room.tap(room.vic, shown, "▶️ #2")
    assert "#2 · running" in page.text.text
    (page,) = await room.ask(room.vic, "/1")
    assert "#1 · succeeded" in page.text.text


@pytest.mark.parametrize("role", ["viewer", "user"])
def test_who_was_let_in_for_less_is_shown_less(role, tmp_path):
    @in_room()
    async def check(room):
        room.people.start(room.sam, room.chat.people.invite(role, "test"))
        await room.ask(room.uma, "/submit -g 0 --group g true")
        said = (await room.ask(room.sam, "/group g"))[0]
        assert labels(said) == ["Results", "CSV"]
        assert labels((await room.ask(room.uma, "/group g"))[0]) == ["Results", "CSV", "Kill all"]

    check(tmp_path)


@in_room(groups=(-5001,))
async def test_in_a_group_only_the_latest_message_is_changed(room):
    """Telegram takes few messages a minute there, and counts changes."""
    group = room.world.add_group("Lab", (room.ada, room.uma))
    await room.ask(room.uma, SUBMIT, group)
    begin(room, 1)
    await room.settle()
    first, second = [(await room.ask(room.uma, "/status 1", group))[0] for _ in range(2)]
    end(room, 1)
    await room.settle()
    assert labels(first) == [*COPY, "Log", "Kill"]
    assert labels(second) == [*COPY, "Log", "Rerun"]
    await room.tap(room.uma, first, "Kill")
    assert labels(first) == ["Log", "Details", "Rerun"]
