"""A bot in this process: calls without sockets, and answers that break off, hang or never come, as the faults say."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from telegram.error import NetworkError

from bot.local_chat.bot_api.in_process_request import LocalRequest
from tests.telegram.api import Ending, Reply

if TYPE_CHECKING:
    from telegram.request import RequestData

    from bot.local_chat.bot_api.methods import ApiReply

FOREVER_S = 24 * 60 * 60.0


class FaultyRequest(LocalRequest):
    """The transport between a bot and a BotApi with faults."""

    async def _answer(self, url: str, data: RequestData | None) -> ApiReply:
        reply = await super()._answer(url, data)
        ending = reply.ending if isinstance(reply, Reply) else Ending.WHOLE
        if ending is Ending.RESET:
            raise NetworkError("httpx.ConnectError: All connection attempts failed")
        if ending is Ending.CUT:
            raise NetworkError(
                "httpx.RemoteProtocolError: peer closed connection without sending complete message body"
            )
        if ending is Ending.HANG:
            await asyncio.sleep(FOREVER_S)
        return reply
