"""Serves a python-telegram-bot bot from a world in the same process, without sockets."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from telegram.error import TimedOut
from telegram.request import BaseRequest, RequestData

from bot.local_chat.bot_api.files import Upload
from bot.waiting import within

if TYPE_CHECKING:
    from telegram._utils.types import ODVInput

    from bot.local_chat.bot_api.methods import ApiReply, LocalBotApi

METHOD = re.compile(r"/bot([^/]+)/([^/]+)")
FILE = re.compile(r"/file/bot([^/]+)/(.+)")


class LocalRequest(BaseRequest):
    """The transport between a bot and a LocalBotApi: a function call."""

    def __init__(self, api: LocalBotApi, read_timeout: float | None = 5.0) -> None:
        self._api = api
        self._read_timeout = read_timeout

    @property
    def read_timeout(self) -> float | None:
        """The default time-out for an answer, in seconds. None means no limit."""
        return self._read_timeout

    async def initialize(self) -> None:
        """Do nothing: there is nothing to open."""

    async def shutdown(self) -> None:
        """Do nothing: there is nothing to close."""

    async def do_request(
        self,
        url: str,
        method: str,  # noqa: ARG002
        request_data: RequestData | None = None,
        read_timeout: ODVInput[float] = BaseRequest.DEFAULT_NONE,
        write_timeout: ODVInput[float] = BaseRequest.DEFAULT_NONE,  # noqa: ARG002
        connect_timeout: ODVInput[float] = BaseRequest.DEFAULT_NONE,  # noqa: ARG002
        pool_timeout: ODVInput[float] = BaseRequest.DEFAULT_NONE,  # noqa: ARG002
    ) -> tuple[int, bytes]:
        """Pass the call on. Failures are raised as python-telegram-bot's own transport would raise them."""
        limit_s = read_timeout if isinstance(read_timeout, float | int | None) else self._read_timeout
        try:
            reply = await within(limit_s, self._answer(url, request_data))
        except asyncio.TimeoutError as error:
            raise TimedOut from error
        return reply.status, reply.body

    async def _answer(self, url: str, data: RequestData | None) -> ApiReply:
        path = unquote(urlsplit(url).path)
        if file := FILE.fullmatch(path):
            return await self._api.download(file[1], file[2])
        call = METHOD.fullmatch(path)
        token, method = call.groups() if call else ("", "")
        return await self._api.call(token, method, data.json_parameters if data else {}, _uploads(data))


def _uploads(data: RequestData | None) -> dict[str, Upload]:
    if data is None or not data.contains_files:
        return {}
    parts = data.multipart_data.items()
    return {
        field: Upload(name, content if isinstance(content, bytes) else content.read(), mime_type)
        for field, (name, content, mime_type) in parts
    }
