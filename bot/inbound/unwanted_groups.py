"""Leaves groups that strangers added the bot to. Nothing is stored, so that strangers cannot fill the disk."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from telegram.error import TelegramError

from bot.outbound.retry_policy import Then, after_failure, pause_s

if TYPE_CHECKING:
    from telegram import Bot

AT_MOST = 1000  # groups waiting to be left; the bot stays in further ones, but does not serve them
_TRY_AGAIN = {Then.AGAIN, Then.WAIT, Then.PERHAPS}


class UnwantedGroups:
    """Leaves groups one after the other, in a task that ends when none are left."""

    def __init__(self, bot: Bot) -> None:
        self._bot = bot
        self._groups: set[int] = set()
        self._task: asyncio.Task[None] | None = None

    def leave(self, group: int) -> None:
        """Leave this group soon, unless too many are waiting."""
        if len(self._groups) < AT_MOST:
            self._groups.add(group)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._leave_all())

    async def close(self) -> None:
        """Leave no more groups."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _leave_all(self) -> None:
        failures = 0
        while self._groups:
            group = next(iter(self._groups))
            try:
                await self._bot.leave_chat(group)
            except TelegramError as problem:
                failures += 1
                verdict = after_failure(problem, failures)
                if verdict.then in _TRY_AGAIN:
                    await asyncio.sleep(max(verdict.after_s, pause_s(failures)))
                    continue
            failures = 0
            self._groups.discard(group)
