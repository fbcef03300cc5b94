"""A bot in this process over the strict Bot API, and people who write to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from bot.access.gate import actor_of
from bot.app import Bot
from bot.chat import Chat
from bot.commands import BY_NAME
from bot.outbound.telegram_client import TelegramClient
from bot.settings import ChatSettings
from bot.store.threads import Thread
from runner.api.chat import Workspace, stamp
from tests.jobs import KEY, VARIABLES, a_spec
from tests.telegram.api import BotApi, Ending
from tests.telegram.in_process import FaultyRequest
from tests.telegram.objects import Message, User
from tests.telegram.page_reading import check_page_shows_the_same
from tests.telegram.world import World


class PlainSpaces(BotApi):
    """Spaces that break no line arrive as spaces: only a test about them wants to see the difference.

    Each text that the bot sends is also read as the page reads it, which must show the same.
    """

    async def call(self, token: str, method: str, params: Any, *rest: Any, **more: Any) -> Any:
        spoken = {name: value.replace("\u00a0", " ") for name, value in params.items() if name in {"text", "caption"}}
        reply = await super().call(token, method, {**params, **spoken}, *rest, **more)
        if reply.status == 200 and params.get("parse_mode") == "HTML" and reply.ending is Ending.WHOLE:
            check_page_shows_the_same(spoken, json.loads(reply.body)["result"])
        return reply


class Room:
    """Ada is admin, Uma and Una are users, Vic is a viewer, Sam is a stranger. No runner is up unless a test says."""

    def __init__(self, folder: Path, world: World | None = None, **settings: Any) -> None:
        self.folder = folder
        self.api = PlainSpaces(world or World())
        self.world, self.people, self.faults = self.api.world, self.api.people, self.api.faults
        self.ada, self.uma, self.una, self.vic, self.sam = (
            self.world.add_user(name) for name in ("Ada", "Uma", "Una", "Vic", "Sam")
        )
        given = {
            "home": str(folder / "home"), "box": "lab1", "admins": (self.ada.id,), "users": (self.uma.id, self.una.id),
            "viewers": (self.vic.id,), **settings,
        }  # fmt: skip
        os.makedirs(given["home"], mode=0o700, exist_ok=True)
        self.settings = ChatSettings(**given)
        self.read_s = 2.0
        self.bot: Bot
        self.chat: Chat
        self._serving: asyncio.Task[None] | None = None

    async def open(self, poll_s: float = 30) -> None:
        self.chat = Chat(self.settings, self.world.token)
        self._make_workspace()
        request = FaultyRequest(self.api, read_timeout=self.read_s)
        self.bot = Bot(self.chat, TelegramClient(self.world.token, request=request), poll_s=poll_s)
        self.bot.sender.pace.gap_s = self.bot.sender.pace.group_gap_s = 0.0  # no test should wait for that
        await self.bot.connect()
        self._serving = asyncio.get_running_loop().create_task(self.bot.serve())

    async def close(self) -> None:
        assert self._serving is not None
        self.bot.leave()
        try:
            await self._serving
        finally:
            self.chat.close()

    async def die(self) -> None:
        """As with kill -9: nothing is tidied up."""
        assert self._serving is not None
        self._serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._serving
        self.chat.close()

    def _make_workspace(self) -> None:
        """Its environment is known already: no test should wait for a login shell it does not test."""
        workspaces = self.chat.queue.workspaces
        if workspaces.default() is None:
            workspace = Workspace(name="lab", dir=str(self.folder), default=True)
            workspaces.put(workspace)
            workspaces.keep_environment(workspace, stamp(workspace), {"PATH": os.environ["PATH"]})

    async def settle(self, timeout: float = 40) -> None:
        """Until everything sent was answered and every notice told, as far as they can be now."""
        deadline = time.monotonic() + timeout
        calm = 0
        while calm < 2:
            assert time.monotonic() < deadline, "the bot does not come to rest"
            self.bot.notifier.wake()
            self.bot.sender.wake()
            self.bot.card_editor.wake()
            await asyncio.sleep(0.002)
            calm = calm + 1 if self._at_rest() else 0

    def _at_rest(self) -> bool:
        return not (
            self.world.updates.pending()
            or self.chat.inbox.open()
            or self.chat.queue.notices.open()
            or [message for message in self.chat.outbox.due() if not self._must_wait(message)]
            or self.bot.sender.busy
            or self.bot.card_editor.busy
        )

    def _must_wait(self, message: Any) -> bool:
        return message.lane == "card" and self.bot.sender.card_wait_s(message.chat) > 0

    def queue_apart(self, user: User, count: int) -> list[int]:
        """As many jobs of theirs as if they had sent /submit for each, without the answers."""
        spec = replace(a_spec(gpus=0), owner=actor_of(user.id))
        numbers = self.chat.queue.submit([spec] * count, {KEY: VARIABLES})
        for number in numbers:
            self.chat.threads.start(Thread(number, user.id, user.id, None, None))
        return numbers

    async def show_cards(self) -> None:
        """As if what runs had run for a while: cards that wait are sent."""
        await self.settle()
        self.chat.queue.store.execute("UPDATE messages SET next_try_at = NULL WHERE lane = 'card'")
        await self.settle()

    async def ask(self, user: User, text: str, chat: Any = None, **how: Any) -> list[Message]:
        """What the bot says to this."""
        before = self._last(user, chat)
        self.people.send_text(user, chat, text, **how)
        await self.settle()
        return [message for message in self.said(user, chat) if message.message_id > before]

    async def tap(self, user: User, message: Message, label: str) -> list[Message]:
        """Press the button with this label; what the bot says anew."""
        before = self._last(user, message.chat)
        self.people.tap(user, message.chat, message.message_id, data_of(message, label))
        await self.settle()
        return [message for message in self.said(user, message.chat) if message.message_id > before]

    def said(self, user: User, chat: Any = None) -> list[Message]:
        """All the bot has said there."""
        place = self.world.chats[user.id] if chat is None else self.people.place(user, chat)
        return [message for message in place.messages.values() if message.sender == self.world.bot]

    def stray_links(self) -> list[str]:
        """Links in anything the bot said that nobody meant."""
        places = [place.messages.values() for place in self.world.chats.values()]
        said = [message for messages in places for message in messages if message.sender == self.world.bot]
        return [link for message in said for link in stray_links(message)]

    def _last(self, user: User, chat: Any) -> int:
        place = self.world.chats[user.id] if chat is None else self.people.place(user, chat)
        return max(place.messages, default=0)

    def answers(self) -> list[str]:
        """The words over pressed buttons so far."""
        return [event.data.get("text", "") for event in self.world.events.after(0, "callback_answered")]


# What a command would have been sent with, had the tap not dropped it.
ARGUMENT = re.compile(
    r" (?:#?\d|-|[A-Z]{2,}\b|(?:all|queued|running|mine|everyone|first|last|after|failed|user|viewer|admin|default"
    r"|quiet|ends|failures|none|off|python|bash)\b)"
)


def stray_links(message: Message) -> list[str]:
    """What a tap here would get wrong: a file's name that leads to a site, a command without its argument."""
    found = []
    for shown in (message.text, message.caption):
        units = shown.text.encode("utf-16-le")
        for entity in shown.entities:
            there, behind = (units[2 * at :].decode("utf-16-le", "replace") for at in (entity.offset, entity.end))
            text = there[: len(there) - len(behind)]
            is_command = entity.type == "bot_command" and bool(ARGUMENT.match(behind) or text[1:] not in BY_NAME)
            if is_command or (entity.type == "url" and not text.startswith(("http://", "https://"))):
                found.append(f"{text}{behind[:20]}")
    return found


