"""Sends a heartbeat to another service, which alerts people when it stops."""

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
    """Fetch the heartbeat URL while runner and bot are well, until cancelled. Return at once if there is no URL."""
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
    """Send one heartbeat and return whether it failed. Only the first failure in a row is logged."""
    try:
        async with client.stream("GET", url) as answer:  # the body is not read: it may be long
            answer.raise_for_status()
    except httpx.HTTPError as error:
        if not failed_before:
            log.warning("the heartbeat could not be sent: %s", type(error).__name__)
        return True
    return False
