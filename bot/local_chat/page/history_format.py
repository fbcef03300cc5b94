"""The format of a message on disk."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api.entities import Entity, utf16_length
from bot.local_chat.bot_api.files import StoredFile
from bot.local_chat.bot_api.objects import Message
from bot.local_chat.bot_api.text import FormattedText

if TYPE_CHECKING:
    from bot.local_chat.bot_api.fields import JsonObject
    from bot.local_chat.bot_api.objects import Chat
    from bot.local_chat.bot_api.world import World

VERSION = 1
PLAIN = ("date", "outgoing", "reply_markup", "edit_date", "link_preview", "silent", "service", "reactions")


def written(message: Message) -> JsonObject:
    """Return a message as JSON, without the content of its files."""
    kept: JsonObject = {"id": message.message_id, **{name: getattr(message, name) for name in PLAIN}}
    kept["from"] = None if message.sender is None else message.sender.id
    kept["reply_to"] = None if message.reply_to is None else message.reply_to.message_id
    for name in ("text", "caption"):
        formatted: FormattedText = getattr(message, name)
        kept[name] = formatted.text
        kept[f"{name}_entities"] = formatted.entities_json()
    for name in ("document", "photo"):
        stored: StoredFile | None = getattr(message, name)
        kept[name] = None if stored is None else _file(stored)
    return {name: value for name, value in kept.items() if value}


def read(kept: JsonObject, chat: Chat, world: World) -> Message:
    """Return the message. Its files are still empty and it replies to nothing yet."""
    plain = {name: kept[name] for name in PLAIN if name in kept}
    return Message(
        message_id=int(kept["id"]),
        chat=chat,
        sender=world.users.get(kept.get("from", 0)),
        text=_text(kept, "text"),
        caption=_text(kept, "caption"),
        document=_stored(kept.get("document")),
        photo=_stored(kept.get("photo")),
        **plain,
    )


def file_name(stored: StoredFile) -> str:
    """Return a file's name on disk. It comes from the content, so equal files are written once."""
    return stored.file_unique_id


def forget_file(message: Message, name: str) -> None:
    """Say in the message text that its file is gone: Telegram has no file message without a file."""
    note = f"📎 {name} (no longer kept)"
    after = f"\n{message.caption.text}" if message.caption.text else ""
    mark = Entity("italic", 0, utf16_length(note))
    shift = utf16_length(note) + 1
    moved = (replace(entity, offset=entity.offset + shift) for entity in message.caption.entities)
    message.text = FormattedText(note + after, (mark, *moved))
    message.caption, message.document, message.photo = FormattedText(), None, None


def _file(stored: StoredFile) -> JsonObject:
    names = ("kind", "file_id", "file_unique_id", "path", "name", "mime_type", "size")
    return {name: getattr(stored, name) for name in names}


def _stored(kept: JsonObject | None) -> StoredFile | None:
    if kept is None:
        return None
    size: Any = kept["size"]
    return StoredFile(**(kept | {"data": b"", "size": None if size is None else (int(size[0]), int(size[1]))}))


def _text(kept: JsonObject, name: str) -> FormattedText:
    entities = []
    for entity in kept.get(f"{name}_entities", []):
        extra = {field: value for field, value in entity.items() if field not in {"type", "offset", "length"}}
        entities.append(Entity(entity["type"], entity["offset"], entity["length"], tuple(extra.items())))
    return FormattedText(kept.get(name, ""), tuple(entities))