def labels(message: Message) -> list[str]:
    """The buttons under a message."""
    markup = message.reply_markup or {}
    return [button["text"] for row in markup.get("inline_keyboard", []) for button in row]


def data_of(message: Message, label: str) -> str:
    """What the button with this label carries."""
    markup = message.reply_markup or {}
    for row in markup.get("inline_keyboard", []):
        for button in row:
            if button["text"] == label:
                return str(button["callback_data"])
    raise AssertionError(f"no button {label!r} among {labels(message)}")


@contextlib.asynccontextmanager
async def a_room(folder: Path, **settings: Any) -> AsyncIterator[Room]:
    """Open, everybody has pressed Start and hears as much as `noise` says."""
    noise = settings.pop("noise", "all")
    room = Room(folder, **settings)
    for person in (room.ada, room.uma, room.una, room.vic):
        room.people.start(person)
    await room.open()
    for person in (room.ada, room.uma, room.una, room.vic):
        room.chat.people.set_noise(person.id, noise)
    try:
        await room.settle()
        yield room
    finally:
        await room.close()


def in_room(**settings: Any) -> Callable[[Callable[[Room], Awaitable[None]]], Callable[[Path], None]]:
    """A test as a conversation: it gets a room with these settings."""

    def decorate(test: Callable[[Room], Awaitable[None]]) -> Callable[[Path], None]:
        def run(tmp_path: Path) -> None:
            async def inside() -> None:
                async with a_room(tmp_path, **settings) as room:
                    await test(room)
                    assert not [one for one in room.world.refusals if one.code == 400], room.world.refusals
                    assert not room.stray_links()

            asyncio.run(inside())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate
