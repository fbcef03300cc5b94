"""Updates that wait for the bot, and the long poll that waits for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bot.waiting import within

if TYPE_CHECKING:
    from bot.local_chat.bot_api.objects import JsonObject


class UpdateQueue:
    """Keeps updates until the bot confirms them by asking for later ones."""

    def __init__(self, first_id: int) -> None:
        self._next_id = first_id
        self._pending: dict[int, JsonObject] = {}
        self._waiter: asyncio.Future[None] | None = None

    def add(self, kind: str, payload: JsonObject) -> int | None:
        """Queue an update, wake the poll, and return the update's id."""
        update_id = self._next_id
        self._next_id += 1
        self._pending[update_id] = {"update_id": update_id, kind: payload}
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        return update_id

    def pending(self) -> list[JsonObject]:
        """Return the waiting updates, in order."""
        return list(self._pending.values())

    def confirm(self, offset: int) -> None:
        """Forget the updates before the offset."""
        for update_id in [update_id for update_id in self._pending if update_id < offset]:
            del self._pending[update_id]

    async def get(self, offset: int, limit: int, timeout_s: float) -> list[JsonObject]:
        """Confirm, then return what is there. If nothing is, wait for it."""
        self.confirm(offset)
        if not self._pending and timeout_s > 0:
            await self._wait(timeout_s)
        return self.pending()[:limit]

    async def _wait(self, timeout_s: float) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiter = waiter
        try:
            await within(timeout_s, waiter)
        except asyncio.TimeoutError:
            pass
        finally:
            if self._waiter is waiter:
                self._waiter = None
