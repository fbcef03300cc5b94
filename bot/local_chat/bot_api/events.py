"""What happens in the world, for its watchers: a page, a test."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

MESSAGE, EDITED, DELETED, REACTION = "message", "edited", "deleted", "reaction"
ANSWERED, ACTION, COMMANDS, LEFT_CHAT, CHAT = "callback_answered", "chat_action", "commands", "left_chat", "chat"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `by_bot` says whether the bot did it or a person."""

    number: int
    kind: str
    chat_id: int | None
    by_bot: bool
    data: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the event for the control channel and the page."""
        return {name: getattr(self, name) for name in ("number", "kind", "chat_id", "by_bot", "data")}


class EventLog:
    """The last events, numbered from 1, and the watchers that are called for each new one."""

    def __init__(self, kept: int = 10_000) -> None:
        self._kept: deque[Event] = deque(maxlen=kept)
        self._watchers: list[Callable[[Event], None]] = []
        self._count = 0

    @property
    def last_number(self) -> int:
        """The number of the newest event, 0 before the first."""
        return self._count

    def tell(self, kind: str, chat_id: int | None, data: dict[str, Any], *, by_bot: bool = True) -> None:
        """Record an event and call the watchers."""
        self._count += 1
        event = Event(self._count, kind, chat_id, by_bot, data)
        self._kept.append(event)
        for watcher in list(self._watchers):
            watcher(event)

    def after(self, number: int = 0, kind: str | None = None) -> list[Event]:
        """Return the kept events after that number, of one kind if given."""
        return [event for event in self._kept if event.number > number and kind in {None, event.kind}]

    def watch(self, watcher: Callable[[Event], None]) -> Callable[[], None]:
        """Call `watcher` for every event from now on, until the returned function is called."""
        self._watchers.append(watcher)

        def stop() -> None:
            self._watchers.remove(watcher)

        return stop

    def follow(self, after: int | None = None) -> AsyncIterator[Event]:
        """Yield every event after that number (default: from now on), as it happens."""
        return self._follow(self._count if after is None else after)

    async def _follow(self, seen: int) -> AsyncIterator[Event]:
        queue: asyncio.Queue[Event] = asyncio.Queue()
        stop = self.watch(queue.put_nowait)
        try:
            for event in self.after(seen):
                yield event
            while True:
                yield await queue.get()
        finally:
            stop()
