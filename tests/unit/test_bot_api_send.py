"""Where the bot may write, replies, topics, files."""

import struct

import pytest

from bot.local_chat.bot_api.files import Upload
from bot.local_chat.bot_api.methods import ApiError
from tests.telegram.limits import Limits
from tests.telegram.objects import ADMINISTRATOR, KICKED, LEFT
from tests.telegram.photo import dimensions
from tests.telegram.testing import Trial


def refused(act):
    with pytest.raises(ApiError) as refusal:
        act()
    return refusal.value.code, refusal.value.description.partition(": ")[2]


def test_a_message_comes_back_as_it_is_kept():
    trial = Trial()
    sent = trial.send("hi", disable_notification=True, link_preview_options={"is_disabled": True}, unknown="ignored")
    assert sent == {
        "message_id": 2,
        "chat": {"id": 1001, "type": "private", "first_name": "Ada", "username": "ada"},
        "date": 1_800_000_000,
        "from": trial.world.bot.to_json(),
        "text": "hi",
        "link_preview_options": {"is_disabled": True},
    }
    event = trial.world.events.after()[-1]
    assert (event.kind, event.chat_id, event.by_bot, event.data["silent"]) == ("message", 1001, True, True)
    assert trial.waiting() == []


WHERE = {
    "nobody": (lambda trial: 77, 400, "chat not found"),
    "no number": (lambda trial: "ada", 400, "chat not found"),
    "a person's name": (lambda trial: "@ada", 400, "chat not found"),
    "nothing": (lambda trial: "", 400, "chat_id is empty"),
    "a stranger": (
        lambda trial: trial.world.add_user("Bo").id,
        403,
        "bot can't initiate conversation with a user",
    ),
    "a bot": (
        lambda trial: trial.world.add_user("Robo", is_bot=True).id,
        403,
        "the bot can't send messages to the bot",
    ),
    "blocked": (lambda trial: trial.people.block(trial.ada) or trial.ada.id, 403, "bot was blocked by the user"),
    "not in the group": (
        lambda trial: trial.world.add_group(bot_status=LEFT).id,
        403,
        "bot is not a member of the group chat",
    ),
    "kicked": (
        lambda trial: trial.world.add_group(supergroup=True, bot_status=KICKED).id,
        403,
        "bot was kicked from the supergroup chat",
    ),
    "out of the channel": (
        lambda trial: trial.world.add_channel(bot_status=LEFT).id,
        403,
        "bot is not a member of the channel chat",
    ),
    "no rights in the channel": (
        lambda trial: trial.world.add_channel().id,
        400,
        "need administrator rights in the channel chat",
    ),
}


@pytest.mark.parametrize("case", WHERE)
@pytest.mark.parametrize("method", ["sendMessage", "sendDocument", "sendChatAction"])
def test_where_the_bot_may_not_write(case, method):
    where, code, text = WHERE[case]
    trial = Trial()
    params = {"text": "x", "action": "typing", "chat_id": where(trial)}
    files = {"document": Upload("a.txt", b"x")}
    assert refused(lambda: trial.ask(method, files=files, **params)) == (code, text)
    assert trial.world.refusals[-1].method == method
    assert trial.world.refusals[-1].params["chat_id"] == str(params["chat_id"])


def test_where_it_may():
    trial = Trial()
    public = trial.world.add_group(supergroup=True, username="Lab_Group")
    channel = trial.world.add_channel(bot_status=ADMINISTRATOR)
    assert str(public.id).startswith("-100")
    assert trial.send(chat_id="@lab_group")["chat"]["id"] == public.id
    posted = trial.send(chat_id=channel.id)
    assert "from" not in posted
    assert posted["sender_chat"]["id"] == channel.id


def test_an_unblocked_bot_writes_again():
    trial = Trial()
    trial.people.block(trial.ada)
    trial.people.unblock(trial.ada)
    assert trial.send()["text"] == "hello"


def test_a_migrated_group_names_its_successor():
    trial = Trial()
    old = trial.world.add_group(members=[trial.ada])
    new = trial.people.migrate(old)
    with pytest.raises(ApiError) as refusal:
        trial.send(chat_id=old.id)
    assert refusal.value.description == "Bad Request: group chat was upgraded to a supergroup chat"
    assert refusal.value.parameters == {"migrate_to_chat_id": new.id}
    assert trial.ask("getChat", chat_id=old.id)["id"] == old.id
    assert trial.send(chat_id=new.id)["chat"] == {"id": new.id, "type": "supergroup", "title": "Lab"}


def test_replies():
    trial = Trial()
    first = trial.send("first")
    second = trial.send("second", reply_parameters={"message_id": first["message_id"]})
    third = trial.send("third", reply_to_message_id=second["message_id"])
    assert third["reply_to_message"]["text"] == "second"
    assert "reply_to_message" not in third["reply_to_message"]
    lone = trial.send("x", reply_parameters={"message_id": 99, "allow_sending_without_reply": True})
    assert "reply_to_message" not in lone


