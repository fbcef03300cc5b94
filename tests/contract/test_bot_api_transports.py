"""A real python-telegram-bot bot against the local Bot API: the same scenes inside the process and over HTTP."""

import asyncio
import io
import struct
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from telegram import (
    Bot,
    BotCommand,
    BotCommandScopeChat,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputFile,
    MessageOriginUser,
    ReactionTypeEmoji,
    ReplyParameters,
    Update,
)
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TimedOut,
)
from telegram.ext import Application, CallbackQueryHandler, CommandHandler, TypeHandler
from telegram.request import HTTPXRequest

from tests.telegram.api import BotApi
from tests.telegram.faults import Fault
from tests.telegram.http import HttpServer
from tests.telegram.in_process import FaultyRequest
from tests.telegram.limits import FloodLimits, Limits
from tests.telegram.testing import follow
from tests.telegram.updates import KINDS
from tests.telegram.world import World

KEYBOARD = InlineKeyboardMarkup([[InlineKeyboardButton("Kill", callback_data="k:1", style="danger")]])
PICTURE = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 7, 5)


@dataclass
class Scene:
    """A world, a person who has started the bot, and the settings of a bot that reaches it."""

    api: BotApi
    settings: dict
    make_request: object

    def __post_init__(self):
        self.world, self.people = self.api.world, self.api.people
        self.ada = self.world.add_user("Ada")
        self.people.start(self.ada)
        self.world.updates.clear()
        self.chat = self.world.chats[self.ada.id]

    def bot(self, token=None):
        requests = {"request": self.make_request(), "get_updates_request": self.make_request()}
        return Bot(token or self.world.token, **requests, **self.settings)

    def application(self):
        builder = Application.builder().token(self.world.token)
        builder.request(self.make_request()).get_updates_request(self.make_request())
        for name, value in self.settings.items():
            getattr(builder, name)(value)
        return builder.build()


@asynccontextmanager
async def in_process(api):
    yield Scene(api, {}, lambda: FaultyRequest(api))


@asynccontextmanager
async def over_http(api):
    async with HttpServer(api) as server:
        settings = {"base_url": server.base_url, "base_file_url": server.base_file_url}
        # a proxy in the environment must not come between
        yield Scene(api, settings, lambda: HTTPXRequest(httpx_kwargs={"trust_env": False}))


@pytest.fixture(params=[in_process, over_http], ids=["in_process", "over_http"])
def play(request, monkeypatch):
    """Runs a scene on either transport."""
    monkeypatch.setenv("PTB_TIMEDELTA", "true")

    def run(scene, **settings):
        async def whole():
            async with request.param(BotApi(World(**settings))) as served:
                await asyncio.wait_for(scene(served), 60)

        asyncio.run(whole())

    return run


def test_messages(play):
    async def scene(served):
        async with served.bot() as bot:
            sent = await bot.send_message(
                served.ada.id,
                "<b>job 1</b> &lt;done&gt; 😀",
                parse_mode="HTML",
                reply_markup=KEYBOARD,
                reply_parameters=ReplyParameters(1),
                disable_notification=True,
            )
            assert sent.text_html == "<b>job 1</b> &lt;done&gt; 😀"
            assert sent.reply_markup == KEYBOARD
            assert sent.reply_to_message.text == "/start"
            changed = await bot.edit_message_text("two", served.ada.id, sent.message_id)
            assert (changed.text, changed.reply_markup) == ("two", None)
            changed = await bot.edit_message_reply_markup(served.ada.id, sent.message_id, reply_markup=KEYBOARD)
            assert changed.reply_markup == KEYBOARD
            assert await bot.set_message_reaction(served.ada.id, 1, ReactionTypeEmoji("👀"))
            assert await bot.send_chat_action(served.ada.id, "typing")
            assert await bot.delete_message(served.ada.id, sent.message_id)
        assert not served.world.refusals
        kinds = [event.kind for event in served.world.events.after() if event.by_bot]
        assert kinds == ["message", "edited", "edited", "edited", "chat_action", "deleted"]

    play(scene)


def test_refusals_arrive_as_the_right_exceptions(play):
    async def scene(served):
        bo = served.world.add_user("Bo")
        group = served.world.add_group(members=[served.ada])
        async with served.bot() as bot:
            sent = await bot.send_message(served.ada.id, "one")
            refusals = [
                (bot.send_message(bo.id, "x"), Forbidden, "bot can't initiate conversation with a user"),
                (bot.send_message(5, "x"), BadRequest, "Chat not found"),
                (bot.send_message(served.ada.id, "<p>", parse_mode="HTML"), BadRequest, "Can't parse entities"),
                (bot.send_message(served.ada.id, "x" * 4097), BadRequest, "Message is too long"),
                (bot.edit_message_text("one", served.ada.id, sent.message_id), BadRequest, "Message is not modified"),
                (bot.edit_message_text("x", served.ada.id, 99), BadRequest, "Message to edit not found"),
                (bot.answer_callback_query("7"), BadRequest, "Query is too old"),
            ]
            for call, kind, text in refusals:
                with pytest.raises(kind, match=text):
                    await call
            served.people.block(served.ada)
            with pytest.raises(Forbidden, match="bot was blocked by the user"):
                await bot.send_message(served.ada.id, "x")
            new = served.people.migrate(group)
            with pytest.raises(ChatMigrated) as migrated:
                await bot.send_message(group.id, "x")
            assert migrated.value.new_chat_id == new.id
        assert len(served.world.refusals) == len(refusals) + 2

    play(scene)


