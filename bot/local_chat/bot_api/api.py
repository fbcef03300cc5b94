"""The Bot API as the bot sees it: takes a method and its parameters, returns an HTTP answer."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.local_chat.bot_api.methods import METHODS, ApiError, Call, bad_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bot.local_chat.bot_api.files import Upload
    from bot.local_chat.bot_api.world import LocalWorld


@dataclass(frozen=True, slots=True)
class ApiReply:
    """An HTTP answer."""

    status: int = 200
    body: bytes = b""


class LocalBotApi:
    """One world, and the methods a bot may call in it."""

    def __init__(self, world: LocalWorld) -> None:
        self.world = world

    async def call(
        self,
        token: str,  # noqa: ARG002 - there is only one bot
        method: str,
        params: Mapping[str, str],
        files: Mapping[str, Upload] | None = None,
    ) -> ApiReply:
        """Do what the bot asks."""
        if method not in METHODS:
            return _refusal(bad_request(f"the local chat has no method {method}"))
        try:
            result = METHODS[method](self.world, Call(params, files or {}))
            if inspect.isawaitable(result):
                result = await result
        except ApiError as error:
            return _refusal(error)
        return ApiReply(body=json.dumps({"ok": True, "result": result}).encode())

    async def download(self, token: str, path: str) -> ApiReply:  # noqa: ARG002
        """Return a file's content."""
        stored = self.world.files.at(path)
        return _refusal(ApiError(404, "Not Found")) if stored is None else ApiReply(body=stored.data)


def _refusal(error: ApiError) -> ApiReply:
    body = {"ok": False, "error_code": error.code, "description": error.description}
    return ApiReply(error.code, json.dumps(body).encode())
