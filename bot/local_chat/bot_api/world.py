"""The world a bot lives in: the bot, its users and chats, their messages, and updates that wait for the bot.

It knows no transport. Everything runs in one thread, and times come from the given clock.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bot.local_chat.bot_api import events
from bot.local_chat.bot_api.command_menu import CommandMenu
from bot.local_chat.bot_api.events import EventLog
from bot.local_chat.bot_api.files import FileStore
from bot.local_chat.bot_api.flood import Flood
from bot.local_chat.bot_api.limits import FloodLimits, Limits
from bot.local_chat.bot_api.objects import CHANNEL, CREATOR, GROUP, MEMBER, PRIVATE, SUPERGROUP, Chat, Message, User
from bot.local_chat.bot_api.updates import UpdateQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bot.local_chat.bot_api.api_errors import ApiError
    from bot.local_chat.bot_api.fields import JsonObject

TOKEN = "4242:AAnightshift-local-chat-token-000000"  # noqa: S105 - opens nothing but this world
SUPERGROUP_BASE = -1_000_000_000_000
# shown by Telegram instead of a person who writes as a group or a channel
ANONYMOUS_ADMIN = User(id=1087968824, first_name="Group", username="GroupAnonymousBot", is_bot=True)
CHANNEL_BOT = User(id=136817688, first_name="Channel", username="Channel_Bot", is_bot=True)
KEPT_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that was refused, and why."""

    method: str
    params: dict[str, str]
    code: int
    description: str


@dataclass(slots=True)
class Tap:
    """A press of a button that the bot may still answer."""

    id: str
    user: User
    chat: Chat
    data: str
    at: float
    answered: bool = False


@dataclass(slots=True)
class Webhook:
    """While it is set, the bot cannot poll. Nothing is ever delivered to it."""

    url: str = ""


@dataclass(slots=True)
class LastPoll:
    """When and with which offset the bot last polled."""

    offset: int = 0
    at: float = float("-inf")


@dataclass(slots=True)
class Numbers:
    """The next free numbers."""

    user: int = 1001
    group: int = 5001
    tap: int = 1
    first_message: int = 1


class World:
    """One bot and everybody it may meet."""

    def __init__(
        self,
        *,
        token: str = TOKEN,
        username: str = "nightshift_bot",
        first_name: str = "nightshift",
        clock: Callable[[], float] = time.time,
        limits: Limits | None = None,
        flood: FloodLimits | None = None,
        first_update_id: int | None = None,
        first_message_id: int = 1,
        reads_all_group_messages: bool = False,
    ) -> None:
        self.token = token
        self.bot = User(id=int(token.partition(":")[0]), first_name=first_name, username=username, is_bot=True)
        self.clock = clock
        self.limits = limits or Limits()
        self.flood = Flood(flood)
        # ids go on above those of an older world: a bot that remembers them must not take new updates for old
        self.updates = UpdateQueue(clock, int(clock()) if first_update_id is None else first_update_id)
        self.events = EventLog()
        self.files = FileStore(self.limits.kept_file_bytes, token)
        self.commands = CommandMenu()
        self.reads_all_group_messages = reads_all_group_messages
        self.users: dict[int, User] = {user.id: user for user in (self.bot, ANONYMOUS_ADMIN, CHANNEL_BOT)}
        self.chats: dict[int, Chat] = {}
        self.taps: dict[str, Tap] = {}
        self.refusals: deque[Refusal] = deque(maxlen=KEPT_RECORDS)
        self.webhook = Webhook()
        self.last_poll = LastPoll()
        self.logged_out = False
        self._numbers = Numbers(first_message=first_message_id)

    def now(self) -> int:
        """Return the time in whole seconds, as messages carry it."""
        return int(self.clock())

    def add_user(
        self,
        first_name: str = "Ada",
        *,
        user_id: int | None = None,
        last_name: str = "",
        username: str = "",
        is_bot: bool = False,
        language_code: str = "",
    ) -> User:
        """Add a person. The bot cannot write to them before they have written to it."""
        while self._numbers.user in self.users:
            self._numbers.user += 1
        user = User(
            id=self._numbers.user if user_id is None else user_id,
            first_name=first_name,
            last_name=last_name,
            username=username,
            is_bot=is_bot,
            language_code=language_code,
        )
        self.users[user.id] = user
        self.add_chat(Chat(id=user.id, type=PRIVATE, user=user, username=username, bot_status=MEMBER))
        return user

    def add_group(
        self,
        title: str = "Lab",
        members: Iterable[User] = (),
        *,
        supergroup: bool = False,
        forum: bool = False,
        username: str = "",
        bot_status: str = MEMBER,
    ) -> Chat:
        """Add a group. Its first member is its creator."""
        people = {user.id: MEMBER for user in members}
        if people:
            people[next(iter(people))] = CREATOR
        return self.add_chat(
            Chat(
                id=self._group_id(wide=supergroup or forum),
                type=SUPERGROUP if supergroup or forum else GROUP,
                title=title,
                username=username,
                is_forum=forum,
                members=people,
                bot_status=bot_status,
            )
        )

    def add_channel(self, title: str = "News", *, username: str = "", bot_status: str = MEMBER) -> Chat:
        """Add a channel."""
        channel = Chat(
            id=self._group_id(wide=True), type=CHANNEL, title=title, username=username, bot_status=bot_status
        )
        return self.add_chat(channel)

    def add_chat(self, chat: Chat) -> Chat:
        """Add a chat. Its messages are numbered from the world's first message number."""
        chat.next_message_id = self._numbers.first_message
        self.chats[chat.id] = chat
        return chat

    def post(self, message: Message, *, by_bot: bool) -> Message:
        """Give a message its number, keep it and tell the watchers."""
        chat = message.chat
        message.message_id = chat.next_message_id
        chat.next_message_id += 1
        chat.messages[message.message_id] = message
        while len(chat.messages) > self.limits.kept_messages:
            del chat.messages[next(iter(chat.messages))]
        self.tell_message(events.MESSAGE, message, by_bot=by_bot)
        return message

    def tell_message(self, kind: str, message: Message, *, by_bot: bool) -> None:
        """Tell the watchers about a message as it is now."""
        self.events.tell(kind, message.chat.id, as_told(message), by_bot=by_bot)

    def new_tap(self, user: User, chat: Chat, data: str) -> Tap:
        """Record a press of a button, so that it can be answered."""
        tap = Tap(f"{user.id << 32 | self._numbers.tap}", user, chat, data, self.clock())
        self._numbers.tap += 1
        self.taps[tap.id] = tap
        while len(self.taps) > KEPT_RECORDS:
            del self.taps[next(iter(self.taps))]
        return tap

    def refuse(self, method: str, params: dict[str, str], error: ApiError) -> None:
        """Record a refusal."""
        self.refusals.append(Refusal(method, dict(params), error.code, error.description))

    def _group_id(self, *, wide: bool) -> int:
        number = self._numbers.group
        self._numbers.group += 1
        return SUPERGROUP_BASE - number if wide else -number

    def supergroup_id(self) -> int:
        """Return a new id for a group that becomes a supergroup."""
        return self._group_id(wide=True)


def as_told(message: Message) -> JsonObject:
    """Return a message as watchers see it, with fields that the Bot API itself does not show."""
    extra: JsonObject = {"keyboard": message.reply_markup, "silent": message.silent, "reactions": message.reactions}
    return message.to_json() | {name: value for name, value in extra.items() if value}
