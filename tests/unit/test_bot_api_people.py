"""What people do, and what the bot sees of it."""

import asyncio

import pytest

from bot.local_chat.page.actions import PersonError
from tests.telegram.objects import ADMINISTRATOR, LEFT
from tests.telegram.testing import Trial, follow
from tests.telegram.updates import KINDS


def kinds(trial):
    return [next(key for key in update if key != "update_id") for update in trial.waiting()]


def test_starting_opens_the_chat():
    trial = Trial()
    bo = trial.world.add_user("Bo", last_name="Li", language_code="de")
    trial.people.start(bo, "code_1")
    message = trial.waiting()[0]["message"]
    assert message["text"] == "/start code_1"
    assert message["entities"] == [{"type": "bot_command", "offset": 0, "length": 6}]
    assert message["from"] == {
        "id": bo.id,
        "is_bot": False,
        "first_name": "Bo",
        "last_name": "Li",
        "language_code": "de",
    }
    assert trial.send(chat_id=bo.id)["chat"]["last_name"] == "Li"


def test_ids_given_are_not_given_again():
    trial = Trial()
    assert [trial.world.add_user(user_id=number).id for number in (1002, None, 7, None)] == [1002, 1003, 7, 1004]


def test_marks_of_a_message():
    trial = Trial()
    robo = trial.world.add_user("Robo", is_bot=True)
    sent = trial.send("from the bot")
    bold = [{"type": "bold", "offset": 0, "length": 1}]
    trial.people.send_text(
        trial.ada, None, "x", entities=bold, reply_to=sent["message_id"], forward_from=robo, via_bot=robo.id
    )
    message = trial.waiting()[0]["message"]
    assert message["entities"] == bold
    assert message["reply_to_message"]["text"] == "from the bot"
    assert message["forward_origin"]["sender_user"]["id"] == robo.id
    assert message["via_bot"]["id"] == robo.id


def test_an_edit_arrives_as_one():
    trial = Trial()
    sent = trial.people.send_text(trial.ada, None, "/submit a")
    trial.clock.advance(3)
    trial.people.edit(trial.ada, None, sent.message_id, "/submit b")
    edited = trial.waiting()[1]["edited_message"]
    assert (edited["text"], edited["edit_date"] - edited["date"]) == ("/submit b", 3)
    assert edited["message_id"] == sent.message_id


def test_documents_and_photos_arrive():
    trial = Trial()
    trial.people.send_document(trial.ada, None, "jobs.txt", b"a\nb", caption="/batch", mime_type="text/plain")
    trial.people.send_photo(trial.ada, None, b"GIF89a\x02\x00\x03\x00", caption="look")
    document, photo = (update["message"] for update in trial.waiting())
    assert (document["document"]["file_name"], document["caption"]) == ("jobs.txt", "/batch")
    assert document["caption_entities"][0]["type"] == "bot_command"
    assert (photo["photo"][0]["width"], photo["caption"]) == (2, "look")


def test_a_person_may_fill_a_message():
    trial = Trial()
    trial.people.send_text(trial.ada, None, "x" * 4096)
    assert len(trial.waiting()[0]["message"]["text"]) == 4096


def test_exact_texts_go_unchanged():
    trial = Trial()
    hostile = "\x00\u202e" + "x" * 5000
    trial.people.send_text(trial.ada, None, hostile, exact=True)
    assert trial.waiting()[0]["message"]["text"] == hostile