REPLIES = {
    "missing": ({"message_id": 99}, "message to be replied not found"),
    "no id": ({"quote": "x"}, 'can\'t find field "message_id"'),
    "no object": ([1], "object expected as reply parameters"),
    "no number": ({"message_id": "x"}, 'field "message_id" must be a valid Number'),
    "no flag": ({"message_id": 1, "allow_sending_without_reply": 1}, "must be of type Boolean"),
    "elsewhere": ({"message_id": 1, "chat_id": 5}, "chat not found"),
}


@pytest.mark.parametrize("case", REPLIES)
def test_wrong_replies(case):
    given, complaint = REPLIES[case]
    code, text = refused(lambda: Trial().send(reply_parameters=given))
    assert (code, complaint in text) == (400, True)


def test_a_reply_to_another_chat_shows_no_message_of_this_one():
    trial = Trial()
    bo = trial.world.add_user("Bo")
    trial.people.start(bo)
    trial.people.send_text(bo, None, "more")
    sent = trial.send(reply_parameters={"message_id": 2, "chat_id": bo.id})
    assert "reply_to_message" not in sent


def test_topics():
    trial = Trial()
    forum, plain = trial.world.add_group(forum=True), trial.world.add_group(supergroup=True)
    trial.people.add_topic(forum, 5)
    sent = trial.send(chat_id=forum.id, message_thread_id=5)
    assert (sent["message_thread_id"], sent["is_topic_message"]) == (5, True)
    assert "message_thread_id" not in trial.send(chat_id=plain.id, message_thread_id=5)
    assert "is_topic_message" not in trial.send(chat_id=forum.id)
    for chat_id, thread in ((forum.id, 6), (forum.id, 1), (trial.ada.id, 6)):
        with pytest.raises(ApiError, match="message thread not found"):
            trial.send(chat_id=chat_id, message_thread_id=thread)


