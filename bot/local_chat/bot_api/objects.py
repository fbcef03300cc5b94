"""Users, chats and messages, and their form in the Bot API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot.local_chat.bot_api.text import FormattedText

if TYPE_CHECKING:
    from bot.local_chat.bot_api.fields import JsonObject
    from bot.local_chat.bot_api.files import StoredFile

PRIVATE, GROUP, SUPERGROUP, CHANNEL = "private", "group", "supergroup", "channel"
MEMBER, ADMINISTRATOR, CREATOR, LEFT, KICKED = "member", "administrator", "creator", "left", "kicked"
INSIDE = frozenset({MEMBER, ADMINISTRATOR, CREATOR})

ADMIN_RIGHTS = (
    *("can_be_edited", "is_anonymous", "can_manage_chat", "can_delete_messages", "can_manage_video_chats"),
    *("can_restrict_members", "can_promote_members", "can_change_info", "can_invite_users"),
    *("can_post_stories", "can_edit_stories", "can_delete_stories"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A person or a bot."""

    id: int
    first_name: str
    last_name: str = ""
    username: str = ""
    is_bot: bool = False
    language_code: str = ""

    def to_json(self) -> JsonObject:
        """Return the user as the Bot API shows it."""
        shown = {name: getattr(self, name) for name in ("last_name", "username", "language_code")}
        known = {name: value for name, value in shown.items() if value}
        return {"id": self.id, "is_bot": self.is_bot, "first_name": self.first_name, **known}


@dataclass(slots=True, kw_only=True)
class Chat:
    """A chat with its messages and members. For a private one also whether the bot may write there."""

    id: int
    type: str
    title: str = ""
    username: str = ""
    user: User | None = None
    is_forum: bool = False
    topics: set[int] = field(default_factory=set)
    members: dict[int, str] = field(default_factory=dict)
    bot_status: str = LEFT
    started: bool = False
    blocked: bool = False
    migrated_to: int | None = None
    messages: dict[int, Message] = field(default_factory=dict)
    next_message_id: int = 1

    @property
    def is_group(self) -> bool:
        """Whether it is a group or a supergroup."""
        return self.type in {GROUP, SUPERGROUP}

    def to_json(self) -> JsonObject:
        """Return the chat as the Bot API shows it inside other objects."""
        if self.user is not None:
            person = self.user.to_json()
            hidden = {"id", "is_bot", "language_code"}
            return {"id": self.id, "type": self.type} | {k: v for k, v in person.items() if k not in hidden}
        shown = {"username": self.username, "is_forum": self.is_forum}
        return {"id": self.id, "type": self.type, "title": self.title, **{k: v for k, v in shown.items() if v}}


@dataclass(slots=True, kw_only=True)
class Message:
    """One message. `service` holds what Telegram itself says in a chat."""

    message_id: int
    chat: Chat
    date: int
    outgoing: bool = False
    """Whether the bot wrote it. In a channel the sender does not show that."""
    sender: User | None = None
    sender_chat: Chat | None = None
    text: FormattedText = field(default_factory=FormattedText)
    caption: FormattedText = field(default_factory=FormattedText)
    document: StoredFile | None = None
    photo: StoredFile | None = None
    reply_to: Message | None = None
    reply_markup: JsonObject | None = None
    forward_origin: JsonObject | None = None
    via_bot: User | None = None
    thread_id: int | None = None
    edit_date: int | None = None
    link_preview: JsonObject | None = None
    silent: bool = False
    service: JsonObject = field(default_factory=dict)
    reactions: list[str] = field(default_factory=list)

    def to_json(self, *, with_reply: bool = True) -> JsonObject:
        """Return the message as the Bot API shows it. A replied-to message is shown without its own reply."""
        shown: JsonObject = {"message_id": self.message_id, "chat": self.chat.to_json(), "date": self.date}
        shown |= self._origin()
        shown |= self._content()
        if with_reply and self.reply_to is not None:
            shown["reply_to_message"] = self.reply_to.to_json(with_reply=False)
        if self.reply_markup and "inline_keyboard" in self.reply_markup:
            shown["reply_markup"] = self.reply_markup
        return shown | self.service

    def _origin(self) -> JsonObject:
        given = {
            "from": self.sender and self.sender.to_json(),
            "sender_chat": self.sender_chat and self.sender_chat.to_json(),
            "forward_origin": self.forward_origin,
            "via_bot": self.via_bot and self.via_bot.to_json(),
            "message_thread_id": self.thread_id,
            "is_topic_message": self.chat.is_forum and self.thread_id is not None,
            "edit_date": self.edit_date,
            "link_preview_options": self.link_preview,
        }
        return {name: value for name, value in given.items() if value}

    def _content(self) -> JsonObject:
        shown: JsonObject = {}
        for name, text, entities in (
            ("text", self.text, "entities"),
            ("caption", self.caption, "caption_entities"),
        ):
            if text.text:
                shown[name] = text.text
            if text.entities:
                shown[entities] = text.entities_json()
        if self.document is not None:
            shown["document"] = self.document.to_json()
        if self.photo is not None:
            shown["photo"] = [self.photo.to_json()]
        return shown


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
