"""Groups: off unless named; in those named only people who may; and when a group gets a new id."""

import asyncio
import json

from runner.model import State
from tests.room import in_room, labels
from tests.telegram.objects import Chat
from tests.telegram.updates import KINDS
from tests.traces import differences, traces
from tests.updates import a_message

LAB, SUBMIT = -5001, "/submit -g 0 true"


def text(messages):
    return "\n".join(message.text.text for message in messages)


def everybody(room):
    return (room.ada, room.uma, room.una, room.vic, room.sam)


def in_group(room, chat):
    return text(message for message in chat.messages.values() if message.outgoing)


@in_room()
async def test_groups_are_off_by_default(room):
    group = room.world.add_group("Lab", everybody(room))
    before = traces(room)
    for person in everybody(room):
        room.people.send_text(person, group, SUBMIT)
    await room.settle()
    assert differences(before, traces(room)) == {}


@in_room(groups=(LAB,))
async def test_in_a_group_that_is_named_people_who_may_do_and_strangers_do_not(room):
    group = room.world.add_group("Lab", everybody(room))
    said = await room.ask(room.uma, SUBMIT, group)
    assert "#1 queued in lab" in text(said)
    assert said[0].reply_to is not None
    before = traces(room)
    room.people.send_text(room.sam, group, SUBMIT)
    room.people.send_text(room.sam, group, f"/start {room.chat.people.invite('user', 'test')}")
    await room.settle()
    found = differences(before, traces(room))
    assert set(found) == {"pairings"}, found
    assert room.chat.gate.role_of(room.sam.id) is None


@in_room(groups=(LAB,))
async def test_what_becomes_of_a_job_is_told_where_it_was_asked_for(room):
    group = room.world.add_group("Lab", everybody(room))
    await room.ask(room.uma, SUBMIT, group)
    room.chat.queue.stop(1)
    await room.settle()
    assert "⏹ #1 " in in_group(room, group)
    assert "#1" not in text(room.said(room.uma))


@in_room(groups=(LAB,))
async def test_in_a_group_only_what_is_meant_for_the_bot_is_answered(room):
    group = room.world.add_group("Lab", everybody(room))
    room.world.reads_all_group_messages = True
    before = traces(room, ("messages", "jobs"))
    for words in ("status", "python train.py", "/status@other_bot", "/frobnicate", "what about job 1?"):
        room.people.send_text(room.uma, group, words)
    room.people.send_document(room.uma, group, "minutes.txt", b"one\ntwo\n")
    room.people.send_document(room.vic, group, "minutes.txt", b"one\ntwo\n", caption="for tomorrow")
    await room.settle()
    assert differences(before, traces(room, ("messages", "jobs"))) == {}
    assert "There is no /frobnicate" in text(await room.ask(room.uma, "/frobnicate@nightshift_bot", group))
    room.people.send_document(room.uma, group, "night.txt", b"one\ntwo\n", caption="/submit -g 0")
    await room.settle()
    assert labels(room.said(room.uma, group)[-1]) == ["2 jobs", "One script", "Neither"]


@in_room()
async def test_a_group_that_is_not_named_is_left_without_a_word(room):
    for person, told in ((room.sam, False), (room.ada, True)):
        group = room.world.add_group("A <b>&amp; group", everybody(room), bot_status="left")
        room.people.add_bot(person, group)
        await settled(room)
        assert group.bot_status == "left"
        assert in_group(room, group) == ""
        said = text(room.said(person)) if told else ""
        assert (f"NIGHTSHIFT_GROUPS={group.id}" in said) is told
        assert ("I left the group A <b>&amp; group" in said) is told
    assert room.said(room.sam) == []
    assert undeliverable(room) == []
    assert room.faults.calls["leaveChat"] == 2
    channel = room.world.add_channel("News", bot_status="left")
    room.people.add_bot(room.ada, channel, admin=True)
    await room.settle()
    assert channel.bot_status == "left"


