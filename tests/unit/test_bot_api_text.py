"""How texts are measured, cleaned and trimmed, and what is found in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.local_chat.bot_api.formatted_text import utf16_length
from bot.local_chat.bot_api.methods import ApiError
from tests.telegram.detect_entities import detect
from tests.telegram.limits import Limits
from tests.telegram.testing import Trial

LENGTHS = {
    "the longest": ("x" * 4096, None),
    "one more": ("x" * 4097, "message is too long"),
    "the longest of wide ones": ("😀" * 2048, None),
    "one wide one more": ("😀" * 2048 + "x", "message is too long"),
    "CJK counts once": ("算" * 4096, None),
    "empty": ("", "message text is empty"),
    "blank": (" \n ", "text must be non-empty"),
    "too many bytes before parsing": ("😀" * 8193, "text is too long"),
    "as many bytes as may be": ("😀" * 8192, "message is too long"),
    "lone surrogate": ("\ud800", "strings must be encoded in UTF-8"),
    "blanks at the end do not count": ("x" * 4096 + "\n\n", None),
}


@pytest.mark.parametrize("case", LENGTHS)
def test_length(case):
    text, complaint = LENGTHS[case]
    trial = Trial()
    if complaint is None:
        assert trial.send(text)["text"] == text.strip()
        assert not trial.world.refusals
    else:
        with pytest.raises(ApiError) as refused:
            trial.send(text)
        assert refused.value.description == f"Bad Request: {complaint}"
        assert [refusal.description for refusal in trial.world.refusals] == [f"Bad Request: {complaint}"]
        assert len(trial.chat.messages) == 1


def test_markup_does_not_count():
    trial = Trial()
    sent = trial.send("<b>" + "&lt;" * 4096 + "</b>", parse_mode="HTML")
    assert sent["text"] == "<" * 4096
    with pytest.raises(ApiError, match="message is too long"):
        trial.send("<b>" + "&lt;" * 4097 + "</b>", parse_mode="html")


@given(st.text(st.sampled_from("a😀算\n "), min_size=1, max_size=60))
def test_a_limit_is_reached_exactly_where_utf16_says(text):
    trial = Trial(limits=Limits(text=20))
    kept = text.strip(" \n")
    if not kept:
        return
    if utf16_length(kept) <= 20:
        assert trial.send(text)["text"] == kept
    else:
        with pytest.raises(ApiError, match="message is too long"):
            trial.send(text)


MODES = {"": True, "HTML": True, "none": True, "MarkdownV2": False, "Markdown": False, "xml": False}


@pytest.mark.parametrize("mode", MODES)
def test_parse_modes(mode):
    trial = Trial()
    if MODES[mode]:
        assert trial.send("x", parse_mode=mode)["text"] == "x"
    else:
        with pytest.raises(ApiError, match="unsupported parse_mode"):
            trial.send("x", parse_mode=mode)


CLEANED = {
    "a\x00b\x1bc\td": "a b c d",
    "a\r\nb": "a\nb",
    "a\u202eb\u2028c": "abc",
    "  x  ": "x",
}


@pytest.mark.parametrize("source", CLEANED)
def test_cleaning(source):
    assert Trial().send(source)["text"] == CLEANED[source]


def bold(offset, length):
    return {"type": "bold", "offset": offset, "length": length}


GIVEN = {
    "as given": ("abc", [bold(1, 1)], [bold(1, 1)]),
    "moved by what is taken out": ("\rabc", [bold(2, 1)], [bold(1, 1)]),
    "cut where the text ends": ("ab  ", [bold(1, 3)], [bold(1, 1)]),
    "leading blanks stay before an entity": (" a", [bold(0, 2)], [bold(0, 2)]),
    "what Telegram finds itself is not believed": ("abc", [{"type": "url", "offset": 0, "length": 3}], None),
    "a link": (
        "ab",
        [{"type": "text_link", "offset": 0, "length": 1, "url": "a.bc"}],
        [{"type": "text_link", "offset": 0, "length": 1, "url": "http://a.bc/"}],
    ),
    "a person": (
        "ab",
        [{"type": "text_mention", "offset": 0, "length": 1, "user": {"id": 1001}}],
        [
            {
                "type": "text_mention",
                "offset": 0,
                "length": 1,
                "user": {"id": 1001, "is_bot": False, "first_name": "Ada", "username": "ada"},
            }
        ],
    ),
    "nobody": ("ab", [{"type": "text_mention", "offset": 0, "length": 1, "user": {"id": 9}}], None),
    "a language": (
        "ab",
        [{"type": "pre", "offset": 0, "length": 2, "language": "c"}],
        [{"type": "pre", "offset": 0, "length": 2, "language": "c"}],
    ),
    "an emoji": (
        "ab",
        [{"type": "custom_emoji", "offset": 0, "length": 2, "custom_emoji_id": "5"}],
        [{"type": "custom_emoji", "offset": 0, "length": 2, "custom_emoji_id": "5"}],
    ),
    "no list": ("ab", {"type": "bold"}, None),
}


@pytest.mark.parametrize("case", GIVEN)
def test_entities_given_with_the_text(case):
    text, entities, wanted = GIVEN[case]
    assert Trial().send(text, entities=entities).get("entities") == wanted


WRONG = {
    "not an object": ([1], "can't parse MessageEntity: expected an Object"),
    "no offset": ([{"type": "bold", "length": 1}], "can't parse MessageEntity: Can't find field \"offset\""),
    "no number": ([bold("x", 1)], 'can\'t parse MessageEntity: Field "offset" must be a valid Number'),
    "a list": ([bold([1], 1)], 'can\'t parse MessageEntity: Field "offset" must be of type Number'),
    "unknown": ([{"type": "x", "offset": 0, "length": 1}], "can't parse MessageEntity: Unsupported type specified"),
    "negative": ([bold(-1, 1)], "receive an entity with incorrect offset -1"),
    "beyond": ([bold(9, 1)], "entity begins after the end of the text at UTF-16 offset 9"),
    "ends beyond": (
        [bold(0, 9)],
        "entity beginning at UTF-16 offset 0 ends after the end of the text at UTF-16 offset 9",
    ),
    "at the end": (
        [bold(4, 1)],
        "entity beginning at UTF-16 offset 4 ends after the end of the text at UTF-16 offset 5",
    ),
    "in a symbol": ([bold(1, 2)], "entity begins in a middle of a UTF-16 symbol at UTF-16 offset 1"),
    "ends in a symbol": ([bold(0, 1)], "entity beginning at UTF-16 offset 0 ends in a middle of a UTF-16 symbol"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_entities(case):
    entities, complaint = WRONG[case]
    with pytest.raises(ApiError) as refused:
        Trial().send("😀ab", entities=entities)
    assert refused.value.description == f"Bad Request: {complaint}"


def test_entities_that_are_no_json():
    with pytest.raises(ApiError, match="can't parse entities JSON object"):
        Trial().send("x", entities="{")


FOUND = {
    "/start now": [("bot_command", 0, 6)],
    "😀 /log@a_bot": [("bot_command", 3, 10)],
    "a/b /c/d": [],
    "see https://wandb.ai/x.": [("url", 4, 18)],
    "http://localhost:1 is none": [],
    "@ada and #run": [("mention", 0, 4), ("hashtag", 9, 4)],
    "ada@example.org": [("email", 0, 15)],
    "#12": [],
}


@pytest.mark.parametrize("text", FOUND)
def test_what_is_found_in_a_text(text):
    assert [(entity.type, entity.offset, entity.length) for entity in detect(text, [])] == FOUND[text]


def test_nothing_is_found_inside_code():
    sent = Trial().send("<code>/status</code> /log", parse_mode="HTML")
    assert [entity["type"] for entity in sent["entities"]] == ["code", "bot_command"]
