"""A chat with a small bot in this process, and the page that shows it."""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from typing import Any

from bot.local_chat.bot_api.files import Upload
from bot.local_chat.page.listening_socket import listen
from bot.local_chat.page.server import Page
from tests.telegram.api import BotApi
from tests.telegram.testing import wire
from tests.telegram.world import World

SECRET = "test-secret-behind-the-hash"
COMMANDS = {
    "status": "What runs and what waits",
    "submit": "Queue a job",
    "sweep": "Queue a job for each of many settings",
    "log": "The end of a job's output",
    "kill": "Stop a job",
    "gpus": "The GPUs",
    "help": "How to do things",
}


def a_gpu(index: int, **given: Any) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "NVIDIA GeForce RTX 4090",
        "memory_total_mib": 24564,
        "memory_used_mib": 9318,
        "utilization": 87,
        "temperature_c": 61,
        "power_w": 287.4,
        "state": "busy",
        "jobs": [12],
    } | given


def picture(width: int = 320, height: int = 200) -> bytes:
    """A PNG that looks like a falling loss."""
    rows = []
    for y in range(height):
        row = bytearray([0])
        for x in range(width):
            curve = height * (0.12 + 0.75 * (1 - 1 / (1 + 5 * x / width)))
            row += b"\x3f\x5b\xd8" if abs(y - curve) < 2.5 else b"\xfa\xfb\xfd"
        rows.append(bytes(row))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


class Stage:
    """One world with Ada in it; the bot answers texts by echo and presses by their data."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {
            "box": "ada-box",
            "runner_up": True,
            "simulated": False,
            "running": 1,
            "queued": 2,
            "held": None,
            "gpus": [a_gpu(0), a_gpu(1, utilization=0, memory_used_mib=410, state="free", jobs=[])],
        }
        self.echoes = True
        self.new_world()
        self.page: Page | None = None
        self._polling: asyncio.Task[None] | None = None
        self._port = 0

    def new_world(self) -> None:
        self.api = BotApi(World())
        self.ada = self.api.world.add_user("Ada", user_id=1001)
        self.chat = self.api.world.chats[self.ada.id]

    @property
    def url(self) -> str:
        assert self.page is not None
        return self.page.url

    async def open(self) -> None:
        """Serve the page, on the same port as before."""
        self.page = Page(
            self.api.world, self.ada, listener=listen(self._port), secret=SECRET, status=lambda: self.status
        )
        await self.page.__aenter__()
        self._port = int(self.page.url.partition("/#")[0].rpartition(":")[2])
        self._polling = asyncio.create_task(self._poll())

    async def close(self) -> None:
        """The server is gone."""
        if self.page is None or self._polling is None:
            return
        # a poll that is being answered swallows a cancellation before Python 3.12 (asyncio.wait_for)
        while not self._polling.done():
            self._polling.cancel()
            await asyncio.wait([self._polling], timeout=0.1)
        await self.page.__aexit__()
        self.page = None

    async def cut_off(self) -> None:
        """Every connection breaks; the server stays."""
        assert self.page is not None
        await self.page._stream.close()

    async def ask(self, method: str, files: dict[str, Upload] | None = None, **params: Any) -> Any:
        """The bot does something in Ada's chat."""
        reply = await self.api.call(self.api.world.token, method, wire({"chat_id": self.ada.id, **params}), files)
        body = json.loads(reply.body)
        assert body["ok"], body
        return body["result"]

    async def say(self, text: str, **params: Any) -> int:
        """The bot writes; returns the message's number."""
        message = await self.ask("sendMessage", text=text, parse_mode="HTML", **params)
        return int(message["message_id"])

    def start(self) -> None:
        """Ada has pressed Start, and the bot has dealt with that."""
        self.api.people.start(self.ada)
        self.api.world.updates.clear()

    async def offer_commands(self) -> None:
        given = [{"command": name, "description": text} for name, text in COMMANDS.items()]
        await self.ask("setMyCommands", commands=given)

    def said(self) -> list[str]:
        """What Ada wrote, in order."""
        return [message.text.text for message in self.chat.messages.values() if message.sender == self.ada]

    async def _poll(self) -> None:
        offset = 0
        while True:
            for update in await self.ask("getUpdates", offset=offset, timeout=10):
                offset = update["update_id"] + 1
                if self.echoes:
                    await self._answer(update)

    async def _answer(self, update: dict[str, Any]) -> None:
        if tap := update.get("callback_query"):
            alert = tap["data"].startswith("alert")
            await self.ask("answerCallbackQuery", callback_query_id=tap["id"], text=tap["data"], show_alert=alert)
        elif "text" in update.get("message", {}):
            await self.ask("sendMessage", text=f"echo: {update['message']['text']}")


def buttons(*rows: list[tuple[str, str, str]]) -> dict[str, Any]:
    """An inline keyboard of (text, data, style)."""
    return {
        "inline_keyboard": [
            [{"text": text, "callback_data": data, **({"style": style} if style else {})} for text, data, style in row]
            for row in rows
        ]
    }