def test_a_wrong_token(play):
    async def scene(served):
        for token in ("4242:wrong", "nonsense"):
            bot = served.bot(token)
            with pytest.raises(InvalidToken):
                await bot.get_me()
            await bot.request.shutdown()

    play(scene)


def test_taps(play):
    async def scene(served):
        async with served.bot() as bot:
            sent = await bot.send_message(served.ada.id, "sure?", reply_markup=KEYBOARD)
            tap = served.people.tap(served.ada, None, sent.message_id, "k:1")
            served.people.tap(served.ada, None, 99, "forged")
            tapped, forged = [update.callback_query for update in await bot.get_updates()]
            assert (tapped.data, tapped.from_user.id, tapped.message.text) == ("k:1", served.ada.id, "sure?")
            assert not forged.message.is_accessible
            assert await tapped.answer("killed", show_alert=True)
            await tapped.edit_message_text("killed")
        answered = served.world.events.after(kind="callback_answered")[0].data
        assert (answered["id"], answered["text"], answered["show_alert"]) == (tap.id, "killed", True)

    play(scene)


def test_files_both_ways(play):
    async def scene(served):
        served.people.send_document(served.ada, None, "jobs.txt", b"a\nb")
        async with served.bot() as bot:
            (update,) = await bot.get_updates()
            file = await update.message.document.get_file()
            assert bytes(await file.download_as_bytearray()) == b"a\nb"
            data = bytes(range(256)) * 1000
            sent = await bot.send_document(served.ada.id, InputFile(data, "läuft.log"), caption="the log")
            assert (sent.document.file_name, sent.document.file_size, sent.caption) == ("läuft.log", 256_000, "the log")
            back = io.BytesIO()
            await (await sent.document.get_file()).download_to_memory(back)
            assert back.getvalue() == data
            from_handle = await bot.send_document(served.ada.id, io.BytesIO(b"x"), filename="x.bin")
            assert from_handle.document.file_size == 1
            again = await bot.send_document(served.ada.id, sent.document.file_id)
            assert again.document == sent.document
            photo = await bot.send_photo(served.ada.id, PICTURE, caption="loss")
            assert (photo.photo[-1].width, photo.photo[-1].height) == (7, 5)
            with pytest.raises(BadRequest, match="Image_process_failed"):
                await bot.send_photo(served.ada.id, b"no picture")
            with pytest.raises(NetworkError, match="Request Entity Too Large"):
                await bot.send_document(served.ada.id, b"x" * 1_000_001)

    play(scene, limits=Limits(upload_bytes=1_000_000))


async def somebody_polls(served):
    while served.world.updates._waiter is None:
        await asyncio.sleep(0.005)


def test_a_long_poll_wakes_at_once_and_an_offset_confirms(play):
    async def scene(served):
        async with served.bot() as bot:
            waiting = asyncio.create_task(bot.get_updates(timeout=30))
            await somebody_polls(served)
            assert not waiting.done()
            served.people.send_text(served.ada, None, "/status")
            (update,) = await asyncio.wait_for(waiting, 20)  # of the 30 s that it would wait
            assert update.message.text == "/status"
            assert len(await bot.get_updates()) == 1
            assert await bot.get_updates(offset=update.update_id + 1) == ()
            assert served.world.updates.pending() == []

    play(scene)


def test_two_pollers(play):
    async def scene(served):
        async with served.bot() as first, served.bot() as second:
            ended = asyncio.create_task(first.get_updates(timeout=30))
            await somebody_polls(served)
            waiting = asyncio.create_task(second.get_updates(timeout=30))
            with pytest.raises(Conflict, match="terminated by other getUpdates request"):
                await ended
            served.people.send_text(served.ada, None, "x")
            assert len(await waiting) == 1

    play(scene)


def test_a_poller_that_goes_away_takes_nothing_with_it(play):
    async def scene(served):
        async with served.bot() as first, served.bot() as second:
            gone = asyncio.create_task(first.get_updates(timeout=30))
            await somebody_polls(served)
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
            served.people.send_text(served.ada, None, "x")
            assert len(await second.get_updates(timeout=30)) == 1

    play(scene)


def test_flood(play):
    async def scene(served):
        async with served.bot() as bot:
            await bot.send_message(served.ada.id, "1")
            with pytest.raises(RetryAfter) as refused:
                await bot.send_message(served.ada.id, "2")
            assert refused.value.retry_after.total_seconds() == 1

    play(scene, flood=FloodLimits(chat_burst=1))


