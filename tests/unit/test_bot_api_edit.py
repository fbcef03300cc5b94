"""Edits, deletions, reactions, answers to taps."""

import pytest

from bot.local_chat.bot_api.files import Upload
from bot.local_chat.bot_api.methods import ApiError
from tests.telegram.limits import Limits
from tests.telegram.methods.editing import NOT_MODIFIED, REACTIONS
from tests.telegram.objects import ADMINISTRATOR
from tests.telegram.testing import Trial

BUTTONS = {"inline_keyboard": [[{"text": "Kill", "callback_data": "k:1"}]]}
OTHER = {"inline_keyboard": [[{"text": "Sure?", "callback_data": "k:2"}]]}


def refused(act):
    with pytest.raises(ApiError) as refusal:
        act()
    assert refusal.value.code == 400
    return refusal.value.description.removeprefix("Bad Request: ")


def edit(trial, sent, method="editMessageText", **params):
    return trial.ask(method, chat_id=trial.ada.id, message_id=sent["message_id"], **params)


def test_a_text_is_replaced_and_its_keyboard_goes():
    trial = Trial()
    sent = trial.send("one", reply_markup=BUTTONS)
    trial.clock.advance(5)
    changed = edit(trial, sent, text="<i>two</i>", parse_mode="HTML")
    assert (changed["text"], changed["entities"][0]["type"], changed["edit_date"]) == (
        "two",
        "italic",
        sent["date"] + 5,
    )
    assert "reply_markup" not in changed
    assert trial.world.events.after()[-1].kind == "edited"
    assert trial.waiting() == []


def test_a_keyboard_is_replaced_alone():
    trial = Trial()
    sent = trial.send("one", reply_markup=BUTTONS)
    changed = edit(trial, sent, "editMessageReplyMarkup", reply_markup=OTHER)
    assert (changed["text"], changed["reply_markup"]) == ("one", OTHER)
    assert "edit_date" not in changed, "whoever reads it sees the same words"
    assert "reply_markup" not in edit(trial, sent, "editMessageReplyMarkup")


def test_a_caption_is_replaced():
    trial = Trial()
    sent = trial.ask("sendDocument", files={"document": Upload("a", b"x")}, chat_id=trial.ada.id, caption="one")
    assert edit(trial, sent, "editMessageCaption", caption="two")["caption"] == "two"
    assert refused(lambda: edit(trial, sent, "editMessageCaption", caption="two")) == NOT_MODIFIED
    assert refused(lambda: edit(trial, sent, text="x")) == "there is no text in the message to edit"
    text = trial.send("x")
    assert refused(lambda: edit(trial, text, "editMessageCaption", caption="y")) == (
        "there is no caption in the message to edit"
    )


SAME = {
    "text": ("editMessageText", {"text": "<b>x</b>", "parse_mode": "HTML", "reply_markup": BUTTONS}),
    "text after trimming": ("editMessageText", {"text": "<b>x</b>\n", "parse_mode": "HTML", "reply_markup": BUTTONS}),
    "keyboard": ("editMessageReplyMarkup", {"reply_markup": BUTTONS}),
}


@pytest.mark.parametrize("case", SAME)
def test_not_modified(case):
    method, params = SAME[case]
    trial = Trial()
    sent = trial.send("<b>x</b>", parse_mode="HTML", reply_markup=BUTTONS)
    assert refused(lambda: edit(trial, sent, method, **params)) == NOT_MODIFIED
    assert edit(trial, sent, text="x", reply_markup=BUTTONS)["text"] == "x"


def test_what_cannot_be_edited():
    trial = Trial()
    theirs = trial.people.send_text(trial.ada, None, "mine")
    assert refused(lambda: edit(trial, {"message_id": theirs.message_id}, text="x")) == "message can't be edited"
    assert refused(lambda: edit(trial, {"message_id": 99}, text="x")) == "message to edit not found"
    assert refused(lambda: trial.ask("editMessageText", text="x")) == "message identifier is not specified"
    assert refused(lambda: trial.ask("editMessageText", text="x", message_id=1)) == "chat_id is empty"
    assert refused(lambda: edit(trial, trial.send(), text="")) == "message text is empty"
    assert refused(lambda: edit(trial, trial.send(), text="x" * 4097)) == "message is too long"
    assert refused(lambda: edit(trial, trial.send(), text="<b>", parse_mode="HTML")).startswith("can't parse entities")


def test_in_a_channel_the_bot_edits_its_own_posts_only():
    trial = Trial()
    channel = trial.world.add_channel(bot_status=ADMINISTRATOR)
    own = trial.send(chat_id=channel.id)
    theirs = trial.people.send_text(None, channel, "theirs")
    change = {"chat_id": channel.id, "text": "other"}
    assert trial.ask("editMessageText", message_id=own["message_id"], **change)["text"] == "other"
    complaint = refused(lambda: trial.ask("editMessageText", message_id=theirs.message_id, **change))
    assert complaint == "message can't be edited"


