"""A time limit for awaiting. asyncio.wait_for can swallow a cancellation before Python 3.12, and then never ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")


async def within(seconds: float | None, awaited: Awaitable[T]) -> T:
    """Return the result, or raise asyncio.TimeoutError after this many seconds (None: no limit)."""
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
