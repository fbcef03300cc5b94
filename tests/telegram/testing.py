"""For tests of the rules themselves: a world at a fixed time, one person in it, and calls without an event loop."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api.api import BotApi
from bot.local_chat.bot_api.api_errors import ApiError
from bot.local_chat.bot_api.world import World
from tests.telegram.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.local_chat.bot_api.params import Upload

START = 1_800_000_000.0


class Trial:
    """Ada has started the bot; nothing waits and nothing was refused."""

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
        """One call's result; raises ApiError if it is refused."""
        reply = asyncio.run(self.api.call(self.world.token, method, wire(params), files))
        body = json.loads(reply.body)
        if not body["ok"]:
            raise ApiError(body["error_code"], body["description"], body.get("parameters"))
        return body["result"]

    def send(self, text: str = "hello", **params: Any) -> Any:
        """A message from the bot to Ada."""
        return self.ask("sendMessage", **{"chat_id": self.ada.id, "text": text, **params})

    def waiting(self) -> list[Any]:
        """The updates that wait for the bot, as it would see them."""
        return [update.to_json() for update in self.world.updates.pending()]


def wire(params: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as they go over the wire: strings as they are, the rest as JSON."""
    given = {name: value for name, value in params.items() if value is not None}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in given.items()}