@in_room()
async def test_a_strangers_invitations_leave_no_rows(room):
    """The attack: a group for each row that it would leave."""
    before = rows(room)
    room.faults.script("500", methods=["leaveChat"])
    groups = [room.world.add_group(f"Trap {number}", [room.sam], bot_status="left") for number in range(20)]
    for group in groups:
        room.people.add_bot(room.sam, group)
    await settled(room)
    assert {group.bot_status for group in groups} == {"left"}
    assert rows(room) == before
    assert room.said(room.sam) == []
    assert room.chat.gate.turned_away["a stranger"] >= len(groups)


def rows(room):
    tables = ("inbox", "messages", "audit", "people", "buttons")
    return {table: room.chat.queue.store.row(f"SELECT count(*) FROM {table}")[0] for table in tables}


async def settled(room):
    """Until also those groups are left of which nothing is stored."""
    await room.settle()
    if (task := room.bot.poller._unwanted._task) is not None:
        await asyncio.wait([task], timeout=40)
    await room.settle()


@in_room(groups=(LAB,))
async def test_a_group_that_is_named_is_stayed_in(room):
    group = room.world.add_group("Lab", everybody(room), bot_status="left")
    before = traces(room)
    del before["inbox"]  # that Ada added somebody is a message of hers
    room.people.add_bot(room.sam, group)
    room.people.kick_bot(room.sam, group)
    room.people.add_bot(room.ada, group, admin=True)
    await room.settle()
    assert differences(before, traces(room)) == {}
    assert group.bot_status == "administrator"


@in_room(groups=(LAB,))
async def test_a_group_that_grows_is_followed_as_its_message_says(room):
    group = room.world.add_group("Lab", everybody(room))
    await room.ask(room.uma, SUBMIT, group)
    new = room.people.migrate(group)
    await room.settle()
    assert f"its id is now {new.id} instead of {LAB}" in text(room.said(room.ada))
    room.chat.queue.stop(1)
    await room.settle()
    assert "⏹ #1 " in in_group(room, new)
    assert "#2 queued" in text(await room.ask(room.uma, SUBMIT, new))
    before = traces(room)
    room.people.send_text(room.sam, new, SUBMIT)
    await room.settle()
    assert differences(before, traces(room)) == {}
    assert moves(room) == [{"from": LAB, "to": new.id}]


def moves(room):
    return [row["data"] for row in room.chat.queue.audit.rows() if row["action"] == "group moved"]


def grow_unseen(room, group):
    """The group has a new id, and the bot has not heard of it."""
    number, members = room.world.supergroup_id(), dict(group.members)
    new = room.world.add_chat(Chat(id=number, type="supergroup", title="x", members=members, bot_status="member"))
    group.migrated_to = new.id
    return new


@in_room(groups=(LAB,))
async def test_a_group_that_grew_while_we_were_away_is_followed_when_a_notice_is_refused(room):
    group = room.world.add_group("Lab", everybody(room))
    await room.ask(room.uma, SUBMIT, group)
    new = grow_unseen(room, group)
    room.chat.queue.stop(1)
    await room.settle()
    assert "⏹ #1 " in in_group(room, new)
    room.people.raw_update("message", a_message(None, group.to_json(), "", migrate_to_chat_id=new.id))
    await room.settle()
    assert moves(room) == [{"from": LAB, "to": new.id}]
    assert text(room.said(room.ada)).count("became a supergroup") == 1
    room.world.refusals.clear()


@in_room()
async def test_a_group_that_is_not_served_is_not_followed(room):
    group = room.world.add_group("Other", everybody(room))
    before = traces(room)
    room.people.raw_update("message", a_message(None, group.to_json(), "", migrate_to_chat_id=-1000000000001))
    room.people.raw_update("message", a_message(room.ada.to_json(), group.to_json(), "", migrate_to_chat_id=LAB))
    room.people.migrate(group)
    await room.settle()
    assert differences(before, traces(room)) == {}


