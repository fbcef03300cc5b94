"""What happens in the chat, for its watchers: the page, the history file, a test."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGE, EDITED, DELETED, REACTION = "message", "edited", "deleted", "reaction"
ANSWERED, ACTION, COMMANDS = "callback_answered", "chat_action", "commands"
KEPT_EVENTS = 10_000


@dataclass(frozen=True, slots=True)
class ChatEvent:
    """One thing that happened. `by_bot` says whether the bot did it or a person."""

    number: int
    kind: str
    chat_id: int | None
    by_bot: bool
    data: dict[str, Any]


class EventLog:
    """The last events, numbered from 1, and the watchers that are called for each new one."""

    def __init__(self) -> None:
        self._events: deque[ChatEvent] = deque(maxlen=KEPT_EVENTS)
        self._watchers: list[Callable[[ChatEvent], None]] = []
        self.last_number = 0

    def tell(self, kind: str, chat_id: int | None, data: dict[str, Any], *, by_bot: bool = True) -> None:
        """Record an event and call the watchers."""
        self.last_number += 1
        event = ChatEvent(self.last_number, kind, chat_id, by_bot, data)
        self._events.append(event)
        for watcher in list(self._watchers):
            watcher(event)

    def after(self, number: int = 0, kind: str | None = None) -> list[ChatEvent]:
        """Return the kept events after that number, of one kind if given."""
        return [event for event in self._events if event.number > number and kind in {None, event.kind}]

    def watch(self, watcher: Callable[[ChatEvent], None]) -> Callable[[], None]:
        """Call `watcher` for every event from now on, until the returned function is called."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)
