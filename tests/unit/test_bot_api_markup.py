"""Keyboards and links."""

import pytest

from bot.local_chat.bot_api.methods import ApiError
from tests.telegram import links
from tests.telegram.testing import Trial


def inline(*buttons):
    return {"inline_keyboard": [list(buttons)]}


def button(text="Log", **action):
    return {"text": text, **(action or {"callback_data": "l:12"})}


ACCEPTED = {
    "data": inline(button()),
    "64 bytes": inline(button(callback_data="é" * 32)),
    "url": inline(button(url="https://wandb.ai/run")),
    "a person": inline(button(url="tg://user?id=1001")),
    "styles": inline(button(style="danger", callback_data="k"), button(style="success", callback_data="s")),
    "copy": inline(button(copy_text={"text": "x" * 256})),
    "a hundred": {"inline_keyboard": [[button()] * 8] * 12 + [[button()] * 4]},
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted(case):
    trial = Trial()
    assert trial.send(reply_markup=ACCEPTED[case])["reply_markup"] == ACCEPTED[case]
    assert not trial.world.refusals


REFUSED = {
    "257 characters to copy": (inline(button(copy_text={"text": "x" * 257})), "BUTTON_COPY_TEXT_INVALID"),
    "65 bytes": (inline(button(callback_data="é" * 32 + "x")), "BUTTON_DATA_INVALID"),
    "nothing to do": (
        inline({"text": "x"}),
        "can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard",
    ),
    "empty data": (
        inline(button(callback_data="")),
        "can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard",
    ),
    "no text": (inline({"callback_data": "x"}), "can't parse inline keyboard button: Can't find field \"text\""),
    "empty text": (inline(button("")), "inline keyboard button text must be non-empty"),
    "text of the wrong type": (
        inline(button(["x"])),
        'can\'t parse inline keyboard button: Field "text" must be of type String',
    ),
    "no object": (inline("x"), "can't parse inline keyboard button: InlineKeyboardButton must be an Object"),
    "style": (
        inline(button(style="loud", callback_data="x")),
        "can't parse inline keyboard button: invalid button style specified",
    ),
    "local url": (
        inline(button(url="http://localhost:6006/")),
        "inline keyboard button URL 'http://localhost:6006/' is invalid: Wrong HTTP URL",
    ),
    "other scheme": (
        inline(button(url="ssh://host.lab")),
        "inline keyboard button URL 'ssh://host.lab' is invalid: Unsupported URL protocol",
    ),
    "101 buttons": ({"inline_keyboard": [[button()]] * 101}, "reply markup is too long"),
    "over 10 kB": ({"inline_keyboard": [[button("x" * 120)]] * 99}, "reply markup is too long"),
    "rows": (
        {"inline_keyboard": [button()]},
        'field "inline_keyboard" of the InlineKeyboardMarkup must be an Array of Arrays',
    ),
    "no array": ({"inline_keyboard": 1}, 'field "inline_keyboard" must be of type Array'),
    "array": ([], "object expected as reply markup"),
    "no JSON": ("{", "can't parse reply keyboard markup JSON object"),
    "surrogate": ('{"inline_keyboard": [[{"text": "\\ud800"}]]}', "strings must be encoded in UTF-8"),
    "keyboard row": ({"keyboard": ["x"]}, 'field "keyboard" must be an Array of Arrays'),
    "keyboard button": ({"keyboard": [[{}]]}, "can't parse keyboard button: Can't find field \"text\""),
    "empty keyboard button": ({"keyboard": [[""]]}, "keyboard button text must be non-empty"),
    "flag": ({"force_reply": "yes"}, 'field "force_reply" must be of type Boolean'),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    markup, complaint = REFUSED[case]
    trial = Trial()
    with pytest.raises(ApiError) as refused:
        trial.send(reply_markup=markup)
    assert refused.value.description == f"Bad Request: {complaint}"
    assert len(trial.chat.messages) == 1


@pytest.mark.parametrize(
    "markup", [{"keyboard": [["a", {"text": "b"}]]}, {"remove_keyboard": True}, {"force_reply": True}]
)
def test_other_keyboards_are_taken_but_not_shown_to_the_bot(markup):
    trial = Trial()
    sent = trial.send(reply_markup=markup)
    assert "reply_markup" not in sent
    assert trial.world.events.after()[-1].data["keyboard"]
    with pytest.raises(ApiError, match="message can't be edited"):
        trial.ask("editMessageText", chat_id=trial.ada.id, message_id=sent["message_id"], text="other")


@pytest.mark.parametrize("markup", [{}, {"inline_keyboard": []}, {"inline_keyboard": [[]]}, {"unknown": 1}])
def test_an_empty_keyboard_is_none(markup):
    assert "reply_markup" not in Trial().send(reply_markup=markup)


def test_only_an_inline_keyboard_can_be_edited_in():
    trial = Trial()
    sent = trial.send()
    with pytest.raises(ApiError, match="inline keyboard expected"):
        trial.ask(
            "editMessageReplyMarkup",
            chat_id=trial.ada.id,
            message_id=sent["message_id"],
            reply_markup={"remove_keyboard": True},
        )


LINKS = {
    "a.bc": "http://a.bc/",
    "HTTPS://A.bc:0443?q=1 2": "https://a.bc:443/?q=1%202",
    "http://user:x@a.bc/p#f": "http://user:x@a.bc/p#f",
    "http://[::1]:8000/": "http://[::1]:8000/",
    "http://a.bc:65535": "http://a.bc:65535/",
    "http://ex%20a.bc/": "http://ex%20a.bc/",
    "http://ä.de": "http://ä.de/",
    "tg://resolve?domain=x": "tg://resolve?domain=x",
    "tg:resolve": "tg://resolve",
    "tonsite://a.ton/x": "tonsite://a.ton/x",
}
NO_LINKS = {
    "localhost": "Wrong HTTP URL",
    "http://": "URL host is empty",
    "tg://": "URL host is empty",
    "tg://a.b": "Unallowed characters in URL host",
    "ftp://a.bc": "Unsupported URL protocol",
    "http://a.bc:x/": "Wrong port number specified in the URL",
    "http://[a.bc/": "Disallowed character in URL host",
    "http://a.bc:65536/": "Wrong port number specified in the URL",
    "http://a b.c/": "Disallowed character in URL host",
    "http://a{b@a.bc/": "Disallowed character in URL userinfo",
    "http://[::g]/": "Wrong IPv6 address specified in the URL",
}


@pytest.mark.parametrize("link", LINKS)
def test_links(link):
    assert links.checked(link) == LINKS[link]


@pytest.mark.parametrize("link", NO_LINKS)
def test_no_links(link):
    with pytest.raises(links.LinkError) as refused:
        links.checked(link)
    assert str(refused.value) == NO_LINKS[link]
    assert links.valid(link) is None
