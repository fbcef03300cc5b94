"""A network that fails in every way it can: all news arrives, in order, and every command has one effect."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta

import pytest

from bot.inbound import poll
from bot.outbound import retry_policy, telegram_client
from bot.outbound.retry_policy import Then, Verdict
from runner import clock
from runner.model import State
from tests.attempts import begin, end
from tests.fault import told
from tests.fault.rough import HttpRoom, instead, record, texts
from tests.jobs import submit
from tests.room import Room, data_of, in_room
from tests.telegram.api import Reply
from tests.telegram.faults import Fault
from tests.telegram.http import HttpServer

UNSURE = {Fault.HANG_BEFORE, Fault.HANG_AFTER, Fault.CUT}


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch):
    monkeypatch.setattr(retry_policy, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(retry_policy, "LONGEST_PAUSE_S", 0.05)
    monkeypatch.setattr(retry_policy, "LONGEST_UNSURE_S", 0.05)
    monkeypatch.setattr(telegram_client, "READ_S", 0.25)
    monkeypatch.setattr(telegram_client, "POLL_OVERDUE_S", 0.25)
    monkeypatch.setattr(poll, "CONFLICT_PAUSE_S", 0.1)


async def until(look, timeout=40.0):
    deadline = time.monotonic() + timeout
    while not look():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.01)


# -- one call in five --------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "jobs"), [(Room, 60), (HttpRoom, 20)], ids=["in process", "over HTTP"])
def test_one_call_in_five_fails(kind, jobs, tmp_path):
    async def check():
        room = kind(tmp_path, submits_per_minute=1000)
        room.read_s = 0.1
        for person in (room.ada, room.uma, room.una):
            room.people.start(person)
        if kind is HttpRoom:
            async with HttpServer(room.api) as room.server:
                await a_rough_night(room, jobs)
        else:
            await a_rough_night(room, jobs)

    asyncio.run(check())


async def a_rough_night(room, jobs):
    await room.open(poll_s=1)
    room.faults.chance(0.2)
    names = {room.uma: [], room.una: []}
    for person in names:
        room.chat.people.set_noise(person.id, "more")  # a start is a message, too
    for number in range(jobs // 2):
        for person, sent in names.items():
            sent.append(f"n{person.id}x{number}")
            room.people.send_text(person, None, f"/submit -g 0 --name {sent[-1]} python a.py")
            await asyncio.sleep(0.005)
        room.people.send_text(room.ada, None, "/whoami")
    queue = room.chat.queue
    await until(lambda: queue.jobs.count(State.QUEUED) == jobs)
    for job in queue.jobs.find():
        begin(queue, job.id)
        room.bot.notifier.wake()
        await asyncio.sleep(0.005)
        end(queue, job.id, exit_code=job.id % 2)
        room.bot.notifier.wake()
    await until(lambda: not (queue.notices.open() or room.chat.inbox.open() or room.chat.outbox.waiting()))
    room.faults.clear()
    await room.settle()
    check_all_was_told(room, names)
    await room.close()


def check_all_was_told(room, names):
    by_name = {job.spec.name: job for job in room.chat.queue.jobs.find()}
    assert sorted(by_name) == sorted(name for sent in names.values() for name in sent)
    applied = room.faults.applied
    unsure = sum(count for (method, fault), count in applied.items() if method == "sendMessage" and fault in UNSURE)
    copies = 0
    for person, sent in names.items():
        said = texts(room, person)
        ends = {0: "finished", 1: "failed"}
        mine = [(by_name[name].id, kind) for name in sent for kind in ("started", ends[by_name[name].id % 2])]
        assert told.problems(said, mine) == []
        copies += told.copies(one for one in said if told.FACT.match(one))
        assert told.copies(one for one in said if told.FACT.match(one)) <= told.repeats(said)
    assert unsure, "the faults are to be of every kind"
    assert copies <= unsure
    asked = sum(event.data.get("text") == "/whoami" for event in room.world.events.after(0, "message"))
    assert sum("admin of lab1" in one and told.REPEAT not in one for one in texts(room, room.ada)) <= asked
    assert sum("admin of lab1" in one for one in texts(room, room.ada)) >= asked


@in_room()
async def test_a_kill_that_is_confirmed_over_a_bad_line_stops_once(room):
    room.read_s = 0.1
    await room.close()
    await room.open(poll_s=1)
    room.faults.chance(0.2)
    for number in range(1, 11):
        room.people.send_text(room.uma, None, "/submit -g 0 python a.py")
        await until(lambda number=number: room.chat.queue.jobs.count(*State) == number)
        room.people.send_text(room.uma, None, f"/kill {number}")
        await until(lambda number=number: f"Stop this job?\n⏳ #{number} " in texts(room, room.uma)[-1])
        asked = room.said(room.uma)[-1]
        for _ in range(2):  # an impatient thumb
            room.people.tap(room.uma, None, asked.message_id, data_of(asked, f"Yes, kill #{number}"))
        await until(lambda number=number: room.chat.queue.job(number).state is State.CANCELLED)
    await until(lambda: not (room.chat.inbox.open() or room.chat.outbox.waiting()))
    room.faults.clear()
    await room.settle()
    kills = [row["data"]["job"] for row in room.chat.queue.audit.rows() if row["action"] == "kill"]
    assert kills == list(range(1, 11))
    room.world.refusals.clear()


# -- six hours ---------------------------------------------------------------------------------------


def test_six_hours_without_a_network(monkeypatch, tmp_path):
    """With the pauses as they are; the clock is put forward instead."""
    for name, value in (("FIRST_PAUSE_S", 1.0), ("LONGEST_PAUSE_S", 30.0)):
        monkeypatch.setattr(retry_policy, name, value)
    monkeypatch.setattr(poll, "after_failure", lambda *_: Verdict(Then.AGAIN, 0.01))
    monkeypatch.setattr(poll, "pause_s", lambda _: 0.01)
    ahead, now, monotonic = timedelta(), clock.now, clock.monotonic
    monkeypatch.setattr(clock, "now", lambda: now() + ahead)
    monkeypatch.setattr(clock, "monotonic", lambda: monotonic() + ahead.total_seconds())

    @in_room(noise="more")
    async def check(room):
        nonlocal ahead
        room.world.clock = lambda real=room.world.clock: real() + ahead.total_seconds()
        queue = room.chat.queue
        mine = []
        for _ in range(4):
            await room.ask(room.uma, "/submit -g 0 python a.py")
        others = submit(queue, *["b"] * 4, gpus=0)
        room.faults.outage = True
        times = {}
        for step, number in enumerate([1, 2, 3, 4, *others]):
            begin(queue, number)
            room.bot.notifier.wake()
            await until(lambda: not queue.notices.open())
            times[number] = clock.now()
            ahead += timedelta(minutes=30 + step)
            room.bot.sender.wake()
            end(queue, number, exit_code=number % 2)
            mine += [(number, "started"), (number, "failed" if number % 2 else "finished")]
            room.bot.notifier.wake()
            await until(lambda: not queue.notices.open())
        ahead += timedelta(hours=2)
        room.people.send_text(room.una, None, "/whoami")
        calls = room.faults.calls["sendMessage"]
        assert calls < 40, "it is not to hammer at a network that is not there"
        room.faults.clear()
        for _ in range(3):  # one may just have failed for the last time
            ahead += timedelta(minutes=1)
            await room.settle(30)
        assert room.chat.outbox.waiting() == 0
        for person, numbers in ((room.uma, [1, 2, 3, 4]), (room.ada, others)):
            said = [one for one in texts(room, person) if told.FACT.match(one)]
            assert told.problems(said, [fact for fact in mine if fact[0] in numbers]) == []
            assert told.facts(said) == [fact for fact in mine if fact[0] in numbers]
            assert told.repeats(said) == 0
            first = times[numbers[0]].astimezone()
            assert said[0].endswith(f"from {first:%a %H:%M}")
            assert all("\nfrom " in one for one in said)
        assert "user of lab1" in texts(room, room.una)[-1]

    check(tmp_path)


# -- coming up, and the poll -------------------------------------------------------------------------


def test_a_network_that_is_not_there_yet_is_waited_for(tmp_path, caplog):
    async def check():
        room = HttpRoom(tmp_path)
        room.people.start(room.ada)
        async with HttpServer(room.api) as room.server:
            await room.server.close_listener()
            opening = asyncio.ensure_future(room.open())
            await until(lambda: "cannot be reached" in caplog.text)
            assert not opening.done()
            await room.server.open_listener()
            await opening
            await room.settle()
            assert "You are an admin here" in texts(room, room.ada)[0]
            await room.server.close_listener()
            await asyncio.sleep(0.2)
            await room.server.open_listener()
            said = await room.ask(room.ada, "/whoami")
            assert "admin of lab1" in said[0].text.text
            await room.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(check())
    assert sum("cannot be reached" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("by_itself", [True, False], ids=["the connection times out", "it does not even do that"])
def test_a_poll_that_stalls_is_started_anew(by_itself, monkeypatch, tmp_path, caplog):
    if not by_itself:
        monkeypatch.setattr(telegram_client, "POLL_OVERDUE_S", 60.0)
        monkeypatch.setattr(poll, "STALLED_AFTER_S", 0.2)

    @in_room()
    async def check(room):
        await room.close()
        await room.open(poll_s=1)
        await room.settle()
        room.faults.script("hang_before", methods=["getUpdates"])
        await until(lambda: room.faults.applied["getUpdates", Fault.HANG_BEFORE])
        await room.ask(room.uma, "/whoami")
        assert "user of lab1" in texts(room, room.uma)[-1]

    with caplog.at_level(logging.WARNING):
        check(tmp_path)
    words = "does not answer" if by_itself else "the poll stalled"
    assert any(words in record.message for record in caplog.records)


@in_room()
async def test_another_program_that_polls_is_not_fought_with(room):
    calls = room.faults.calls
    before = calls["getUpdates"]
    others = 0

    async def other():
        nonlocal others
        while True:
            others += 1
            await room.api.call(room.world.token, "getUpdates", {"timeout": "50"})
            await asyncio.sleep(0.01)

    thief = asyncio.ensure_future(other())
    await until(lambda: "poll" in room.chat.troubles)
    await asyncio.sleep(2.0)
    assert calls["getUpdates"] - before - others <= 6, "it waits longer each time"
    await until(lambda: any("Another program" in one for one in texts(room, room.ada)))
    thief.cancel()
    await asyncio.gather(thief, return_exceptions=True)
    room.people.send_text(room.ada, None, "/status")
    await until(lambda: "· 0 running" in texts(room, room.ada)[-1])
    assert "poll" not in room.chat.troubles
    assert sum("Another program" in one for one in texts(room, room.ada)) == 1
    assert not any("Another program" in one for one in texts(room, room.uma))


@in_room()
async def test_a_fight_is_told_once_even_if_some_polls_succeed(room):
    for number in range(4):
        room.world.updates.end_poll("terminated by other getUpdates request")
        await until(lambda number=number: room.bot.poller._conflicts == number + 1)
        room.people.send_text(room.uma, None, "/whoami")
        await until(lambda: "poll" not in room.chat.troubles)
    await room.settle()
    assert sum("Another program" in one for one in texts(room, room.ada)) == 1


@in_room()
async def test_a_webhook_is_told_of_and_can_be_taken_over(room):
    room.world.webhook.url = "https://example.org/hook"
    room.world.updates.end_poll("terminated by setWebhook request")
    await until(lambda: any("--take-over" in one for one in texts(room, room.ada)))
    room.people.send_text(room.uma, None, "/whoami")
    await asyncio.sleep(0.3)
    assert "user of" not in texts(room, room.uma)[-1]
    room.faults.script("500", methods=["deleteWebhook"])
    await room.bot.connect(take_over=True)
    assert room.world.webhook.url == ""
    await until(lambda: "user of lab1" in texts(room, room.uma)[-1])


SLIPS = {
    "Telegram's 401": Reply(401, b'{"ok": false, "error_code": 401, "description": "Unauthorized"}'),
    "Telegram's 404": Reply(404, b'{"ok": false, "error_code": 404, "description": "Not Found"}'),
    "a proxy's page": Reply(404, b"<html>no such page</html>", "text/html"),
}


@pytest.mark.parametrize("slip", SLIPS)
@pytest.mark.parametrize("method", ["getUpdates", "sendMessage"])
def test_one_odd_answer_costs_a_moment_and_not_the_bot(slip, method, tmp_path):
    @in_room()
    async def check(room):
        instead(room, SLIPS[slip], method, times=1 if method == "sendMessage" else 3)
        assert "user of lab1" in (await answered(room, "/whoami"))
        assert not room._serving.done()

    check(tmp_path)


@in_room()
async def test_a_proxy_that_knows_nobody_is_no_word_about_the_token(room):
    left = instead(room, SLIPS["a proxy's page"], "", times=10)
    room.people.send_text(room.uma, None, "/whoami")
    await until(lambda: not left)
    await until(lambda: "user of lab1" in texts(room, room.uma)[-1])


async def answered(room, words):
    room.people.send_text(room.uma, None, words)
    before = len(texts(room, room.uma))
    await until(lambda: len(texts(room, room.uma)) > before)
    return texts(room, room.uma)[-1]


@in_room()
async def test_a_token_that_is_no_longer_good_ends_the_bot_with_a_sentence(room):
    from runner.errors import OperatorError

    calls = record(room)

    room.api.world.token = "4242:another"
    with room.chat.transaction():
        room.chat.say(room.ada.id, room.ada.id, "x")
    with pytest.raises(OperatorError, match="does not know this bot's token"):
        await asyncio.wait_for(room._serving, 10)
    assert len(calls) < 20, "it must not be hammered"
    room.chat.close()
    room.api.world.token = room.bot.client.bot.token
    await room.open()
