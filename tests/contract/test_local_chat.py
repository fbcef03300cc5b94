"""The Bot API behind the page answers as the strict one does, wherever a correct bot can tell the difference."""

import asyncio
import json

import pytest

from bot.local_chat.bot_api.files import Upload
from bot.local_chat.bot_api.formatted_text import html_text, plain_text
from bot.local_chat.bot_api.in_process_request import LocalRequest
from bot.local_chat.bot_api.methods import METHODS, LocalBotApi
from bot.local_chat.bot_api.world import LocalWorld
from bot.outbound.sender import _CALLS
from bot.outbound.telegram_client import TelegramClient
from tests.telegram.api import BotApi
from tests.telegram.page_reading import check_page_shows_the_same, shown
from tests.telegram.testing import Trial, wire
from tests.telegram.world import World

NOW = 1_800_000_000.0
ADA = 7
NOT_ON_THE_PAGE = {
    "keyboard",
    "link_preview_options",
    "can_join_groups",
    "can_read_all_group_messages",
    "has_main_web_app",
}
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x07\x00\x00\x00\x05"
KEYS = {"inline_keyboard": [[{"text": "Kill", "callback_data": "k:1", "style": "danger"}]]}
CALLS = [
    ("getMe", {}),
    ("deleteWebhook", {}),
    ("getUpdates", {"timeout": 0, "allowed_updates": ["message"], "limit": 50}),
    ("sendMessage", {"text": "<b>one</b> /log\n", "parse_mode": "HTML", "reply_markup": KEYS}),
    (
        "sendMessage",
        {"text": " plain <b> \t", "disable_notification": True, "link_preview_options": {"is_disabled": True}},
    ),
    ("sendMessage", {"text": "re", "reply_parameters": {"message_id": 1}}),
    ("sendMessage", {"text": "re", "reply_parameters": {"message_id": 99}}),
    ("sendMessage", {"text": "re", "reply_parameters": {"message_id": 99, "allow_sending_without_reply": True}}),
    ("sendMessage", {"text": "x", "chat_id": -100}),
    ("sendMessage", {"text": "x" * 4097}),
    ("sendMessage", {"text": "  \n"}),
    ("sendMessage", {"text": "x", "reply_markup": {"inline_keyboard": []}}),
    ("sendDocument", {"caption": "c"}),
    ("sendDocument", {"caption": "c" * 1025}),
    ("sendPhoto", {"caption": "<i>p</i>", "parse_mode": "HTML", "reply_markup": KEYS}),
    ("editMessageText", {"message_id": 2, "text": "two", "reply_markup": KEYS}),
    ("editMessageText", {"message_id": 2, "text": "two", "reply_markup": KEYS}),
    ("editMessageText", {"message_id": 1, "text": "not mine"}),
    ("editMessageText", {"message_id": 99, "text": "gone"}),
    ("editMessageText", {"message_id": 9, "text": "no text there"}),
    ("editMessageCaption", {"message_id": 9, "caption": "new"}),
    ("editMessageCaption", {"message_id": 2, "caption": "no file there"}),
    ("editMessageReplyMarkup", {"message_id": 9}),
    ("editMessageReplyMarkup", {"message_id": 9}),
    ("answerCallbackQuery", {"callback_query_id": str(ADA << 32 | 1), "text": "ok", "show_alert": True}),
    ("answerCallbackQuery", {"callback_query_id": str(ADA << 32 | 1), "text": "again"}),
    ("answerCallbackQuery", {"callback_query_id": "1"}),
    ("setMessageReaction", {"message_id": 1, "reaction": [{"type": "emoji", "emoji": "👍"}]}),
    ("setMessageReaction", {"message_id": 99, "reaction": [{"type": "emoji", "emoji": "👍"}]}),
    ("setMyCommands", {"commands": [{"command": "log", "description": "d"}]}),
    ("setMyCommands", {"commands": [{"command": "x", "description": "d"}], "scope": {"type": "chat", "chat_id": ADA}}),
    ("getFile", {"file_id": "nothing"}),
    ("sendChatAction", {"chat_id": ADA, "action": "upload_document"}),
    ("sendChatAction", {"chat_id": -100, "action": "upload_document"}),
    ("leaveChat", {}),
    ("leaveChat", {"chat_id": -100}),
]


