"""The chat without Telegram: the world inside this process, and a page on this machine for its one person."""

from __future__ import annotations

import getpass
import os
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.local_chat import keep
from bot.local_chat.api import BotApi
from bot.local_chat.page import Page
from bot.local_chat.request import LocalRequest
from bot.local_chat.world import World
from bot.wire import Wire
from runner.api.chat import PAGE_LINK

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from bot.chat import Chat
    from bot.settings import ChatSettings

PERSON = 1
SECRET, HISTORY = "page.secret", "page.json"


@dataclass
class LocalChat:
    """A wire that leads to the page instead of to Telegram."""

    wire: Wire
    settings: ChatSettings  # with the person at the page as its admin
    changed: Callable[[], None]
    status: Status


class Status:
    """What the strip above the chat shows, once there is a chat to ask."""

    def __init__(self, box: str) -> None:
        self._box = box
        self.chat: Chat | None = None

    def now(self) -> dict[str, Any]:
        """As the page wants it."""
        if self.chat is None:
            return {"box": self._box, "runner_up": False, "simulated": False, "running": 0, "queued": 0,
                    "held": None, "gpus": []}  # fmt: skip
        queue = self.chat.queue
        counts, known = queue.overview(), queue.snapshot()
        return {
            "box": self._box,
            "runner_up": queue.runner_is_up(),
            "simulated": bool(known and known[0].simulated),
            "running": counts.running,
            "queued": counts.queued + counts.not_yet,
            "held": self.chat.named(queue.held() or "") or None,
            "gpus": queue.gpus(),
        }


async def open_page(stack: contextlib.AsyncExitStack, settings: ChatSettings) -> LocalChat:
    """Bring up the world and its page; its link is then in the state folder."""
    # Numbers go on above those of any world before this one: the queue remembers them.
    world = World(first_message_id=int(time.time()) - 1_700_000_000)
    api = BotApi(world)
    person = world.add_user(_account(), user_id=PERSON)
    history = os.path.join(settings.home, HISTORY)
    keep.load(world, person, history)
    await stack.enter_async_context(keep.Keeper(world, person, history))
    status = Status(settings.box)
    page = Page(api, person, port=settings.page_port, secret=_secret(settings.home), status=status.now)
    await stack.enter_async_context(page)
    _write(os.path.join(settings.home, PAGE_LINK), page.url + "\n")
    if not world.chats[person.id].messages:
        api.people.start(person)
    wire = Wire(world.token, request=LocalRequest(api))
    return LocalChat(wire, settings.model_copy(update={"admins": (PERSON,)}), page.status_changed, status)


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "you"


def _secret(home: str) -> str:
    """The same as last time, so that the link works again."""
    path = os.path.join(home, SECRET)
    try:
        with open(path, encoding="ascii") as file:
            kept = file.read().strip()
    except FileNotFoundError:
        kept = ""
    if len(kept) < 20:
        kept = secrets.token_urlsafe(24)
        _write(path, kept)
    return kept


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(text)
