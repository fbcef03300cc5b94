"""Users, chats and messages, and their form in the Bot API."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api.formatted_text import FormattedText

if TYPE_CHECKING:
    from bot.local_chat.bot_api.files import StoredFile

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiUser:
    """A person or a bot."""

    id: int
    first_name: str
    username: str = ""
    is_bot: bool = False

    def to_json(self) -> JsonObject:
        """Return the user as the Bot API shows it."""
        return {"id": self.id, "is_bot": self.is_bot, **self.names()}

    def names(self) -> JsonObject:
        """Return the names that users and private chats are shown with."""
        return {"first_name": self.first_name, **filled({"username": self.username})}


@dataclass(slots=True, kw_only=True)
class ApiChat:
    """A person's chat with the bot, and its messages by number."""

    id: int
    user: ApiUser | None = None
    messages: dict[int, ApiMessage] = field(default_factory=dict)
    next_message_id: int = 1

    def to_json(self) -> JsonObject:
        """Return the chat as the Bot API shows it inside other objects."""
        assert self.user is not None
        return {"id": self.id, "type": "private", **self.user.names()}


@dataclass(slots=True, kw_only=True)
class ApiMessage:
    """One message."""

    message_id: int = 0
    chat: ApiChat
    date: int
    outgoing: bool = False  # whether the bot wrote it
    sender: ApiUser | None = None
    text: FormattedText = field(default_factory=FormattedText)
    caption: FormattedText = field(default_factory=FormattedText)
    document: StoredFile | None = None
    photo: StoredFile | None = None
    reply_to: ApiMessage | None = None
    reply_markup: JsonObject | None = None
    edit_date: int | None = None
    silent: bool = False
    reactions: list[str] = field(default_factory=list)  # of the bot
    client: str = ""  # the name that the page gave it before it had a number

    def to_json(self, *, with_reply: bool = True) -> JsonObject:
        """Return the message as the Bot API shows it. A replied-to message is shown without its own reply."""
        is_inline = self.reply_markup is not None and "inline_keyboard" in self.reply_markup
        optional = {
            "from": self.sender and self.sender.to_json(),
            "edit_date": self.edit_date,
            "text": self.text.text,
            "entities": self.text.entities_json(),
            "caption": self.caption.text,
            "caption_entities": self.caption.entities_json(),
            "document": self.document and self.document.to_json(),
            "photo": self.photo and [self.photo.to_json()],
            "reply_to_message": self.reply_to.to_json(with_reply=False) if self.reply_to and with_reply else None,
            "reply_markup": self.reply_markup if is_inline else None,
        }
        return {"message_id": self.message_id, "chat": self.chat.to_json(), "date": self.date, **filled(optional)}

    def for_page(self) -> JsonObject:
        """Return the message as watchers see it, with fields that the Bot API itself does not show."""
        return self.to_json() | filled({"silent": self.silent, "client": self.client, "reactions": self.reactions})


def filled(fields: JsonObject) -> JsonObject:
    """Return the fields that have a value: the Bot API leaves out the others."""
    return {name: value for name, value in fields.items() if value}
