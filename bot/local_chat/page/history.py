"""Keeps the person's chat over a restart: its last messages in a JSON file, small files beside it.

    history.load(world, person, path)            before the bot starts
    async with history.HistoryWriter(world, person, path): ...

Only the chat is kept. Updates that waited for the bot are not: the bot has its own inbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from bot.local_chat.bot_api.files import StoredFile
from bot.local_chat.bot_api.formatted_text import Entity, FormattedText, utf16_length
from bot.local_chat.bot_api.world import EDITED, MESSAGE

if TYPE_CHECKING:
    from bot.local_chat.bot_api.objects import ApiMessage, ApiUser, JsonObject
    from bot.local_chat.bot_api.world import ChatEvent, LocalWorld

log = logging.getLogger(__name__)

VERSION = 1
KEPT_MESSAGES = 500
KEPT_FILE_BYTES = 4 * 1024 * 1024
KEPT_BYTES = 64 * 1024 * 1024
DELAY_S = 1.0
PLAIN_FIELDS = ("date", "outgoing", "reply_markup", "edit_date", "silent", "reactions")
FILE_FIELDS = ("kind", "file_id", "file_unique_id", "path", "name", "mime_type", "size")


def load(world: LocalWorld, person: ApiUser, path: str) -> None:
    """Put the kept messages into the person's chat of a new world. New message ids go on above them.

    A file that cannot be read is renamed to `.broken`, and the chat starts empty.
    """
    chat = world.chats[person.id]
    try:
        with open(path, encoding="utf-8") as file:
            kept_chat = json.load(file)
        messages = _read_messages(kept_chat, world, person, path)
        next_id, files_count = int(kept_chat["next_message_id"]), int(kept_chat["files"])
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _put_aside(path, error)
        return
    chat.messages.update(messages)
    chat.next_message_id = max([chat.next_message_id, next_id, *(number + 1 for number in messages)])
    for message in messages.values():
        for stored in _files(message):
            world.files.restore(stored)
    # a bot that remembers a file id must not get another file for it
    world.files.count = max(world.files.count, files_count)


class HistoryWriter:
    """Writes the chat to disk a second after it changed, and once more at the end."""

    def __init__(self, world: LocalWorld, person: ApiUser, path: str) -> None:
        self._world = world
        self._chat = world.chats[person.id]
        self._path = path
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Future[None] | None = None

    async def __aenter__(self) -> HistoryWriter:
        self._stop = self._world.events.watch(self._note)
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self._stop()
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if self._writing is not None:
            await self._writing
        self._write(*self._snapshot())

    def _note(self, event: ChatEvent) -> None:
        if event.chat_id == self._chat.id and event.kind in {MESSAGE, EDITED}:
            self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(DELAY_S)
            text, files = self._snapshot()
            self._changed.clear()
            self._writing = asyncio.ensure_future(asyncio.to_thread(self._write, text, files))
            await asyncio.shield(self._writing)

    def _snapshot(self) -> tuple[str, dict[str, StoredFile]]:
        """Return what to write: the text of the JSON file, and the files beside it by name."""
        messages = list(self._chat.messages.values())[-KEPT_MESSAGES:]
        chat = {
            "version": VERSION,
            "next_message_id": self._chat.next_message_id,
            "files": self._world.files.count,
            "messages": [_message_json(message) for message in messages],
        }
        return json.dumps(chat, ensure_ascii=False), _files_to_keep(messages)

    def _write(self, text: str, files: dict[str, StoredFile]) -> None:
        folder = f"{self._path}.files"
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            present = set(os.listdir(folder))
            for name in files.keys() - present:
                _write_file(os.path.join(folder, name), files[name].data)
            _write_file(self._path, text.encode())
            for name in present - files.keys():
                os.unlink(os.path.join(folder, name))
        except OSError as error:
            log.warning("the chat cannot be written to %s: %s", self._path, error)


def _message_json(message: ApiMessage) -> JsonObject:
    """Return a message as it is written, without the content of its files."""
    fields: JsonObject = {"id": message.message_id, **{name: getattr(message, name) for name in PLAIN_FIELDS}}
    fields["from"] = message.sender and message.sender.id
    fields["reply_to"] = message.reply_to and message.reply_to.message_id
    for name in ("text", "caption"):
        formatted: FormattedText = getattr(message, name)
        fields[name] = formatted.text
        fields[f"{name}_entities"] = formatted.entities_json()
    for name in ("document", "photo"):
        stored: StoredFile | None = getattr(message, name)
        fields[name] = stored and {field: getattr(stored, field) for field in FILE_FIELDS}
    return {name: value for name, value in fields.items() if value}


def _read_messages(kept_chat: JsonObject, world: LocalWorld, person: ApiUser, path: str) -> dict[int, ApiMessage]:
    if kept_chat["version"] != VERSION:
        raise ValueError(f"version {kept_chat['version']}")
    messages: dict[int, ApiMessage] = {}
    for fields in kept_chat["messages"]:
        message = world.message_type(
            message_id=int(fields["id"]),
            chat=world.chats[person.id],
            sender=world.users.get(fields.get("from", 0)),
            text=_read_text(fields, "text"),
            caption=_read_text(fields, "caption"),
            reply_to=messages.get(fields.get("reply_to")),
            **{name: fields[name] for name in PLAIN_FIELDS if name in fields},
        )
        messages[message.message_id] = message
        for kind in {"document", "photo"} & fields.keys():
            _read_file(message, kind, fields[kind], f"{path}.files")
    return messages


def _read_text(fields: JsonObject, name: str) -> FormattedText:
    entities = []
    for entity in fields.get(f"{name}_entities", []):
        extra = {field: value for field, value in entity.items() if field not in {"type", "offset", "length"}}
        entities.append(Entity(entity["type"], entity["offset"], entity["length"], tuple(extra.items())))
    return FormattedText(fields.get(name, ""), tuple(entities))


def _read_file(message: ApiMessage, kind: str, fields: JsonObject, folder: str) -> None:
    """Give a message its file. If the content is gone, say so in the message: Telegram has no empty files."""
    size = None if fields["size"] is None else tuple(map(int, fields["size"]))
    try:
        with open(os.path.join(folder, fields["file_unique_id"]), "rb") as file:
            setattr(message, kind, StoredFile(**fields | {"data": file.read(), "size": size}))
    except OSError:
        _replace_by_note(message, f"📎 {fields['name']} (no longer kept)")


def _replace_by_note(message: ApiMessage, note: str) -> None:
    after = f"\n{message.caption.text}" if message.caption.text else ""
    length = utf16_length(note)
    moved = (replace(entity, offset=entity.offset + length + 1) for entity in message.caption.entities)
    message.text = FormattedText(note + after, (Entity("italic", 0, length), *moved))
    message.caption = FormattedText()


def _files_to_keep(messages: list[ApiMessage]) -> dict[str, StoredFile]:
    """Return the newest files that are small enough, up to KEPT_BYTES in total. The same content is kept once."""
    files: dict[str, StoredFile] = {}
    room = KEPT_BYTES
    for message in reversed(messages):
        for stored in _files(message):
            if len(stored.data) <= min(KEPT_FILE_BYTES, room):
                room -= len(stored.data)
                files[stored.file_unique_id] = stored
    return files


def _files(message: ApiMessage) -> list[StoredFile]:
    return [stored for stored in (message.document, message.photo) if stored is not None]


def _write_file(path: str, data: bytes) -> None:
    """Write a file atomically, readable only by this user."""
    draft = f"{path}.tmp"
    descriptor = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def _put_aside(path: str, error: Exception) -> None:
    aside = f"{path}.broken"
    with contextlib.suppress(OSError):
        os.replace(path, aside)
    log.warning("the kept chat cannot be read (%s: %s); it is now %s", type(error).__name__, error, aside)
