"""For tests of the rules themselves: a world at a fixed time, one person in it, and calls without an event loop."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api.methods import ApiError
from tests.telegram.api import BotApi
from tests.telegram.clock import Clock
from tests.telegram.world import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bot.local_chat.bot_api.files import Upload
    from bot.local_chat.bot_api.world import ChatEvent, EventLog

START = 1_800_000_000.0


class Trial:
    """A world in which Ada has started the bot. No update waits, and no call was refused."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock(lambda: START)
        self.world = World(clock=self.clock, **settings)
        self.api = BotApi(self.world)
        self.people = self.api.people
        self.ada = self.world.add_user("Ada", username="ada")
        self.chat = self.world.chats[self.ada.id]
        self.people.start(self.ada)
        self.world.updates.clear()

    def ask(self, method: str, *, files: Mapping[str, Upload] | None = None, **params: Any) -> Any:
        """Return the result of one call. Raise ApiError if it is refused."""
        reply = asyncio.run(self.api.call(self.world.token, method, wire(params), files))
        body = json.loads(reply.body)
        if not body["ok"]:
            raise ApiError(body["error_code"], body["description"], body.get("parameters"))
        return body["result"]

    def send(self, text: str = "hello", **params: Any) -> Any:
        """Send a message from the bot to Ada."""
        return self.ask("sendMessage", **{"chat_id": self.ada.id, "text": text, **params})

    def waiting(self) -> list[Any]:
        """Return the updates that wait for the bot, as it would see them."""
        return self.world.updates.pending()


def wire(params: Mapping[str, Any]) -> dict[str, str]:
    """Return parameters as they are sent: strings as they are, the rest as JSON."""
    filled = {name: value for name, value in params.items() if value is not None}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in filled.items()}


def follow(log: EventLog, after: int | None = None) -> AsyncIterator[ChatEvent]:
    """Yield every event after that number (default: from now on), as it happens."""
    return _follow(log, log.last_number if after is None else after)


async def _follow(log: EventLog, seen: int) -> AsyncIterator[ChatEvent]:
    queue: asyncio.Queue[ChatEvent] = asyncio.Queue()
    stop = log.watch(queue.put_nowait)
    try:
        for event in log.after(seen):
            yield event
        while True:
            yield await queue.get()
    finally:
        stop()