FAULTS = {
    Fault.TOO_MANY_REQUESTS: (RetryAfter, 0),
    Fault.SERVER_ERROR: (NetworkError, 0),
    Fault.BAD_GATEWAY: (NetworkError, 0),
    Fault.HANG_BEFORE: (TimedOut, 0),
    Fault.HANG_AFTER: (TimedOut, 1),
    Fault.CUT: (NetworkError, 1),
    Fault.REFUSED: (NetworkError, 0),
}


def test_faults(play):
    async def scene(served):
        async with served.bot() as bot:
            for fault, (kind, delivered) in FAULTS.items():
                before = len(served.chat.messages)
                served.api.faults.script(fault, methods=["sendMessage"])
                with pytest.raises(kind) as raised:  # what answers may take its time
                    await bot.send_message(served.ada.id, "x", read_timeout=0.5 if kind is TimedOut else 40)
                assert type(raised.value) is kind
                assert len(served.chat.messages) - before == delivered, fault
            served.api.faults.outage = True
            with pytest.raises(NetworkError):
                await bot.get_updates()
            served.api.faults.outage = False
            assert (await bot.send_message(served.ada.id, "back")).text == "back"
        assert not served.world.refusals

    play(scene)


def test_commands_and_chats(play):
    async def scene(served):
        async with served.bot() as bot:
            menu = [BotCommand("status", "The whole box")]
            await bot.set_my_commands(menu, scope=BotCommandScopeChat(served.ada.id))
            assert await bot.get_my_commands(scope=BotCommandScopeChat(served.ada.id)) == tuple(menu)
            assert await bot.get_my_commands() == ()
            assert served.world.menu.shown(served.chat, served.ada.id)[0]["command"] == "status"
            assert await bot.delete_my_commands(scope=BotCommandScopeChat(served.ada.id))
            assert (await bot.get_chat(served.ada.id)).first_name == "Ada"
            assert (await bot.get_chat_member(served.ada.id, served.ada.id)).status == "member"
            assert (await bot.get_me()).username == "nightshift_bot"
            assert await bot.set_webhook("https://a.bc/")
            with pytest.raises(Conflict, match="webhook is active"):
                await bot.get_updates()
            assert (await bot.get_webhook_info()).url == "https://a.bc/"
            assert await bot.delete_webhook()

    play(scene)


def test_every_act_of_people_can_be_read(play):
    async def scene(served):
        people, ada = served.people, served.ada
        robo = served.world.add_user("Robo", is_bot=True)
        group, channel = served.world.add_group(members=[ada]), served.world.add_channel()
        served.world.updates.allow(list(KINDS))
        people.send_text(ada, None, "x", forward_from=robo, via_bot=robo)
        people.send_text(ada, group, "/x", sender_chat=group)
        people.edit(None, channel, people.send_text(None, channel, "x").message_id, "y")
        people.send_photo(ada, None, PICTURE)
        people.block(ada)
        people.unblock(ada)
        people.add_bot(ada, group, admin=True)
        people.join(robo, group)
        people.leave(robo, group)
        people.kick_bot(ada, channel)
        people.inline_query(ada, "q")
        people.react(ada, None, 1, "👍")
        people.migrate(group)
        async with served.bot() as bot:
            updates = await bot.get_updates()
            seen = {kind for update in updates for kind in KINDS if getattr(update, kind) is not None}
            wanted = "message channel_post edited_channel_post my_chat_member chat_member inline_query message_reaction"
            assert seen == set(wanted.split())
            forwarded, anonymous = updates[0].message, updates[1].message
            assert isinstance(forwarded.forward_origin, MessageOriginUser)
            assert forwarded.via_bot.id == robo.id
            assert anonymous.sender_chat.id == group.id
            assert updates[2].channel_post.from_user is None
            assert [update.message.migrate_to_chat_id for update in updates if update.message][-2] is not None

    play(scene)


def test_a_whole_application(play):
    async def scene(served):
        gate = []

        async def submit(update, context):
            await update.message.reply_html(f"<b>queued</b> {context.args[0]}", reply_markup=KEYBOARD, do_quote=True)

        async def kill(update, _context):
            await update.callback_query.answer()
            await update.callback_query.edit_message_text("stopped")

        async def watch(update, _context):
            gate.append(update.update_id)

        application = served.application()
        application.add_handler(TypeHandler(Update, watch), group=-1)
        application.add_handler(CommandHandler("submit", submit))
        application.add_handler(CallbackQueryHandler(kill))
        events = follow(served.world.events)
        async with application:
            await application.start()
            await application.updater.start_polling(timeout=10)
            sent = served.people.send_text(served.ada, None, "/submit train.py")
            while not (event := await anext(events)).by_bot:
                pass
            assert event.data["text"] == "queued train.py"
            assert event.data["reply_to_message"]["message_id"] == sent.message_id
            served.people.tap(served.ada, None, event.data["message_id"], "k:1")
            assert (await anext(events)).kind == "callback_answered"
            assert (await anext(events)).data["text"] == "stopped"
            await application.updater.stop()
            await application.stop()
        await events.aclose()
        assert len(gate) == 2
        assert served.world.updates.pending() == []
        assert not served.world.refusals

    play(scene)