def answers(api):
    """Everything the API says to these calls, and the messages and commands that Ada sees afterwards."""
    world = api.world
    ada = world.users[ADA]
    world.write(ada, text=plain_text("/start"))
    world.tap(ada, 1, "k:1")
    files = {"document": Upload("a.log", b"log", "text/plain"), "photo": Upload("p.png", PNG, "image/png")}
    found = []
    for method, params in CALLS:
        reply = asyncio.run(api.call(world.token, method, wire({"chat_id": ADA, **params}), files))
        body = json.loads(reply.body)
        found.append((method, reply.status, reduced(body.get("result", body))))
    seen = [reduced(message.for_page()) for message in world.chats[ADA].messages.values()]
    events = [(event.kind, event.by_bot) for event in world.events.after()]
    return found, seen, world.commands_for(ada), events


def reduced(result):
    if not isinstance(result, dict):
        return result
    return {name: value for name, value in result.items() if name not in NOT_ON_THE_PAGE and value is not False}


def local_api():
    world = LocalWorld(clock=lambda: NOW)
    world.add_person("Ada", ADA)
    return LocalBotApi(world)


def strict_api():
    world = World(clock=lambda: NOW)
    world.add_user("Ada", user_id=ADA)
    return BotApi(world)


def test_every_call_is_answered_as_by_the_strict_api():
    local, strict = answers(local_api()), answers(strict_api())
    for mine, theirs in zip(local[0], strict[0], strict=True):
        assert mine == theirs
    assert local == strict


def test_everything_the_bot_calls_is_there_and_was_compared():
    called = {*_CALLS, "sendChatAction", "getMe", "getUpdates", "deleteWebhook", "getFile"}
    assert called == set(METHODS) == {method for method, _ in CALLS}


def test_a_method_that_is_not_there_is_refused():
    reply = asyncio.run(local_api().call("", "banChatMember", {}))
    assert (reply.status, b"no method banChatMember" in reply.body) == (400, True)


def test_a_file_goes_both_ways():
    async def scene():
        api = local_api()
        bot = TelegramClient(api.world.token, request=LocalRequest(api)).bot
        await bot.initialize()
        sent = await bot.send_document(ADA, b"content", filename="a.log")
        document = api.world.chats[ADA].messages[sent.message_id].document
        file = await bot.get_file(document.file_id)
        assert bytes(await file.download_as_bytearray()) == b"content"

    asyncio.run(scene())


def test_a_poll_waits_for_what_a_person_writes():
    async def scene():
        api = local_api()
        poll = asyncio.create_task(
            TelegramClient(api.world.token, request=LocalRequest(api)).bot.raw_updates(None, 30, [])
        )
        await asyncio.sleep(0.01)
        api.world.write(api.world.users[ADA], text=plain_text("hello"))
        (update,) = await poll
        assert update["message"]["text"] == "hello"

    asyncio.run(scene())


@pytest.mark.parametrize(
    "source",
    [
        "<b>a <i>b</i> <code>c</code> d</b> 😀 <u>e</u>",
        '<pre><code class="language-python">x &lt; 1</code></pre> after',
        "<pre>a <b>b</b></pre><code>/log</code> /log https://x.org/a. @ada #tag #12 a@b.org",
        "<blockquote expandable>q <b>/log</b></blockquote> <blockquote>r</blockquote>\n ",
        '<a href="https://x.org/">l</a> <s>m</s> <b></b>',
        "control \r\t\x00 characters \u202e here &amp;lt; &quot;",
    ],
)
def test_the_page_shows_a_text_as_telegram_does(source):
    sent = Trial().send(source, parse_mode="HTML")
    check_page_shows_the_same({"text": source}, sent)


def test_the_comparison_sees_a_difference():
    text = html_text("<b>a</b>b").text
    assert shown(text, html_text("<b>a</b>b").entities_json()) != shown(text, html_text("<b>ab</b>").entities_json())
