"""A sign of life for another service, which tells people when it stops coming."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from bot.chat import Chat
    from bot.inbound.poll import Poller

log = logging.getLogger(__name__)

TRY_S = 10.0
POLL_MAY_TAKE_S = 180.0


async def beat(chat: Chat, poller: Poller) -> None:
    """Fetch the address while runner and bot are well, until cancelled."""
    settings = chat.settings
    if settings.heartbeat_url is None:
        return
    failing = False
    async with httpx.AsyncClient(timeout=TRY_S, proxy=settings.proxy) as client:
        while True:
            well = chat.queue.runner_is_up() and time.monotonic() - poller.answered_at < POLL_MAY_TAKE_S
            if well:
                failing = await _fetch(client, settings.heartbeat_url, failing)
            await asyncio.sleep(settings.heartbeat_every)


async def _fetch(client: httpx.AsyncClient, url: str, failed_before: bool) -> bool:
    """One sign of life; whether it failed. Said once, not at every beat."""
    try:
        async with client.stream("GET", url) as answer:  # what it says is not read, however long it is
            answer.raise_for_status()
    except httpx.HTTPError as error:
        if not failed_before:
            log.warning("the heartbeat could not be sent: %s", type(error).__name__)
        return True
    return False