WRONG_TYPES = {
    "message_thread_id": ("x", "invalid message_thread_id specified"),
    "disable_notification": ("maybe", "invalid disable_notification specified"),
    "link_preview_options": ("[]", "object expected as link preview options"),
    "reply_to_message_id": ("1.5", "invalid reply_to_message_id specified"),
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_wrong_types(name):
    value, complaint = WRONG_TYPES[name]
    assert refused(lambda: Trial().send(**{name: value})) == (400, complaint)


def test_link_previews():
    trial = Trial()
    assert trial.send(disable_web_page_preview=True)["link_preview_options"] == {"is_disabled": True}
    shown = trial.send(link_preview_options={"url": "https://a.bc/", "show_above_text": True, "is_disabled": False})
    assert shown["link_preview_options"] == {"url": "https://a.bc/", "show_above_text": True}


def picture(width, height):
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\0" * 20


SIZES = {
    "png": (picture(7, 5), (7, 5)),
    "gif": (b"GIF89a" + struct.pack("<HH", 7, 5), (7, 5)),
    "jpeg": (
        b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08" + struct.pack(">HH", 5, 7) + b"\0" * 9,
        (7, 5),
    ),
    "jpeg without a size": (b"\xff\xd8\xff\xe0\x00\x04ab" + b"\0" * 20, None),
    "cut": (picture(7, 5)[:18], None),
    "text": (b"hello", None),
}


@pytest.mark.parametrize("case", SIZES)
def test_picture_sizes(case):
    data, size = SIZES[case]
    assert dimensions(data) == size


def test_documents_go_up_and_are_found_again():
    trial = Trial()
    upload = Upload("train.log", b"loss 0.1", "text/plain")
    caption = "<b>log</b>"
    sent = trial.ask(
        "sendDocument", files={"document": upload}, chat_id=trial.ada.id, caption=caption, parse_mode="HTML"
    )
    document = sent["document"]
    assert (document["file_name"], document["mime_type"], document["file_size"]) == ("train.log", "text/plain", 8)
    assert (sent["caption"], sent["caption_entities"][0]["type"]) == ("log", "bold")
    again = trial.ask("sendDocument", chat_id=trial.ada.id, document=document["file_id"])
    assert again["document"] == document
    attached = trial.ask("sendDocument", files={"x": upload}, chat_id=trial.ada.id, document="attach://x")
    assert attached["document"]["file_unique_id"] == document["file_unique_id"]
    told = trial.ask("getFile", file_id=document["file_id"])
    assert told["file_path"] == "documents/file_1.log"
    stored = trial.world.files.at(told["file_path"])
    assert stored is not None
    assert stored.data == b"loss 0.1"


def test_photos_tell_their_size():
    trial = Trial()
    sent = trial.ask("sendPhoto", files={"photo": Upload("p.png", picture(7, 5))}, chat_id=trial.ada.id)
    assert (sent["photo"][0]["width"], sent["photo"][0]["height"]) == (7, 5)


SMALL = Limits(upload_bytes=1000, photo_bytes=100, download_bytes=50, caption=10)
FILES = {
    "too big": ("sendDocument", b"x" * 1001, {}, 413, ""),
    "empty": ("sendDocument", b"", {}, 400, "file must be non-empty"),
    "caption": ("sendDocument", b"x", {"caption": "x" * 11}, 400, "message caption is too long"),
    "wide caption": ("sendDocument", b"x", {"caption": "😀" * 5 + "x"}, 400, "message caption is too long"),
    "bad caption": ("sendDocument", b"x", {"caption": "<", "parse_mode": "HTML"}, 400, "can't parse entities: "),
    "none": ("sendDocument", None, {}, 400, "there is no document in the request"),
    "missing part": ("sendPhoto", None, {"photo": "attach://x"}, 400, "there is no photo in the request"),
    "unknown id": ("sendDocument", None, {"document": "x"}, 400, "wrong file identifier/HTTP URL specified"),
    "by url": ("sendPhoto", None, {"photo": "https://a.bc/x.png"}, 400, "failed to get HTTP URL content"),
    "no picture": ("sendPhoto", b"hello", {}, 400, "IMAGE_PROCESS_FAILED"),
    "no size": ("sendPhoto", picture(0, 5), {}, 400, "IMAGE_PROCESS_FAILED"),
    "sides": ("sendPhoto", picture(9000, 1001), {}, 400, "PHOTO_INVALID_DIMENSIONS"),
    "steep": ("sendPhoto", picture(21, 1), {}, 400, "PHOTO_INVALID_DIMENSIONS"),
    "big photo": ("sendPhoto", picture(1, 1) + b"x" * 100, {}, 400, "is too big for a photo; the maximum size is 100"),
}


@pytest.mark.parametrize("case", FILES)
def test_refused_files(case):
    method, data, params, code, complaint = FILES[case]
    trial = Trial(limits=SMALL)
    files = {} if data is None else {method[4:].lower(): Upload("f", data)}
    got, text = refused(lambda: trial.ask(method, files=files, chat_id=trial.ada.id, **params))
    assert (got, complaint in text) == (code, True), text
    assert len(trial.chat.messages) == 1


def test_a_file_may_be_exactly_as_big_as_allowed():
    trial = Trial(limits=SMALL)
    sent = trial.ask("sendDocument", files={"document": Upload("f", b"x" * 1000)}, chat_id=trial.ada.id)
    assert sent["document"]["file_size"] == 1000
    sent = trial.ask("sendPhoto", files={"photo": Upload("f", picture(20, 1).ljust(100))}, chat_id=trial.ada.id)
    assert sent["photo"][0]["file_size"] == 100
    sent = trial.ask("sendPhoto", files={"photo": Upload("f", picture(9000, 1000))}, chat_id=trial.ada.id)
    assert sent["photo"][0]["width"] == 9000
    small = trial.people.send_document(trial.ada, None, "f", b"x" * 50).document
    assert small is not None
    assert trial.ask("getFile", file_id=small.file_id)["file_size"] == 50
    both = {"document": Upload("f", b"x" * 501), "other": Upload("f", b"x" * 500)}
    assert refused(lambda: trial.ask("sendDocument", files=both, chat_id=trial.ada.id))[0] == 413


def test_a_document_is_no_photo():
    trial = Trial()
    sent = trial.ask("sendDocument", files={"document": Upload("p.png", picture(1, 1))}, chat_id=trial.ada.id)
    told = refused(lambda: trial.ask("sendPhoto", chat_id=trial.ada.id, photo=sent["document"]["file_id"]))
    assert told == (400, "can't use file of type Document as Photo")


def test_get_file_refusals():
    trial = Trial(limits=SMALL)
    big = trial.people.send_document(trial.ada, None, "big.bin", b"x" * 51)
    assert big.document is not None
    assert refused(lambda: trial.ask("getFile", file_id=big.document.file_id)) == (400, "file is too big")
    assert refused(lambda: trial.ask("getFile", file_id="x")) == (400, "invalid file_id")
    assert refused(lambda: trial.ask("getFile")) == (400, "file_id not specified")


def test_old_files_make_room():
    trial = Trial(limits=Limits(kept_file_bytes=100))
    first = trial.people.send_document(trial.ada, None, "a", b"x" * 60).document
    second = trial.people.send_document(trial.ada, None, "b", b"y" * 60).document
    assert first is not None
    assert second is not None
    assert trial.world.files.get(first.file_id) is None
    assert trial.world.files.get(second.file_id) is second


def test_old_messages_make_room():
    trial = Trial(limits=Limits(kept_messages=3))
    sent = [trial.send(str(number))["message_id"] for number in range(5)]
    assert sent == [2, 3, 4, 5, 6]
    assert list(trial.chat.messages) == [4, 5, 6]
