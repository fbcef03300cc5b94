"""Edits the messages that show a job's output as it comes. Everything else in a chat goes first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from bot.outbound.log_views import log_view, newest_page
from bot.text import views
from bot.waiting import patiently, within
from runner.api.chat import clock

if TYPE_CHECKING:
    from bot.chat import Chat
    from bot.store.live_logs import LiveLog
    from runner.model import Job

log = logging.getLogger(__name__)

# Telegram takes one message a second, in a group 20 a minute. Edits count.
EVERY_S, EVERY_IN_GROUP_S, EVERY_ON_PAGE_S = 3.0, 6.0, 1.0
LASTS_S = 60.0


class LiveLogEditor:
    """Looks at each live log every few seconds, and edits its message if there is something new."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._wake = asyncio.Event()
        self._shown: dict[tuple[int, int], str] = {}  # by chat and message
        self._next: dict[tuple[int, int], float] = {}

    def wake(self) -> None:
        """Wake the editor: there may be another live log."""
        self._wake.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            self._wake.clear()
            lives = await patiently(self._chat.live_logs.all)
            for live in lives:
                await self._look(live)
            with contextlib.suppress(asyncio.TimeoutError):
                await within(min(EVERY_S, EVERY_ON_PAGE_S) if lives else None, self._wake.wait())

    async def _look(self, live: LiveLog) -> None:
        place = (live.chat, live.message)
        job = self._chat.queue.jobs.get(live.job_id)
        if job is None or not self._chat.gate.may_reach(live.person, live.chat):
            await patiently(self._chat.live_logs.stop, *place)
            return
        over = job.state.final or job.attempt != live.attempt or live.until <= clock.text(clock.now())
        now = clock.monotonic()
        if not over and (now < self._next.get(place, 0.0) or self._chat.outbox.waiting(live.chat)):
            return
        self._next[place] = now + self._every_s(live)
        try:
            await self._edit(live, self._chat.shown(job), over)
        except Exception:  # one log that cannot be read must not end the others
            log.exception("the live log of job %s ends", live.job_id)
            await patiently(self._chat.live_logs.stop, *place)

    def _every_s(self, live: LiveLog) -> float:
        if self._chat.settings.chat == "page":
            return EVERY_ON_PAGE_S
        return EVERY_S if live.chat > 0 else EVERY_IN_GROUP_S

    async def _edit(self, live: LiveLog, job: Job, over: bool) -> None:
        place = (live.chat, live.message)
        if over:
            html, rows = await log_view(self._chat, job, {})
            await patiently(self._write, live, html, self._chat.keyboard(live.person, rows), over)
            self._shown.pop(place, None)
            self._next.pop(place, None)
            return
        html = views.output(job, await newest_page(self._chat, job), "live")
        if html != self._shown.get(place):
            await patiently(self._write, live, html, live.keyboard, over)
            self._shown[place] = html

    def _write(self, live: LiveLog, html: str, keyboard: list[list[dict[str, str]]], over: bool) -> None:
        with self._chat.transaction():
            if live not in self._chat.live_logs.all():
                return  # stopped meanwhile
            if over:
                self._chat.live_logs.stop(live.chat, live.message)
            self._chat.outbox.supersede(live.chat, live.message)
            body = {"message_id": live.message, "text": self._chat.presentable(html), "keyboard": keyboard}
            self._chat.outbox.add(
                live.chat, "editMessageText", body, lane="edit", person=live.person, job_id=live.job_id,
                lasts_s=None if over else LASTS_S,
            )  # fmt: skip