def test_deletions():
    trial = Trial()
    sent = trial.send()
    assert edit(trial, sent, "deleteMessage") is True
    assert (trial.world.events.after()[-1].kind, sent["message_id"] in trial.chat.messages) == ("deleted", False)
    assert refused(lambda: edit(trial, sent, "deleteMessage")) == "message to delete not found"
    theirs = trial.people.send_text(trial.ada, None, "mine")
    assert edit(trial, {"message_id": theirs.message_id}, "deleteMessage") is True
    old, older = trial.send(), trial.send()
    trial.clock.advance(48 * 3600)
    assert edit(trial, older, "deleteMessage") is True
    trial.clock.advance(1)
    assert refused(lambda: edit(trial, old, "deleteMessage")) == "message can't be deleted for everyone"
    assert refused(lambda: trial.ask("deleteMessage", message_id=1)) == "chat identifier is not specified"
    assert refused(lambda: trial.ask("deleteMessage", chat_id=1)) == "message identifier is not specified"


def test_others_messages_in_a_group_go_only_by_an_administrator():
    trial = Trial()
    group = trial.world.add_group(members=[trial.ada])
    theirs = trial.people.send_text(trial.ada, group, "x")
    where = {"chat_id": group.id, "message_id": theirs.message_id}
    assert refused(lambda: trial.ask("deleteMessage", **where)) == "message can't be deleted"
    group.bot_status = ADMINISTRATOR
    assert trial.ask("deleteMessage", **where) is True


def react(trial, reaction, message_id=1):
    return trial.ask("setMessageReaction", chat_id=trial.ada.id, message_id=message_id, reaction=reaction)


def emoji(*symbols):
    return [{"type": "emoji", "emoji": symbol} for symbol in symbols]


def test_reactions():
    trial = Trial()
    assert react(trial, emoji("👀")) is True
    assert trial.chat.messages[1].reactions == ["👀"]
    assert react(trial, emoji("❤\ufe0f")) is True
    assert react(trial, None) is True
    assert trial.chat.messages[1].reactions == []
    assert [event.data.get("reactions") for event in trial.world.events.after(kind="edited")] == [["👀"], ["❤"], None]
    assert len(REACTIONS) == 73


REACTIONS_REFUSED = {
    "unknown": (emoji("🦖"), "REACTION_INVALID"),
    "two": (emoji("👍", "👎"), "REACTIONS_TOO_MANY"),
    "no list": ({}, "expected an Array of ReactionType"),
    "no object": (["👍"], "can't parse ReactionType: expected an Object"),
    "paid": ([{"type": "paid"}], "can't parse ReactionType: invalid reaction type specified"),
}


@pytest.mark.parametrize("case", REACTIONS_REFUSED)
def test_reactions_refused(case):
    reaction, complaint = REACTIONS_REFUSED[case]
    assert refused(lambda: react(Trial(), reaction)) == complaint


def test_a_reaction_needs_a_message():
    assert refused(lambda: react(Trial(), emoji("👍"), 99)) == "message to react not found"


def test_a_tap_is_answered_once_and_in_time():
    trial = Trial(limits=Limits(callback_age_s=60))
    sent = trial.send(reply_markup=BUTTONS)
    tap = trial.people.tap(trial.ada, None, sent["message_id"], "k:1")
    query = trial.waiting()[0]["callback_query"]
    assert (query["id"], query["data"], query["from"]["id"]) == (tap.id, "k:1", trial.ada.id)
    assert query["message"]["reply_markup"] == BUTTONS
    assert trial.ask("answerCallbackQuery", callback_query_id=tap.id, text="on it", show_alert=True) is True
    assert trial.ask("answerCallbackQuery", callback_query_id=tap.id, text="again") is True
    answers = trial.world.events.after(kind="callback_answered")
    shown = {"id": tap.id, "user_id": 1001, "data": "k:1", "text": "on it", "show_alert": True, "url": ""}
    assert [event.data for event in answers] == [shown]
    trial.clock.advance(60)
    assert trial.ask("answerCallbackQuery", callback_query_id=tap.id) is True
    trial.clock.advance(1)
    too_old = "query is too old and response timeout expired or query ID is invalid"
    assert refused(lambda: trial.ask("answerCallbackQuery", callback_query_id=tap.id)) == too_old
    assert refused(lambda: trial.ask("answerCallbackQuery", callback_query_id="7")) == too_old


def test_an_answer_has_at_most_200_units():
    trial = Trial()
    tap = trial.people.tap(trial.ada, None, 1, "x")
    answer = {"callback_query_id": tap.id}
    assert refused(lambda: trial.ask("answerCallbackQuery", **answer, text="x" * 201)) == "MESSAGE_TOO_LONG"
    assert trial.ask("answerCallbackQuery", **answer, text="😀" * 100) is True


def test_forged_taps_arrive():
    trial = Trial()
    trial.people.tap(trial.ada, None, 99, "anything at all, and longer than sixty-four bytes if it must be so, why not")
    query = trial.waiting()[0]["callback_query"]
    assert query["message"] == {"message_id": 99, "chat": trial.chat.to_json(), "date": 0}
    assert query["data"].startswith("anything")
