"""Bad days for a bot in a room: refusals of one's choosing, and a record of every call."""

from __future__ import annotations

import asyncio
import time
from typing import Any, NamedTuple

from bot.app import Bot
from bot.chat import Chat
from bot.local_chat.bot_api.methods import ApiError
from bot.outbound.telegram_client import TelegramClient
from runner.store.connection import StoreError
from tests.room import Room
from tests.telegram.api import Reply
from tests.telegram.api_errors import bad_request
from tests.telegram.http import HttpServer


class HttpRoom(Room):
    """The same over real HTTP on loopback."""

    server: HttpServer

    async def open(self, poll_s: float = 1) -> None:
        self.chat = Chat(self.settings.model_copy(update={"api_url": self.server.url}), self.world.token)
        self._make_workspace()
        self.bot = Bot(self.chat, TelegramClient(self.world.token, self.chat.settings), poll_s=poll_s)
        await self.bot.connect()
        self._serving = asyncio.get_running_loop().create_task(self.bot.serve())


class Call(NamedTuple):
    at: float
    method: str
    chat: int
    params: dict[str, str]


def record(room: Room) -> list[Call]:
    """Every call from now on but the polls."""
    calls: list[Call] = []
    through = room.api.call

    async def call(token: str, method: str, params: Any, files: Any = None) -> Any:
        if method != "getUpdates":
            calls.append(Call(time.monotonic(), method, int(params.get("chat_id", 0)), dict(params)))
        return await through(token, method, params, files)

    room.api.call = call  # type: ignore[method-assign]
    return calls


def refuse(room: Room, method: str, why: str | ApiError, times: int = 1) -> None:
    """The next calls of this method are refused with these words."""
    left, through = [why] * times, room.api._run

    async def run(token: str, called: str, params: Any) -> Any:
        if called == method and left:
            words = left.pop()
            raise bad_request(words) if isinstance(words, str) else words
        return await through(token, called, params)

    room.api._run = run  # type: ignore[method-assign]


def refused(room: Room) -> list[str]:
    """What Telegram did not take so far; it is forgiven."""
    found = [f"{one.method}: {one.description}" for one in room.world.refusals]
    room.world.refusals.clear()
    return found


def instead(room: Room, reply: Reply, method: str, times: int) -> list[Reply]:
    """The next calls of this method, or any, are not done and answered so; those that are left."""
    left, through = [reply] * times, room.api.call

    async def call(token: str, called: str, params: Any, files: Any = None) -> Reply:
        return left.pop() if left and (called == method or not method) else await through(token, called, params, files)

    room.api.call = call  # type: ignore[method-assign]
    return left


class FullDisk:
    """The database takes nothing more, while this is on."""

    def __init__(self, room: Room) -> None:
        self.on = False
        self.refused = 0
        self._through = room.chat.queue.store.execute
        room.chat.queue.store.execute = self._execute  # type: ignore[method-assign]

    def _execute(self, sql: str, values: Any = ()) -> Any:
        if self.on and not sql.startswith(("SELECT", "EXPLAIN", "WITH")):
            self.refused += 1
            raise StoreError("The disk is full.")
        return self._through(sql, values)


def texts(room: Room, user: Any, chat: Any = None) -> list[str]:
    """All the bot has said there."""
    return [message.text.text for message in room.said(user, chat)]
