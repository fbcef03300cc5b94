"""Tells the admins when no runner is up, and when one is up again. Without a runner, only the bot can."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bot.waiting import patiently
from runner.api.chat import BoxKey, clock
from runner.notices import NoRunner, RunnerBack

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.chat import Chat
    from runner.notices import Payload

LOOK_EVERY_S = 10.0
STEADY_S = 60.0  # a runner that restarts at once is no news, and one that dies at each start is not back


class RunnerWatch:
    """Checks regularly whether a runner is up. What the admins were told is stored, so it survives a restart."""

    def __init__(self, chat: Chat, on_notice: Callable[[], None]) -> None:
        self._chat, self._on_notice = chat, on_notice
        self._away: tuple[float, str] | None = None  # since when, by the monotonic clock and by the wall clock
        self._up: tuple[float, str] | None = None

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await patiently(self.look)
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Check whether a runner is up, and tell the admins once that has changed for STEADY_S."""
        now = clock.monotonic(), clock.text(clock.now())
        told_since = self._chat.queue.box.get(BoxKey.NO_RUNNER_SINCE)
        if self._chat.queue.runner_is_up():
            self._up = self._up or now
            if now[0] - self._up[0] >= STEADY_S:
                self._away = None
                if told_since is not None:
                    self._tell(RunnerBack(since=told_since, at=self._up[1]), None)
        else:
            self._up, self._away = None, self._away or now
            if now[0] - self._away[0] >= STEADY_S and told_since is None:
                self._tell(NoRunner(since=self._away[1]), self._away[1])

    def _tell(self, payload: Payload, away_since: str | None) -> None:
        with self._chat.transaction():
            self._chat.queue.notices.add(payload)
            self._chat.queue.box.set(BoxKey.NO_RUNNER_SINCE, away_since)
        self._on_notice()
