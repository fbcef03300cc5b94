"""Waiting for at most so long. asyncio.wait_for, before Python 3.12, can swallow a cancellation and so never end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")


async def within(seconds: float | None, awaited: Awaitable[T]) -> T:
    """What it gives, or asyncio.TimeoutError after so many seconds (None: however long it takes)."""
    task = asyncio.ensure_future(awaited)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    if not done:
        raise asyncio.TimeoutError
    return task.result()
