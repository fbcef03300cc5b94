"""Messages that meet a bad day: none is lost, none comes twice without saying so, none holds up another chat."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from functools import partial

import pytest

from bot import waiting
from bot.inbound import poll, routing
from bot.local_chat.bot_api.methods import ApiError
from bot.outbound import retry_policy
from bot.outbound.sender import REPEAT
from runner import clock, rundir
from runner.model import State
from tests import room as rooms
from tests.attempts import begin, end
from tests.fault.rough import FullDisk, instead, record, refuse, refused, texts
from tests.room import data_of, labels
from tests.telegram.api import Reply
from tests.telegram.api_errors import forbidden, migrated

in_room = partial(rooms.in_room, noise="more")  # a start is a message, too


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch):
    monkeypatch.setattr(retry_policy, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(retry_policy, "LONGEST_PAUSE_S", 0.1)
    monkeypatch.setattr(retry_policy, "LONGEST_UNSURE_S", 0.1)
    monkeypatch.setattr(waiting, "TRY_AGAIN_S", 0.03)
    monkeypatch.setattr(routing, "TRY_AGAIN_S", 0.03)
    monkeypatch.setattr(poll, "DISK_PAUSE_S", 0.03)


async def until(look, timeout=40.0):
    deadline = time.monotonic() + timeout
    while not look():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.005)


def say(room, user, text, **how):
    with room.chat.transaction():
        room.chat.say(user.id, user.id, text, **how)


# -- waiting as told ---------------------------------------------------------------------------------


@in_room()
async def test_a_chat_that_asks_us_to_wait_is_left_alone_and_the_others_go_on(room):
    calls = record(room)
    room.faults.script("429", methods=["sendMessage"])
    say(room, room.uma, "one")
    await until(lambda: calls)
    began = calls[0].at
    say(room, room.uma, "two")
    say(room, room.una, "hello")
    with room.chat.transaction():
        room.chat.outbox.add(room.uma.id, "editMessageText", {"message_id": 1, "text": "x"}, lane="edit")
    await until(lambda: "hello" in texts(room, room.una))
    await until(lambda: texts(room, room.uma)[-2:] == ["one", "two"])
    to_uma = [call for call in calls if call.chat == room.uma.id]
    assert to_uma[1].at - began >= 1.0
    assert next(call.at for call in calls if call.chat == room.una.id) < to_uma[1].at
    refused(room)  # the edit had no aim


@in_room()
async def test_no_task_spins_while_it_waits(room):
    room.faults.script("429", methods=["sendMessage"])
    say(room, room.uma, "one")
    await until(lambda: not room.bot.sender.busy and room.chat.outbox.waiting())
    looked = 0
    through = room.chat.outbox.due

    def count(*args, **kwargs):
        nonlocal looked
        looked += 1
        return through(*args, **kwargs)

    room.chat.outbox.due = count
    await asyncio.sleep(0.5)
    assert looked <= 4


@pytest.mark.parametrize("hours", [-3, 3], ids=["back", "forward"])
@pytest.mark.parametrize("fault", ["500", "429"])
def test_a_clock_that_is_set_mutes_no_chat(fault, hours, tmp_path, monkeypatch):
    """The attack: the wall clock jumps while a message waits for its next try."""
    step, now = timedelta(), clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + step)

    @in_room()
    async def check(room):
        nonlocal step
        calls = record(room)
        room.faults.script(fault, methods=["sendMessage"])
        say(room, room.uma, "one")
        await until(lambda: calls and not room.bot.sender.busy)
        step = timedelta(hours=hours)
        say(room, room.uma, "two")
        await until(lambda: [one.splitlines()[0] for one in texts(room, room.uma)[-2:]] == ["one", "two"])
        if fault == "429":
            assert calls[1].at - calls[0].at >= 1.0, "it asked us to wait"

    check(tmp_path)


def test_a_clock_that_is_set_back_lets_people_submit(tmp_path):
    @in_room(submits_per_minute=2)
    async def check(room):
        step, real = 0.0, room.world.clock
        room.world.clock = lambda: real() + step
        for _ in range(2):
            await room.ask(room.uma, "/submit -g 0 true")
        assert "2 submissions a minute" in (await room.ask(room.uma, "/submit -g 0 true"))[0].text.text
        step = -7200.0
        assert "#3" in (await room.ask(room.uma, "/submit -g 0 true"))[0].text.text

    check(tmp_path)


@in_room()
async def test_answers_come_before_alerts_and_alerts_before_edits(room):
    tap = room.people.world.new_tap(room.uma, room.world.chats[room.uma.id], "x")
    shown = room.said(room.uma)[0]
    calls = record(room)
    with room.chat.transaction():
        add = room.chat.outbox.add
        add(room.uma.id, "editMessageText", {"message_id": shown.message_id, "text": "newer"}, lane="edit")
        add(room.uma.id, "sendMessage", {"text": "alert 1"})
        add(room.uma.id, "sendMessage", {"text": "alert 2"})
        add(room.uma.id, "answerCallbackQuery", {"query": tap.id, "text": "", "alert": False}, lane="answer")
    await room.settle()
    assert [call.method for call in calls] == [
        "answerCallbackQuery", "sendMessage", "sendMessage", "editMessageText",
    ]  # fmt: skip
    assert [call.params.get("text") for call in calls[1:3]] == ["alert 1", "alert 2"]


@in_room()
async def test_a_file_that_hangs_holds_up_no_alert(room):
    await room.ask(room.uma, "/submit -g 0 python a.py")
    begin(room.chat.queue, 1, output=b"line\n" * 1000)
    said = (await room.ask(room.uma, "/log 1"))[-1]
    room.faults.script("hang_before", methods=["sendDocument"])
    room.people.tap(room.uma, None, said.message_id, data_of(said, "Whole log"))
    await until(lambda: room.faults.calls["sendDocument"])
    end(room.chat.queue, 1)
    room.bot.notifier.wake()
    await until(lambda: "✅ #1" in texts(room, room.uma)[-1])
    assert room.bot.sender.busy


# -- what is no longer of use ------------------------------------------------------------------------


@in_room()
async def test_a_stale_answer_to_a_button_is_dropped(room):
    calls = record(room)
    with room.chat.transaction():
        body = {"query": "1", "text": "", "alert": False}
        room.chat.outbox.add(room.uma.id, "answerCallbackQuery", body, lane="answer", lasts_s=-1)
    await room.settle()
    assert calls == []
    assert room.chat.outbox.waiting() == 0


@in_room()
async def test_of_several_edits_only_the_last_is_made(room):
    await room.ask(room.uma, "/submit python a.py")
    shown = (await room.ask(room.uma, "/queue"))[0]
    refresh = data_of(shown, "Refresh")
    room.faults.script(*["refused"] * 30, methods=["editMessageText", "answerCallbackQuery"])
    for name in "bcd":
        room.people.tap(room.uma, None, shown.message_id, refresh)
        await until(lambda: not room.chat.inbox.open() and not room.world.updates.pending())
        await room.ask(room.uma, f"/submit python {name}.py")
    room.faults.clear()
    calls = record(room)
    await until(lambda: not room.chat.outbox.waiting())
    assert [call.method for call in calls].count("editMessageText") == 1
    assert "3 waiting" in shown.text.text  # as it was at the last press


@in_room()
async def test_an_edit_that_changes_nothing_has_succeeded(room):
    await room.ask(room.uma, "/submit python a.py")
    shown = (await room.ask(room.uma, "/queue"))[0]
    old = dict(shown.reply_markup)
    calls = record(room)
    with room.chat.transaction():
        names = {"text": "text", "callback_data": "data", "style": "style"}
        rows = [[{names[key]: value for key, value in one.items()} for one in row] for row in old["inline_keyboard"]]
        body = {"message_id": shown.message_id, "keyboard": rows}
        room.chat.outbox.add(room.uma.id, "editMessageReplyMarkup", body, lane="edit")
    await room.settle()
    assert len(calls) == 1
    assert ["not modified" in one for one in refused(room)] == [True]
    assert room.chat.outbox.waiting() == 0


# -- refusals ----------------------------------------------------------------------------------------


@in_room()
async def test_html_that_is_refused_is_sent_as_plain_text_once(room):
    calls = record(room)
    refuse(room, "sendMessage", "can't parse entities: Unexpected end tag at byte offset 4")
    say(room, room.uma, "<b>bold</b> &amp; &lt;brave&gt;")
    await room.settle()
    assert texts(room, room.uma)[-1] == "bold & <brave>"
    assert len(calls) == 2
    assert "parse_mode" not in calls[1].params
    refused(room)


@in_room()
async def test_whatever_else_is_refused_is_sent_as_bare_words_and_then_put_aside(room):
    await room.ask(room.uma, "/submit python a.py")
    refuse(room, "sendMessage", "BUTTON_DATA_INVALID")
    await room.ask(room.uma, "/status 1")
    found = room.said(room.uma)[-1]
    assert "#1" in found.text.text
    assert labels(found) == []
    del room.world.chats[room.uma.id].messages[found.message_id]  # in bare words a.py is a link, for once
    refuse(room, "sendMessage", "no such thing", times=2)
    say(room, room.uma, "never")
    say(room, room.uma, "always")
    await room.settle()
    assert "never" not in texts(room, room.uma)
    assert texts(room, room.uma)[-1] == "always"
    assert "1 not delivered: refused: No such thing" in (await room.ask(room.ada, "/status"))[0].text.text
    refused(room)


@in_room()
async def test_a_message_whose_aim_is_gone_is_sent_without_it(room):
    said = (await room.ask(room.uma, "/submit python a.py"))[0]
    del room.world.chats[room.uma.id].messages[said.reply_to.message_id]
    begin(room.chat.queue, 1)
    await room.settle()
    assert "#1 started" in texts(room, room.uma)[-1]
    assert room.said(room.uma)[-1].reply_to is None
    refuse(room, "sendMessage", "message to be replied not found")
    end(room.chat.queue, 1)
    await room.settle()
    assert "#1 finished" in texts(room, room.uma)[-1]
    refused(room)


def in_group(**how):
    """A room with a group that is served; its id is the first a world gives."""
    return in_room(groups=(-5001, -1_000_000_005_001), **how)


def a_group(room, **how):
    group = room.world.add_group("Lab", [room.uma, room.una, room.ada], **how)
    assert room.chat.gate.serves(group.id)
    return group


NO_METHOD = {
    "Telegram's": Reply(404, b'{"ok": false, "error_code": 404, "description": "Not Found"}'),
    "a page": Reply(404, b"<html>Cannot POST</html>", "text/html"),
}


@pytest.mark.parametrize("answer", NO_METHOD)
def test_a_method_that_is_not_known_holds_up_no_other_edit(answer, tmp_path):
    @in_room()
    async def check(room):
        shown = (await room.ask(room.uma, "/whoami"))[0]
        left = instead(room, NO_METHOD[answer], "setMyCommands", times=1000)
        with room.chat.transaction():
            room.chat.set_menu(room.uma.id)
            body = {"message_id": shown.message_id, "text": "newer"}
            room.chat.outbox.add(room.uma.id, "editMessageText", body, lane="edit")
        await until(lambda: shown.text.text == "newer")
        await until(lambda: not room.chat.outbox.waiting())
        assert 1000 - len(left) == 5, "it was tried a few times, and then given up"
        assert not room._serving.done()

    check(tmp_path)


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (ApiError(413, "Request Entity Too Large"), "request entity too large"),
        ("CHAT_SEND_DOCS_FORBIDDEN", "chat_send_docs_forbidden"),
        ("not enough rights to send documents to the chat", "not enough rights to send documents to the chat"),
    ],
)
def test_who_asked_for_a_file_that_is_refused_hears_why(why, said, tmp_path):
    @in_group()
    async def check(room):
        group = a_group(room)
        await room.ask(room.uma, "/submit -g 0 python a.py", group)
        begin(room.chat.queue, 1, output=b"line\n" * 100)
        shown = (await room.ask(room.uma, "/log 1", group))[-1]
        refuse(room, "sendDocument", why)
        await room.tap(room.uma, shown, "Whole log")
        told = texts(room, room.uma, group)[-1]
        assert told.startswith("⚠️ I could not send the output of #1 as a file: ")
        assert said in told.lower()
        assert told.endswith(". On the box: nightshift log 1")
        assert room.chat.outbox.undeliverable("") == []
        refused(room)

    check(tmp_path)


@in_room()
async def test_who_asked_for_a_file_that_cannot_be_made_hears_it(room):
    await room.ask(room.uma, "/submit -g 0 python a.py")
    begin(room.chat.queue, 1, output=b"line\n" * 100)
    shown = (await room.ask(room.uma, "/log 1"))[-1]
    room.chat.queue.view.log = None  # whatever goes wrong there
    await room.tap(room.uma, shown, "Whole log")
    assert "I could not send the output of #1 as a file: it cannot be sent" in texts(room, room.uma)[-1]


@in_group()
async def test_a_file_for_a_topic_that_is_gone_comes_to_the_group(room):
    group = a_group(room, forum=True)
    room.people.add_topic(group, 77)
    await room.ask(room.uma, "/submit -g 0 python a.py", group, thread_id=77)
    begin(room.chat.queue, 1, output=b"line\n" * 100)
    shown = (await room.ask(room.uma, "/log 1", group, thread_id=77))[-1]
    group.topics.clear()
    await room.tap(room.uma, shown, "Whole log")
    assert room.said(room.uma, group)[-1].document is not None
    refused(room)


@in_group()
async def test_a_topic_that_is_gone_leaves_the_group(room):
    group = a_group(room, forum=True)
    room.people.add_topic(group, 77)
    (said,) = await room.ask(room.uma, "/submit python a.py", group, thread_id=77)
    assert said.thread_id == 77
    group.topics.clear()
    begin(room.chat.queue, 1)
    await room.settle()
    found = room.said(room.uma, group)[-1]
    assert "#1 started" in found.text.text
    assert found.thread_id is None
    assert refused(room) == ["sendMessage: Bad Request: message thread not found"]


@in_group()
async def test_thrown_out_of_the_group_its_owner_hears_it_in_private_once(room):
    group = a_group(room)
    await room.ask(room.uma, "/submit python a.py", group)
    room.people.kick_bot(room.una, group)
    begin(room.chat.queue, 1)
    await room.settle()
    assert "#1 started" in texts(room, room.uma)[-1]
    await room.ask(room.uma, "/whoami")
    await room.ask(room.uma, "/whoami")
    assert sum("#1 started" in one for one in texts(room, room.uma)) == 1
    status = (await room.ask(room.ada, "/status"))[0].text.text
    assert "1 not delivered: told in private: unreachable: bot was kicked from the group chat" in status
    room.people.add_bot(room.uma, group)
    end(room.chat.queue, 1)
    await room.settle()
    assert "#1 finished" in texts(room, room.uma, group)[-1]
    assert not any("started" in one for one in texts(room, room.uma, group))
    refused(room)


@in_room()
async def test_who_blocks_the_bot_hears_it_all_when_they_write_again(room):
    await room.ask(room.uma, "/submit python a.py")
    room.people.block(room.uma)
    begin(room.chat.queue, 1)
    await room.settle()
    end(room.chat.queue, 1, exit_code=3)
    await room.settle()
    status = (await room.ask(room.ada, "/status"))[0].text.text
    assert "📪 2 not delivered: unreachable: bot was blocked by the user" in status
    assert "not delivered" not in (await room.ask(room.vic, "/status"))[0].text.text
    before = len(texts(room, room.uma))
    room.people.unblock(room.uma)
    await room.ask(room.uma, "/whoami")
    heard = texts(room, room.uma)[before:]
    assert ["started" in one for one in heard] == [False, True, False]  # who asks is answered first
    assert "#1 failed on lab1 after 1 s · exit 3" in heard[2]
    assert "not delivered" not in (await room.ask(room.ada, "/status"))[0].text.text
    refused(room)


@in_room()
async def test_what_was_parked_days_ago_stays_there(room):
    await room.ask(room.uma, "/submit python a.py")
    room.people.block(room.uma)
    begin(room.chat.queue, 1)
    await room.settle()
    old = clock.text(clock.now() - timedelta(hours=25))
    room.chat.queue.store.execute("UPDATE messages SET created_at = ? WHERE undeliverable IS NOT NULL", (old,))
    room.people.unblock(room.uma)
    await room.ask(room.uma, "/whoami")
    assert not any("started" in one for one in texts(room, room.uma))
    refused(room)


@in_room()
async def test_who_may_no_longer_be_told_is_not(room):
    await room.ask(room.uma, "/submit python a.py")
    room.faults.outage = True
    begin(room.chat.queue, 1)
    room.bot.notifier.wake()
    await until(room.chat.outbox.waiting)
    room.chat.gate._by_settings.pop(room.uma.id)
    room.faults.clear()
    await until(lambda: not room.chat.outbox.waiting())
    assert not any("started" in one for one in texts(room, room.uma))


@in_group()
async def test_a_group_that_becomes_a_supergroup_is_followed_and_admins_hear_it_once(room):
    group = a_group(room)
    said = (await room.ask(room.uma, "/submit python a.py", group))[0]
    old = group.id
    room.faults.script(*["refused"] * 4, methods=["sendMessage", "editMessageReplyMarkup", "getUpdates"])
    begin(room.chat.queue, 1)
    with room.chat.transaction():
        body = {"message_id": said.message_id, "keyboard": []}
        room.chat.outbox.add(old, "editMessageReplyMarkup", body, lane="edit", person=room.uma.id)
    room.bot.notifier.wake()
    new = room.people.migrate(group)
    await until(lambda: texts(room, room.uma, new))
    await room.settle()
    assert ["#1 started" in one for one in texts(room, room.uma, new)] == [True]
    assert REPEAT not in texts(room, room.uma, new)[0]
    assert sum("became a supergroup" in one for one in texts(room, room.ada)) == 1
    await room.ask(room.uma, "/status 1", new)
    assert "#1" in texts(room, room.uma, new)[-1]
    room.world.refusals.clear()


@in_room()
async def test_a_group_that_is_not_served_is_left_even_if_it_moves_meanwhile(room):
    group = room.world.add_group("Strangers", [room.uma], bot_status="left")
    refuse(room, "leaveChat", migrated(-1_000_000_009_999), times=50)
    calls = record(room)
    room.people.add_bot(room.uma, group)
    await until(lambda: calls and not room.chat.outbox.waiting())
    assert [call.method for call in calls].count("leaveChat") == 1
    assert "I left the group Strangers" in texts(room, room.uma)[-1]
    room.world.refusals.clear()


# -- late, and again ---------------------------------------------------------------------------------


@in_room()
async def test_a_send_whose_end_is_not_known_is_made_again_and_says_so(room):
    room.read_s = 0.2
    await room.close()
    await room.open()
    await room.ask(room.uma, "/submit python a.py")
    for fault in ("hang_after", "cut"):
        before = len(texts(room, room.uma))
        room.faults.script(fault, methods=["sendMessage"])
        await room.ask(room.uma, "/whoami")
        await until(lambda: not room.chat.outbox.waiting())
        first, second = texts(room, room.uma)[before:]
        assert first == second.removesuffix(f"\n{REPEAT}")
        assert REPEAT not in first


@pytest.mark.parametrize("fault", ["500", "502", "refused", "429"])
def test_a_send_that_certainly_failed_is_made_again_without_a_word(fault, tmp_path):
    @in_room()
    async def check(room):
        before = len(texts(room, room.uma))
        room.faults.script(fault, fault, methods=["sendMessage"])
        await room.ask(room.uma, "/whoami")
        await until(lambda: not room.chat.outbox.waiting())
        (said,) = texts(room, room.uma)[before:]
        assert REPEAT not in said

    check(tmp_path)


@in_room()
async def test_what_comes_late_says_from_when(room):
    await room.ask(room.uma, "/submit python a.py")
    at = clock.now() - timedelta(hours=5)
    begin(room.chat.queue, 1)
    room.chat.queue.store.execute("UPDATE notices SET created_at = ? WHERE handled_at IS NULL", (clock.text(at),))
    await room.settle()
    assert texts(room, room.uma)[-1].endswith(f"from {at.astimezone():%a %H:%M}")
    end(room.chat.queue, 1)
    await room.settle()
    assert "from" not in texts(room, room.uma)[-1]


@in_room()
async def test_a_bot_that_dies_while_it_sends_says_it_again(room):
    await room.ask(room.uma, "/submit python a.py")
    room.faults.script("hang_after", methods=["sendMessage"])
    begin(room.chat.queue, 1)
    room.bot.notifier.wake()
    await until(lambda: "#1 started" in texts(room, room.uma)[-1])
    await room.die()
    await room.open()
    await until(lambda: sum("#1 started" in one for one in texts(room, room.uma)) == 2)
    assert texts(room, room.uma)[-1].endswith(REPEAT)
    assert room.said(room.uma)[-1].reply_to is not None


# -- the disk ----------------------------------------------------------------------------------------


@in_room()
async def test_a_disk_that_fills_up_while_a_message_is_sent_does_not_send_it_twice(room):
    disk = FullDisk(room)
    through = room.api._run

    async def run(token, method, params):
        if method == "sendMessage":
            disk.on = True  # from here on nothing can be marked
        return await through(token, method, params)

    room.api._run = run
    say(room, room.uma, "once")
    say(room, room.uma, "and then")
    await until(lambda: disk.refused >= 3)
    await asyncio.sleep(0.2)
    assert disk.refused < 30, "it must not spin"
    assert texts(room, room.uma)[-1] == "once"
    room.api._run = through
    disk.on = False
    await until(lambda: not room.chat.outbox.waiting())
    assert texts(room, room.uma)[-2:] == ["once", "and then"]


@in_room()
async def test_with_a_full_disk_everything_waits_and_nothing_is_lost(room):
    await room.ask(room.uma, "/submit python a.py")
    begin(room.chat.queue, 1)
    await room.settle()
    end(room.chat.queue, 1)
    disk = FullDisk(room)
    disk.on = True
    room.bot.notifier.wake()
    room.people.send_text(room.uma, None, "/submit python b.py")
    room.people.send_text(room.uma, None, "/frobnicate")
    room.people.send_text(room.una, None, "/whoami")
    await asyncio.sleep(0.3)
    assert not room._serving.done()
    assert disk.refused < 60
    disk.on = False
    await room.settle()
    said = "\n".join(texts(room, room.uma))
    assert said.count("#1 finished") == 1
    assert said.count("#2 queued") == 1
    assert said.count("There is no /frobnicate") == 1
    assert "user of lab1" in texts(room, room.una)[-1]
    assert room.chat.queue.jobs.count(*State) == 2


@in_room(submits_per_minute=3)
async def test_a_submission_that_has_to_wait_for_the_disk_counts_once(room):
    submit, tries = room.chat.queue.submit, []

    def full(*args):
        tries.append(args)
        raise routing.StoreError("The disk is full.")

    room.chat.queue.submit = full
    room.people.send_text(room.uma, None, "/submit python a.py")
    await until(lambda: len(tries) > 8)
    room.chat.queue.submit = submit
    await room.settle()
    assert "#1 queued" in "\n".join(texts(room, room.uma))


@in_room()
async def test_what_cannot_even_be_asked_for_is_put_aside(room):
    with room.chat.transaction():
        room.chat.outbox.add(room.uma.id, "sendPigeon", {}, person=room.uma.id)
        room.chat.outbox.add(room.uma.id, "sendMessage", {"keyboard": 3}, person=room.uma.id)
    say(room, room.uma, "after it")
    await room.settle()
    assert texts(room, room.uma)[-1] == "after it"
    assert "2 not delivered: refused: it cannot be sent" in (await room.ask(room.ada, "/status"))[0].text.text


@in_room()
async def test_a_forbidden_edit_is_dropped(room):
    refuse(room, "editMessageText", forbidden("bot was blocked by the user"))
    with room.chat.transaction():
        room.chat.outbox.add(room.uma.id, "editMessageText", {"message_id": 1, "text": "x"}, lane="edit")
    await room.settle()
    assert room.chat.outbox.undeliverable("") == []
    room.world.refusals.clear()


@in_room()
async def test_a_log_that_is_gone_is_said_to_be(room):
    await room.ask(room.uma, "/submit -g 0 python a.py")
    folder = begin(room.chat.queue, 1, output=b"line\n")
    said = (await room.ask(room.uma, "/log 1"))[-1]
    (folder / rundir.OUTPUT).unlink()
    await room.tap(room.uma, said, "Whole log")
    assert "no output of #1" in texts(room, room.uma)[-1]


# -- updates -----------------------------------------------------------------------------------------


@in_room()
async def test_an_update_is_handled_in_the_transaction_of_its_effect(room):
    """Whatever happens to us after it: what was done counts as done."""
    room.bot.dispatcher._close = lambda _: None
    for sent in ("/submit python a.py", "/status", "/kill 1", "/frobnicate", "/queue", "/log 1"):
        await room.ask(room.uma, sent)
        assert room.chat.inbox.open() == []
    asked = next(one for one in room.said(room.uma) if "Stop this job?" in one.text.text)
    await room.tap(room.uma, asked, "Yes, kill #1")
    assert room.chat.inbox.open() == []


@in_room()
async def test_an_effect_that_is_not_committed_is_made_by_the_next_bot_and_only_by_it(room):
    queue = room.chat.queue
    execute = queue.store.execute
    died = asyncio.Event()

    def dies(sql, values=()):
        if sql == "COMMIT" and queue.jobs.count(State.QUEUED):
            died.set()
            raise asyncio.CancelledError
        return execute(sql, values)

    queue.store.execute = dies
    room.people.send_text(room.uma, None, "/submit python a.py")
    await died.wait()
    await room.die()
    await room.open()
    await room.settle()
    assert room.chat.queue.jobs.count(State.QUEUED) == 1
    assert sum("#1 queued" in one for one in texts(room, room.uma)) == 1
