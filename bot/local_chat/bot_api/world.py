"""The world a bot lives in: the bot, its people and their chats, updates that wait for the bot, and watchers.

It knows no transport. Everything runs in one thread, and times come from the given clock.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from bot.local_chat.bot_api.files import FileStore
from bot.local_chat.bot_api.objects import ApiChat, ApiMessage, ApiUser
from bot.waiting import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from bot.local_chat.bot_api.objects import JsonObject

TOKEN = "4242:AAnightshift-local-chat-token-000000"  # noqa: S105 - opens nothing but this world
MIB = 1024 * 1024
MESSAGE, EDITED, ANSWERED, COMMANDS, ACTION = "message", "edited", "callback_answered", "commands", "chat_action"
KEPT_EVENTS = 10_000
KEPT_TAPS = 10_000
MessageT = TypeVar("MessageT", bound=ApiMessage)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatLimits:
    """How much Telegram accepts, and how much is kept. A test may make them smaller."""

    text: int = 4096  # UTF-16 units of a message, without its markup
    caption: int = 1024
    download_bytes: int = 20 * MIB
    callback_age_s: float = 150.0  # after this a tap can no longer be answered
    long_poll_s: float = 50.0
    kept_messages: int = 10_000  # per chat; older ones are dropped
    kept_file_bytes: int = 512 * MIB  # for all files together; the oldest are dropped first


@dataclass(slots=True)
class Tap:
    """A press of a button that the bot may still answer."""

    id: str
    user: ApiUser
    chat: ApiChat
    data: str
    at: float
    answered: bool = False


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
        self._pending = {update_id: update for update_id, update in self._pending.items() if update_id >= offset}

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


class LocalWorld:
    """One bot and the people it may meet, each in a private chat."""

    message_type: type[ApiMessage] = ApiMessage

    def __init__(self, *, clock: Callable[[], float] = time.time, first_message_id: int = 1) -> None:
        self.token = TOKEN
        self.bot = ApiUser(id=4242, first_name="nightshift", username="nightshift_bot", is_bot=True)
        self.clock = clock
        self.limits = ChatLimits()
        # ids go on above those of an older world: a bot that remembers them must not take new updates for old
        self.updates = UpdateQueue(int(clock()))
        self.events = EventLog()
        self.files = FileStore(self.limits.kept_file_bytes, TOKEN)
        self.commands: dict[int | None, list[JsonObject]] = {}
        self.users: dict[int, ApiUser] = {self.bot.id: self.bot}
        self.chats: dict[int, ApiChat] = {}
        self.taps: dict[str, Tap] = {}
        self._taps = 0
        self._first_message_id = first_message_id

    def now(self) -> int:
        """Return the time in whole seconds, as messages carry it."""
        return int(self.clock())

    def add_person(self, first_name: str, user_id: int) -> ApiUser:
        """Add a person and their chat with the bot."""
        person = ApiUser(id=user_id, first_name=first_name)
        self.users[user_id] = person
        self.chats[user_id] = ApiChat(id=user_id, user=person, next_message_id=self._first_message_id)
        return person

    def commands_for(self, person: ApiUser) -> list[JsonObject]:
        """Return the commands that a person is offered: their own list, or the one for everybody."""
        return self.commands.get(person.id) or self.commands.get(None, [])

    def write(self, person: ApiUser, **content: Any) -> ApiMessage:
        """Put a person's message into their chat, and queue it for the bot."""
        chat = self.chats[person.id]
        message = self.post(self.message_type(chat=chat, date=self.now(), sender=person, **content), by_bot=False)
        self.updates.add("message", message.to_json())
        return message

    def tap(self, person: ApiUser, message_id: int, data: str) -> Tap:
        """Press a button in a person's chat. Any data and any message id are accepted."""
        chat = self.chats[person.id]
        tap = self.new_tap(person, chat, data)
        message = chat.messages.get(message_id)
        gone = {"message_id": message_id, "chat": chat.to_json(), "date": 0}
        payload = {"id": tap.id, "from": person.to_json(), "chat_instance": str(chat.id), "data": data}
        self.updates.add("callback_query", payload | {"message": message.to_json() if message else gone})
        return tap

    def new_tap(self, user: ApiUser, chat: ApiChat, data: str) -> Tap:
        """Record a press of a button, so that it can be answered."""
        self._taps += 1
        tap = Tap(f"{user.id << 32 | self._taps}", user, chat, data, self.clock())
        self.taps[tap.id] = tap
        while len(self.taps) > KEPT_TAPS:
            del self.taps[next(iter(self.taps))]
        return tap

    def post(self, message: MessageT, *, by_bot: bool) -> MessageT:
        """Give a message its number, keep it and tell the watchers."""
        chat = message.chat
        message.message_id = chat.next_message_id
        chat.next_message_id += 1
        chat.messages[message.message_id] = message
        while len(chat.messages) > self.limits.kept_messages:
            del chat.messages[next(iter(chat.messages))]
        self.tell_message(MESSAGE, message, by_bot=by_bot)
        return message

    def tell_message(self, kind: str, message: ApiMessage, *, by_bot: bool) -> None:
        """Tell the watchers about a message as it is now."""
        self.events.tell(kind, message.chat.id, message.for_page(), by_bot=by_bot)
