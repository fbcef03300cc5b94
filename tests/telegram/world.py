"""The world a bot lives in, with everything Telegram has: groups, channels, webhooks, flood limits, command scopes."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api.files import FileStore
from bot.local_chat.bot_api.world import TOKEN, LocalWorld
from tests.telegram.command_menu import CommandMenu
from tests.telegram.flood import Flood
from tests.telegram.limits import FloodLimits, Limits
from tests.telegram.objects import CHANNEL, CREATOR, GROUP, MEMBER, PRIVATE, SUPERGROUP, Chat, Message, User
from tests.telegram.updates import StrictUpdates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bot.local_chat.bot_api.methods import ApiError
    from bot.local_chat.bot_api.objects import ApiMessage, ApiUser, JsonObject

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


class World(LocalWorld):
    """One bot and everybody it may meet, in private chats, groups and channels."""

    message_type = Message
    updates: StrictUpdates
    limits: Limits
    bot: User
    users: dict[int, User]  # type: ignore[assignment]
    chats: dict[int, Chat]  # type: ignore[assignment]

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
        super().__init__(clock=clock, first_message_id=first_message_id)
        self.token = token
        self.bot = User(id=int(token.partition(":")[0]), first_name=first_name, username=username, is_bot=True)
        self.limits = limits or Limits()
        self.flood = Flood(flood)
        self.updates = StrictUpdates(clock, int(clock()) if first_update_id is None else first_update_id)
        self.files = FileStore(self.limits.kept_file_bytes, token)
        self.menu = CommandMenu()
        self.reads_all_group_messages = reads_all_group_messages
        self.users = {user.id: user for user in (self.bot, ANONYMOUS_ADMIN, CHANNEL_BOT)}
        self.refusals: deque[Refusal] = deque(maxlen=KEPT_RECORDS)
        self.webhook = Webhook()
        self.last_poll = LastPoll()
        self.logged_out = False
        self._numbers = Numbers()

    def commands_for(self, person: ApiUser) -> list[JsonObject]:
        """Return the commands that a person's client offers in their own chat."""
        return self.menu.shown(self.chats[person.id], person.id, self.users[person.id].language_code)

    def write(self, person: ApiUser, **content: Any) -> ApiMessage:
        """Put a person's message into their chat, which lets the bot write there, and queue it for the bot."""
        self.chats[person.id].started = True
        return super().write(person, **content)

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
        chat.next_message_id = self._first_message_id
        self.chats[chat.id] = chat
        return chat

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
