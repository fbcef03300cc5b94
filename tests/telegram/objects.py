"""Users, chats of every type and messages of every kind, and their form in the Bot API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot.local_chat.bot_api.objects import ApiChat, ApiMessage, ApiUser, filled

if TYPE_CHECKING:
    from bot.local_chat.bot_api.objects import JsonObject

PRIVATE, GROUP, SUPERGROUP, CHANNEL = "private", "group", "supergroup", "channel"
MEMBER, ADMINISTRATOR, CREATOR, LEFT, KICKED = "member", "administrator", "creator", "left", "kicked"
INSIDE = frozenset({MEMBER, ADMINISTRATOR, CREATOR})

ADMIN_RIGHTS = (
    *("can_be_edited", "is_anonymous", "can_manage_chat", "can_delete_messages", "can_manage_video_chats"),
    *("can_restrict_members", "can_promote_members", "can_change_info", "can_invite_users"),
    *("can_post_stories", "can_edit_stories", "can_delete_stories"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class User(ApiUser):
    """A person or a bot, with everything Telegram tells about them."""

    last_name: str = ""
    language_code: str = ""

    def to_json(self) -> JsonObject:
        """Return the user as the Bot API shows it."""
        return ApiUser.to_json(self) | filled({"language_code": self.language_code})

    def names(self) -> JsonObject:
        """Return the names that users and private chats are shown with."""
        return ApiUser.names(self) | filled({"last_name": self.last_name})


@dataclass(slots=True, kw_only=True)
class Chat(ApiChat):
    """A chat with its messages and members. For a private one also whether the bot may write there."""

    type: str
    started: bool = False
    title: str = ""
    username: str = ""
    is_forum: bool = False
    topics: set[int] = field(default_factory=set)
    members: dict[int, str] = field(default_factory=dict)
    bot_status: str = LEFT
    blocked: bool = False
    migrated_to: int | None = None
    messages: dict[int, Message] = field(default_factory=dict)  # type: ignore[assignment]

    @property
    def is_group(self) -> bool:
        """Whether it is a group or a supergroup."""
        return self.type in {GROUP, SUPERGROUP}

    def to_json(self) -> JsonObject:
        """Return the chat as the Bot API shows it inside other objects."""
        if self.user is not None:
            return ApiChat.to_json(self)
        shown = {"username": self.username, "is_forum": self.is_forum}
        return {"id": self.id, "type": self.type, "title": self.title, **filled(shown)}


@dataclass(slots=True, kw_only=True)
class Message(ApiMessage):
    """One message. `service` holds what Telegram itself says in a chat."""

    chat: Chat
    sender_chat: Chat | None = None
    reply_to: Message | None = None
    forward_origin: JsonObject | None = None
    via_bot: User | None = None
    thread_id: int | None = None
    link_preview: JsonObject | None = None
    service: JsonObject = field(default_factory=dict)

    def to_json(self, *, with_reply: bool = True) -> JsonObject:
        """Return the message as the Bot API shows it. A replied-to message is shown without its own reply."""
        shown = {
            "sender_chat": self.sender_chat and self.sender_chat.to_json(),
            "forward_origin": self.forward_origin,
            "via_bot": self.via_bot and self.via_bot.to_json(),
            "message_thread_id": self.thread_id,
            "is_topic_message": self.chat.is_forum and self.thread_id is not None,
            "link_preview_options": self.link_preview,
        }
        return ApiMessage.to_json(self, with_reply=with_reply) | filled(shown) | self.service

    def for_page(self) -> JsonObject:
        """Return the message as watchers see it, with keyboards that the bot itself is not shown."""
        return ApiMessage.for_page(self) | filled({"keyboard": self.reply_markup})


def member_json(user: User, status: str) -> JsonObject:
    """Return a user's membership of a chat as the Bot API shows it."""
    shown: JsonObject = {"user": user.to_json(), "status": status}
    if status == ADMINISTRATOR:
        shown |= dict.fromkeys(ADMIN_RIGHTS, False) | {"can_manage_chat": True, "can_delete_messages": True}
    if status == CREATOR:
        shown["is_anonymous"] = False
    if status == KICKED:
        shown["until_date"] = 0
    return shown
