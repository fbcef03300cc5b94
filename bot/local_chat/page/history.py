"""Keeps the person's chat over a restart: its last messages in a JSON file, small files beside it.

    history.load(world, person, path)            before the bot starts
    async with history.Keeper(world, person, path): ...

Only the chat is kept. Updates that waited for the bot are not: the bot has its own inbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bot.local_chat.bot_api import events
from bot.local_chat.page import history_format

if TYPE_CHECKING:
    from bot.local_chat.bot_api.events import Event
    from bot.local_chat.bot_api.files import StoredFile
    from bot.local_chat.bot_api.objects import Chat, Message, User
    from bot.local_chat.bot_api.world import World

log = logging.getLogger(__name__)

KEPT_MESSAGES = 500
KEPT_FILE_BYTES = 4 * 1024 * 1024
KEPT_BYTES = 64 * 1024 * 1024
DELAY_S = 1.0
KINDS = frozenset({events.MESSAGE, events.EDITED, events.DELETED, events.REACTION})


def load(world: World, person: User, path: str) -> None:
    """Put the kept messages into the person's chat of a new world. New message ids go on above them.

    A file that cannot be read is renamed to `.broken`, and the chat starts empty.
    """
    chat = world.chats[person.id]
    try:
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
        messages = _read(kept, chat, world, path)
        next_id, files_count = int(kept["next_message_id"]), int(kept["files"])
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _put_aside(path, error)
        return
    for message in messages:
        chat.messages[message.message_id] = message
    chat.started = bool(kept.get("started"))
    chat.next_message_id = max([chat.next_message_id, next_id, *(message.message_id + 1 for message in messages)])
    for message in messages:
        for stored in (message.document, message.photo):
            if stored is not None:
                world.files.restore(stored)
    world.files.skip_to(files_count)


class Keeper:
    """Writes the chat to disk a second after it changed, and once more at the end."""

    def __init__(self, world: World, person: User, path: str) -> None:
        self._world = world
        self._chat = world.chats[person.id]
        self._path = path
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Keeper:
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

    def _note(self, event: Event) -> None:
        if event.chat_id == self._chat.id and event.kind in KINDS:
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
        files = _worth_keeping(messages)
        kept = {
            "version": history_format.VERSION,
            "started": self._chat.started,
            "next_message_id": self._chat.next_message_id,
            "files": self._world.files.count,
            "messages": [history_format.written(message) for message in messages],
        }
        return json.dumps(kept, ensure_ascii=False), files

    def _write(self, text: str, files: dict[str, StoredFile]) -> None:
        folder = _files_folder(self._path)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            there = set(os.listdir(folder))
            for name in files.keys() - there:
                _write_file(os.path.join(folder, name), files[name].data)
            _write_file(self._path, text.encode())
            for name in there - files.keys():
                os.unlink(os.path.join(folder, name))
        except OSError as error:
            log.warning("the chat cannot be written to %s: %s", self._path, error)


def _read(kept: dict[str, Any], chat: Chat, world: World, path: str) -> list[Message]:
    if kept["version"] != history_format.VERSION:
        raise ValueError(f"version {kept['version']}")
    by_id: dict[int, Message] = {}
    for written in kept["messages"]:
        message = history_format.read(written, chat, world)
        message.reply_to = by_id.get(written.get("reply_to"))
        by_id[message.message_id] = message
    for message in by_id.values():
        _fill_files(message, _files_folder(path))
    return list(by_id.values())


def _fill_files(message: Message, folder: str) -> None:
    for kind in ("document", "photo"):
        stored: StoredFile | None = getattr(message, kind)
        if stored is None:
            continue
        try:
            with open(os.path.join(folder, history_format.file_name(stored)), "rb") as file:
                setattr(message, kind, replace(stored, data=file.read()))
        except OSError:
            history_format.forget_file(message, stored.name)


def _worth_keeping(messages: list[Message]) -> dict[str, StoredFile]:
    """Return the newest files that are small enough, up to KEPT_BYTES in total."""
    kept: dict[str, StoredFile] = {}
    room = KEPT_BYTES
    for message in reversed(messages):
        for stored in (message.document, message.photo):
            if stored is None or len(stored.data) > min(KEPT_FILE_BYTES, room):
                continue
            room -= len(stored.data)
            kept[history_format.file_name(stored)] = stored
    return kept


def _files_folder(path: str) -> str:
    return f"{path}.files"


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