@in_room(groups=(LAB,))
async def test_what_waits_for_a_group_that_is_no_longer_named_goes_nowhere(room):
    group = room.world.add_group("Lab", everybody(room))
    room.faults.outage = True
    room.people.send_text(room.uma, group, SUBMIT)
    room.faults.outage = False
    await room.ask(room.uma, SUBMIT, group)
    room.chat.gate._groups = frozenset()
    new = grow_unseen(room, group)
    room.chat.say(group.id, room.uma.id, "a secret")
    room.chat.queue.stop(1)
    await room.settle()
    assert "secret" not in in_group(room, group) + in_group(room, new)
    assert undeliverable(room) == ["no longer allowed"]
    assert "⏹ #1 " in text(room.said(room.uma))
    assert moves(room) == []


def undeliverable(room):
    rows = room.chat.queue.store.rows("SELECT undeliverable FROM messages WHERE undeliverable NOT NULL")
    return [row["undeliverable"] for row in rows]


@in_room()
async def test_a_message_to_a_group_that_moved_and_is_not_served_is_parked(room):
    group = room.world.add_group("Other", everybody(room))
    grow_unseen(room, group)
    room.chat.outbox.add(group.id, "sendMessage", {"text": "a secret"})
    await room.settle()
    assert undeliverable(room) == ["unreachable: the group has become another one"]
    assert room.faults.calls["sendMessage"] <= 10
    room.world.refusals.clear()


@in_room(groups=(-1_000_000_000_000 + LAB,))
async def test_in_a_forum_the_answer_and_the_notices_are_in_the_topic(room):
    forum = room.world.add_group("Lab", everybody(room), forum=True)
    room.people.add_topic(forum, 42)
    said = await room.ask(room.uma, SUBMIT, forum, thread_id=42)
    assert [message.thread_id for message in said] == [42]
    shown = await room.tap(room.uma, said[0], "Details")
    assert [message.thread_id for message in shown] == [42]
    room.chat.queue.stop(1)
    await room.settle()
    assert "⏹ #1 " in forum.messages[max(forum.messages)].text.text
    assert forum.messages[max(forum.messages)].thread_id == 42
    said = await room.ask(room.una, SUBMIT, forum)
    assert [message.thread_id for message in said] == [None]
    assert room.chat.queue.jobs.count(State.QUEUED) == 1


@in_room(groups=(LAB,))
async def test_a_link_is_not_made_in_a_group(room):
    group = room.world.add_group("Lab", everybody(room))
    assert "in private" in text(await room.ask(room.ada, "/pair user", group))
    assert room.chat.people.invitations() == 0


@in_room(groups=(LAB,))
async def test_who_lost_their_role_hears_nothing_more_in_the_group_either(room):
    group = room.world.add_group("Lab", everybody(room))
    room.people.start(room.sam, room.chat.people.invite("user", "test"))
    await room.settle()
    await room.ask(room.sam, SUBMIT, group)
    room.chat.people.revoke(room.sam.id)
    before = in_group(room, group)
    room.chat.queue.stop(1)
    await room.settle()
    assert in_group(room, group) == before
    assert "⏹ #1 " in text(room.said(room.ada))


@in_room(groups=(LAB,))
async def test_service_messages_of_a_group_are_not_answered(room):
    group = room.world.add_group("Lab", everybody(room))
    pat = room.world.add_user("Pat")
    room.world.updates.allow(list(KINDS))
    before = json.dumps(traces(room, ("messages", "jobs", "audit")))
    room.people.join(pat, group)
    room.people.leave(pat, group)
    room.people.join(room.ada, group)
    pinned = a_message(room.sam.to_json(), group.to_json(), SUBMIT)
    services = ({"new_chat_title": "x"}, {"group_chat_created": True}, {"pinned_message": pinned})
    for service in (*services, {"dice": {"value": 1, "emoji": "🎲"}}):
        message = a_message(room.ada.to_json(), group.to_json(), "")
        message.pop("text")
        room.people.raw_update("message", {**message, **service})
    await room.settle()
    assert json.dumps(traces(room, ("messages", "jobs", "audit"))) == before
