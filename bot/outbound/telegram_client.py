"""The connection to the Bot API: Telegram over HTTP, or the local chat inside this process."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

os.environ.setdefault("PTB_TIMEDELTA", "true")  # python-telegram-bot's new behaviour; the old one warns at every wait

import httpx
from telegram.error import TelegramError
from telegram.ext import ExtBot

from bot.outbound.retry_policy import Then, after_failure, pause_s
from bot.outbound.telegram_http import Transport, result_of
from runner.errors import OperatorError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from telegram.request import BaseRequest

    from bot.settings import ChatSettings

log = logging.getLogger(__name__)

CONNECT_S, READ_S, POOL_S = 10.0, 20.0, 5.0
ASKS = 3  # how often in a row Telegram must reject the token before we believe it
UPDATES = 50  # per poll
POLL_OVERDUE_S = 10.0  # on top of the poll's own time-out
NOT_KNOWN = (
    "Telegram does not know this bot's token."
    " Copy it from @BotFather again (/mybots → API Token) into NIGHTSHIFT_TOKEN."
)


class RawBot(ExtBot[None]):
    """A bot that can also return updates as raw JSON, before any parsing can fail."""

    async def raw_updates(self, offset: int | None, timeout_s: float, allowed: Sequence[str]) -> list[Any]:
        """Do one long poll. The updates may have any shape."""
        data: dict[str, Any] = {"timeout": int(timeout_s), "allowed_updates": list(allowed), "limit": UPDATES}
        if offset is not None:
            data["offset"] = offset
        updates: list[Any] = await self._post("getUpdates", data, read_timeout=timeout_s + POLL_OVERDUE_S)
        return updates

    async def _do_post(self, endpoint: str, data: dict[str, Any], **how: Any) -> Any:
        return result_of(endpoint, await super()._do_post(endpoint, data, **how))


class TelegramClient:
    """A bot and its HTTP connections."""

    def __init__(self, token: str, settings: ChatSettings | None = None, request: BaseRequest | None = None) -> None:
        self._settings = settings
        self._tls: ssl.SSLContext | None = None
        root = settings.api_url if settings else "http://local"
        self._polling = request or self._transport(1)
        self.bot = RawBot(
            token,
            base_url=f"{root}/bot",
            base_file_url=f"{root}/file/bot",
            request=request or self._transport(16),
            get_updates_request=self._polling,
        )

    def _transport(self, connections: int) -> BaseRequest:
        assert self._settings is not None
        if self._tls is None:
            self._tls = httpx.create_ssl_context()  # shared by both: loading the CA certificates takes 50 ms
        return Transport(
            connection_pool_size=connections,
            httpx_kwargs={"verify": self._tls},
            proxy=self._settings.proxy,
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
            write_timeout=READ_S,
            pool_timeout=POOL_S,
        )

    async def connect(self, *, take_over: bool = False) -> None:
        """Connect, and retry until Telegram answers. Raise OperatorError if it does not know the token."""
        tries = 0
        while True:
            try:
                await self.bot.initialize()
                if take_over:
                    await self.bot.delete_webhook()
            except TelegramError as problem:
                tries += 1
                if tries > 1 and after_failure(problem, tries).then is Then.DOUBT:
                    await self.close()
                    raise OperatorError(NOT_KNOWN) from None
                if tries == 1:
                    log.warning("Telegram cannot be reached (%s); trying until it can", problem)
                await asyncio.sleep(max(after_failure(problem, tries).after_s, pause_s(tries)))
            else:
                return

    async def is_unknown(self) -> bool:
        """Return whether Telegram rejects the token three times in a row: a single rejection may be a mistake."""
        for tries in range(1, ASKS + 1):
            await asyncio.sleep(pause_s(tries))
            try:
                await self.bot.get_me()
            except TelegramError as problem:
                if after_failure(problem, tries).then is not Then.DOUBT:
                    return False
            else:
                return False
        return True

    async def reconnect(self) -> None:
        """Drop the connection of a poll that hangs, and open a new one."""
        await self._polling.shutdown()
        await self._polling.initialize()

    async def close(self) -> None:
        """Close all connections."""
        for transport in self.bot._request:
            await transport.shutdown()
