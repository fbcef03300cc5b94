"""What open pages get: the chat as it is, everything that happens in it, and the status bar.

A page says which event it saw last. If the server is still the same, the page gets what came after that. Otherwise it
gets the chat as it is now.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from typing import TYPE_CHECKING, Any

from aiohttp import WSCloseCode, web

from bot.local_chat.bot_api.world import ACTION, ANSWERED, COMMANDS, EDITED, MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.local_chat.bot_api.objects import ApiUser
    from bot.local_chat.bot_api.world import ChatEvent, LocalWorld
    from bot.local_chat.page.actions import PersonActions

log = logging.getLogger(__name__)

STATUS_EVERY_S = 1.0
STATUS_GAP_S = 0.1
WAITING_FRAMES = 2000
SHOWN = frozenset({MESSAGE, EDITED, ANSWERED, ACTION})


class OpenPage:
    """One connected page, with its queue of frames to send."""

    def __init__(self, socket: web.WebSocketResponse, transport: asyncio.Transport) -> None:
        self.socket = socket
        self._transport = transport
        self._frames: asyncio.Queue[str] = asyncio.Queue(WAITING_FRAMES)

    def push(self, frame: str) -> None:
        """Queue a frame. A page that does not read is cut off; it reconnects for the rest."""
        try:
            self._frames.put_nowait(frame)
        except asyncio.QueueFull:
            self.cut_off()

    def cut_off(self) -> None:
        """Drop the connection at once."""
        self._transport.abort()

    async def write(self) -> None:
        """Send frames as they come."""
        with contextlib.suppress(ConnectionError):
            while True:
                await self.socket.send_str(await self._frames.get())


class Stream:
    """Sends events and the status to every open page. Does nothing while none is open."""

    def __init__(
        self, world: LocalWorld, person: ApiUser, actions: PersonActions, status: Callable[[], dict[str, Any]]
    ) -> None:
        self._world = world
        self._person = person
        self._actions = actions
        self._status = status
        self._instance = secrets.token_hex(8)
        self._pages: set[OpenPage] = set()
        self._opened = asyncio.Event()
        self._status_due = asyncio.Event()

    async def run(self) -> None:
        """Watch the world and send the status about once a second, until cancelled."""
        stop = self._world.events.watch(self._tell)
        try:
            while True:
                await self._opened.wait()
                self._status_due.clear()
                self._push(self._status_frame())
                await asyncio.sleep(STATUS_GAP_S)
                # not wait_for: before Python 3.12 it can swallow a cancellation
                timer = asyncio.get_running_loop().call_later(STATUS_EVERY_S - STATUS_GAP_S, self._status_due.set)
                await self._status_due.wait()
                timer.cancel()
        finally:
            stop()

    def status_changed(self) -> None:
        """Send the status soon. Several changes in a row are sent once."""
        self._status_due.set()

    async def serve(self, page: OpenPage, greeting: dict[str, Any], seal: str) -> None:
        """Bring a page up to date, then send it frames and do what it asks until it disconnects."""
        for frame in self._catch_up(greeting, seal):
            page.push(frame)
        self._pages.add(page)
        self._opened.set()
        writer = asyncio.create_task(page.write())
        try:
            async for message in page.socket:
                if page not in self._pages:
                    break
                page.push(json.dumps(self._actions.do(_read(message.data))))
        finally:
            self._pages.discard(page)
            if not self._pages:
                self._opened.clear()
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer

    async def close(self) -> None:
        """Close every page's connection. Pages then look for the next server."""
        for page in list(self._pages):
            await page.socket.close(code=WSCloseCode.GOING_AWAY)

    def cut_off(self) -> None:
        """Drop every page's connection at once. Requests they have already sent are not done."""
        while self._pages:
            self._pages.pop().cut_off()

    def _catch_up(self, greeting: dict[str, Any], seal: str) -> list[str]:
        hello: dict[str, Any] = {
            "type": "hello",
            "seal": seal,
            "instance": self._instance,
            "number": self._world.events.last_number,
            "me": self._person.to_json(),
            "bot": self._world.bot.to_json(),
            "commands": self._world.commands_for(self._person),
            "limits": {"text": self._world.limits.text, "file_bytes": self._world.limits.download_bytes},
        }
        missed = self._missed(greeting)
        if missed is None:
            hello["messages"], hello["more"] = self._actions.messages()
        frames = [json.dumps(hello), *(self._event_frame(event) for event in missed or () if self._is_shown(event))]
        return [*frames, self._status_frame()]

    def _missed(self, greeting: dict[str, Any]) -> list[ChatEvent] | None:
        """Return the events a page has missed, or None if they are no longer known or too many."""
        seen = greeting.get("seen")
        if greeting.get("instance") != self._instance or not isinstance(seen, int):
            return None
        missed = self._world.events.after(seen)
        return missed if len(missed) == self._world.events.last_number - seen < WAITING_FRAMES // 2 else None

    def _tell(self, event: ChatEvent) -> None:
        if not self._pages:
            return
        if event.kind == COMMANDS:
            self._push(json.dumps({"type": "commands", "commands": self._world.commands_for(self._person)}))
        elif self._is_shown(event):
            self._push(self._event_frame(event))

    def _is_shown(self, event: ChatEvent) -> bool:
        return event.kind in SHOWN and event.chat_id == self._person.id

    def _event_frame(self, event: ChatEvent) -> str:
        return json.dumps({"type": "event", "number": event.number, "kind": event.kind, "data": event.data})

    def _status_frame(self) -> str:
        try:
            status: dict[str, Any] | None = self._status()
        except Exception:
            log.exception("the page cannot tell the box's status")
            status = None
        return json.dumps({"type": "status", "status": status})

    def _push(self, frame: str) -> None:
        for page in list(self._pages):
            page.push(frame)


def _read(data: Any) -> dict[str, Any]:
    """Return a frame's JSON object, or an empty one if it is not a JSON object."""
    try:
        frame = json.loads(data)
    except (TypeError, ValueError):
        return {}
    return frame if isinstance(frame, dict) else {}


async def read_frame(socket: web.WebSocketResponse, timeout_s: float) -> dict[str, Any]:
    """Return a page's next frame, or an empty one if none comes in time."""
    try:
        frame = await socket.receive(timeout_s)
    except asyncio.TimeoutError:
        return {}
    return _read(frame.data)