IMPOSSIBLE = {
    "nothing": lambda trial: trial.people.send_text(trial.ada, None, " "),
    "too long": lambda trial: trial.people.send_text(trial.ada, None, "x" * 4097),
    "nobody": lambda trial: trial.people.send_text(5, None, "x"),
    "nowhere": lambda trial: trial.people.send_text(trial.ada, -5, "x"),
    "neither": lambda trial: trial.people.send_text(None, None, "x"),
    "not a member": lambda trial: trial.people.send_text(trial.ada, trial.world.add_group(), "x"),
    "blocked": lambda trial: trial.people.block(trial.ada) or trial.people.send_text(trial.ada, None, "x"),
    "not theirs": lambda trial: trial.people.edit(trial.ada, None, trial.send()["message_id"], "x"),
    "no message": lambda trial: trial.people.edit(trial.ada, None, 99, "x"),
    "no picture": lambda trial: trial.people.send_photo(trial.ada, None, b"x"),
    "no kind": lambda trial: trial.people.raw_update("nonsense", {}),
    "no group": lambda trial: trial.people.migrate(trial.chat),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible(case):
    trial = Trial()
    with pytest.raises(PersonError):
        IMPOSSIBLE[case](trial)
    assert [kind for kind in kinds(trial) if kind == "message"] == []


def test_in_another_name():
    trial = Trial()
    group, channel = trial.world.add_group(members=[trial.ada]), trial.world.add_channel()
    trial.people.send_text(trial.ada, group, "/kill 1", sender_chat=group)
    trial.people.send_text(trial.ada, group, "/kill 2", sender_chat=channel)
    anonymous, as_channel = (update["message"] for update in trial.waiting())
    assert (anonymous["from"]["id"], anonymous["sender_chat"]["id"]) == (1087968824, group.id)
    assert (as_channel["from"]["id"], as_channel["sender_chat"]["id"]) == (136817688, channel.id)


def test_channel_posts_have_no_sender():
    trial = Trial()
    channel = trial.world.add_channel()
    posted = trial.people.send_text(None, channel, "/kill 1")
    trial.people.edit(None, channel, posted.message_id, "/kill 2")
    assert kinds(trial) == ["channel_post", "edited_channel_post"]
    assert "from" not in trial.waiting()[0]["channel_post"]


SEEN = {
    "chatter": ("hello all", False),
    "command": ("/status", True),
    "command for this bot": ("/status@Nightshift_Bot", True),
    "command for another bot": ("/status@other_bot", False),
    "mention": ("what now, @nightshift_bot?", True),
}


@pytest.mark.parametrize("case", SEEN)
def test_group_privacy(case):
    text, seen = SEEN[case]
    trial = Trial()
    group = trial.world.add_group(members=[trial.ada])
    trial.people.send_text(trial.ada, group, text)
    assert bool(trial.waiting()) is seen
    as_admin = trial.world.add_group(members=[trial.ada], bot_status=ADMINISTRATOR)
    trial.people.send_text(trial.ada, as_admin, text)
    assert len(trial.waiting()) == 1 + seen


def test_replies_to_the_bot_are_seen():
    trial = Trial()
    group = trial.world.add_group(members=[trial.ada])
    sent = trial.send(chat_id=group.id)
    mine = trial.people.send_text(trial.ada, group, "chatter")
    trial.people.send_text(trial.ada, group, "to me", reply_to=mine.message_id)
    trial.people.send_text(trial.ada, group, "to you", reply_to=sent["message_id"])
    trial.people.send_text(trial.ada, group, "through you", via_bot=trial.world.bot)
    assert [update["message"]["text"] for update in trial.waiting()] == ["to you", "through you"]


def test_a_bot_that_reads_all_sees_all_and_one_outside_nothing():
    trial = Trial(reads_all_group_messages=True)
    trial.people.send_text(trial.ada, trial.world.add_group(members=[trial.ada]), "chatter")
    trial.people.send_text(trial.ada, trial.world.add_group(members=[trial.ada], bot_status=LEFT), "/status")
    assert len(trial.waiting()) == 1
    assert trial.ask("getMe")["can_read_all_group_messages"] is True


def test_blocking_is_told():
    trial = Trial()
    trial.people.block(trial.ada)
    trial.people.unblock(trial.ada)
    changes = [update["my_chat_member"] for update in trial.waiting()]
    assert [change["new_chat_member"]["status"] for change in changes] == ["kicked", "member"]
    assert changes[0]["new_chat_member"]["user"]["id"] == trial.world.bot.id
    assert changes[0]["from"]["id"] == trial.ada.id


def test_the_bot_comes_and_goes():
    trial = Trial()
    group = trial.world.add_group(members=[trial.ada], bot_status=LEFT)
    trial.people.add_bot(trial.ada, group)
    assert kinds(trial) == ["my_chat_member", "message"]
    assert trial.waiting()[1]["message"]["new_chat_members"][0]["id"] == trial.world.bot.id
    trial.people.add_bot(trial.ada, group, admin=True)
    assert trial.waiting()[2]["my_chat_member"]["new_chat_member"]["status"] == "administrator"
    trial.people.kick_bot(trial.ada, group)
    assert trial.waiting()[3]["my_chat_member"]["new_chat_member"]["status"] == "kicked"
    assert group.bot_status == "kicked"


def test_people_come_and_go():
    trial = Trial()
    bo = trial.world.add_user("Bo")
    group = trial.world.add_group(members=[trial.ada])
    trial.people.join(bo, group)
    trial.people.leave(bo, group)
    joined, left = (update["message"] for update in trial.waiting())
    assert (joined["new_chat_members"][0]["id"], left["left_chat_member"]["id"]) == (bo.id, bo.id)
    trial.world.updates.allow([*KINDS])
    group.bot_status = ADMINISTRATOR
    trial.people.join(bo, group)
    change = next(update["chat_member"] for update in trial.waiting() if "chat_member" in update)
    assert (change["old_chat_member"]["status"], change["new_chat_member"]["status"]) == ("left", "member")


def test_a_group_migrates_once_with_its_people():
    trial = Trial()
    old = trial.world.add_group(members=[trial.ada])
    new = trial.people.migrate(old)
    told = [update["message"] for update in trial.waiting()]
    assert (told[0]["chat"]["id"], told[0]["migrate_to_chat_id"]) == (old.id, new.id)
    assert (told[1]["chat"]["id"], told[1]["migrate_from_chat_id"]) == (new.id, old.id)
    assert str(new.id).startswith("-100")
    trial.people.send_text(trial.ada, new, "/status")
    with pytest.raises(PersonError):
        trial.people.send_text(trial.ada, old, "/status")
    with pytest.raises(PersonError):
        trial.people.migrate(old)


def test_other_kinds():
    trial = Trial()
    trial.people.inline_query(trial.ada, "x")
    trial.people.react(trial.ada, None, 1, "👍")
    assert kinds(trial) == ["inline_query"]
    trial.world.updates.allow(["message_reaction"])
    trial.people.react(trial.ada, None, 1, "👍")
    assert trial.waiting()[1]["message_reaction"]["new_reaction"] == [{"type": "emoji", "emoji": "👍"}]


def test_watchers_are_told_until_they_stop():
    trial = Trial()
    seen = []
    before = trial.world.events.last_number
    stop = trial.world.events.watch(lambda event: seen.append((event.kind, event.by_bot)))
    trial.send()
    trial.people.send_text(trial.ada, None, "x")
    trial.ask("sendChatAction", chat_id=trial.ada.id, action="typing")
    stop()
    trial.send()
    assert seen == [("message", True), ("message", False), ("chat_action", True)]
    assert trial.world.events.last_number == before + 4
    assert [event.kind for event in trial.world.events.after(before, "chat_action")] == ["chat_action"]


def test_events_can_be_followed():
    trial = Trial()
    trial.send("before")

    async def scene():
        from_start, from_now = follow(trial.world.events, after=0), follow(trial.world.events)
        assert (await anext(from_start)).data["text"] == "/start"
        assert (await anext(from_start)).data["text"] == "before"
        trial.people.send_text(trial.ada, None, "after")
        for following in (from_start, from_now):
            assert (await asyncio.wait_for(anext(following), 20)).data["text"] == "after"
            await following.aclose()

    asyncio.run(scene())
