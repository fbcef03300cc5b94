"""The chat without Telegram: a Bot API inside this process, and a page on this machine for its one person."""

from __future__ import annotations

import getpass
import os
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api.formatted_text import plain_text
from bot.local_chat.bot_api.in_process_request import LocalRequest
from bot.local_chat.bot_api.methods import LocalBotApi
from bot.local_chat.bot_api.world import LocalWorld
from bot.local_chat.page import history, listening_socket
from bot.local_chat.page.server import Page
from bot.outbound.telegram_client import TelegramClient
from bot.terminal import page_link
from bot.text.job_words import called
from runner.api.chat import clock, duration_words, percent, short_progress
from runner.model import State

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Mapping

    from bot.chat import Chat
    from bot.settings import ChatSettings

PERSON = 1
HISTORY = "page.json"
MOST_RUNNING, MOST_WAITING = 12, 6


@dataclass
class LocalChat:
    """What the bot needs to serve the page instead of Telegram."""

    client: TelegramClient
    settings: ChatSettings  # with the person at the page as admin
    changed: Callable[[], None]
    status: Status


class Status:
    """What the status bar above the chat shows. Mostly empty until `chat` is set."""

    def __init__(self, box: str) -> None:
        self._box = box
        self.chat: Chat | None = None

    def now(self) -> dict[str, Any]:
        """Return the status as the page expects it."""
        if self.chat is None:
            return {"box": self._box, "runner_up": False, "simulated": False, "running": 0, "queued": 0,
                    "held": None, "gpus": []}  # fmt: skip
        queue = self.chat.queue
        counts, gpus = queue.view.overview(), queue.view.snapshot()
        return {
            "box": self._box,
            "runner_up": queue.runner_is_up(),
            "simulated": bool(gpus and gpus[0].simulated),
            "running": counts.running,
            "queued": counts.queued + counts.not_yet,
            "held": self.chat.named(queue.reasons.why_paused() or "") or None,
            "gpus": queue.view.gpus(),
            "progress": (progress := self._progress()),
            "jobs": self._jobs(progress),
        }

    def _jobs(self, progress: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the jobs that run, with how far they are, and those that start next."""
        assert self.chat is not None
        listing, now = self.chat.listing, clock.now()
        rows = []
        for job in map(self.chat.shown, [*listing.live()[:MOST_RUNNING], *listing.queued(MOST_WAITING)]):
            far = progress.get(job.id, {})
            words = far.get("words") or (duration_words(job, now) if job.attempt else "")
            runs = job.state is not State.QUEUED
            rows.append({"id": job.id, "name": called(job), "runs": runs, "words": words if runs else "",
                         "percent": far.get("percent") if runs else None})  # fmt: skip
        return rows

    def _progress(self) -> dict[int, dict[str, Any]]:
        """Return how far running jobs are, by their number: percent, and words."""
        assert self.chat is not None
        now, may_show = clock.now(), self.chat.settings.log_text
        known = {job.id: self.chat.queue.view.progress(job) for job in self.chat.listing.live()}
        return {
            number: {"percent": percent(progress), "words": short_progress(progress, now, bar=False, metrics=may_show)}
            for number, progress in known.items()
            if progress
        }


async def open_page(stack: contextlib.AsyncExitStack, settings: ChatSettings) -> LocalChat:
    """Open the local chat and its page. The link is then in the state folder."""
    # Message ids go on above those of any earlier world: the queue remembers them.
    world = LocalWorld(first_message_id=int(time.time()) - 1_700_000_000)
    person = world.add_person(_account(), PERSON)
    path = os.path.join(settings.home, HISTORY)
    history.load(world, person, path)
    await stack.enter_async_context(history.HistoryWriter(world, person, path))
    status = Status(settings.box)
    listener = listening_socket.inherited() or listening_socket.listen(settings.page_port)
    page = Page(world, person, listener=listener, secret=page_link.secret_of(settings.home), status=status.now)
    await stack.enter_async_context(page)
    page_link.keep_link(settings.home, page.url)
    if not world.chats[person.id].messages:
        world.write(person, text=plain_text("/start"))
    client = TelegramClient(world.token, request=LocalRequest(LocalBotApi(world)))
    changed = partial(_changed, page, settings.home)
    return LocalChat(client, settings.model_copy(update={"admins": (PERSON,)}), changed, status)


def _changed(page: Page, home: str) -> None:
    """Refresh the page after the doorbell rang, and use the new secret if there is one."""
    page.status_changed()
    if page.use_secret(page_link.secret_of(home)):
        page_link.keep_link(home, page.url)


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "you"
