"""Files that were sent, in memory. The oldest are dropped to make room."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bot.local_chat.bot_api.fields import JsonObject
    from bot.local_chat.bot_api.params import Upload

FOLDERS = {"document": "documents", "photo": "photos"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file and what the Bot API says about it."""

    kind: str
    file_id: str
    file_unique_id: str
    path: str
    name: str
    mime_type: str
    data: bytes
    size: tuple[int, int] | None = None

    def to_json(self) -> JsonObject:
        """Return the file as a message shows it."""
        shown: JsonObject = {
            "file_id": self.file_id,
            "file_unique_id": self.file_unique_id,
            "file_size": len(self.data),
        }
        if self.size is not None:
            return shown | {"width": self.size[0], "height": self.size[1]}
        return shown | {"file_name": self.name, "mime_type": self.mime_type}


class FileStore:
    """Files by id; they can also be found by download path."""

    def __init__(self, kept_bytes: int, salt: str) -> None:
        self._kept_bytes = kept_bytes
        self._salt = salt
        self._count = 0
        self._bytes = 0
        self._by_id: dict[str, StoredFile] = {}

    def add(self, kind: str, upload: Upload, size: tuple[int, int] | None = None) -> StoredFile:
        """Keep a new file."""
        self._count += 1
        name = upload.name or "file"
        extension = f".{name.rpartition('.')[2]}" if "." in name else ""
        stored = StoredFile(
            kind=kind,
            file_id=_digest(f"{self._salt} {self._count}".encode(), 48),
            file_unique_id=_digest(upload.data, 9),
            path=f"{FOLDERS[kind]}/file_{self._count}{extension if extension.isascii() else ''}",
            name=name,
            mime_type=upload.mime_type,
            data=upload.data,
            size=size,
        )
        self._by_id[stored.file_id] = stored
        self._bytes += len(stored.data)
        self._make_room()
        return stored

    def restore(self, stored: StoredFile) -> None:
        """Keep a file of an earlier world under its old ids."""
        self._by_id[stored.file_id] = stored
        self._bytes += len(stored.data)
        self._make_room()

    @property
    def count(self) -> int:
        """How many files there have been."""
        return self._count

    def skip_to(self, count: int) -> None:
        """Continue above the ids of an earlier world: a bot that remembers one of them must not get another file."""
        self._count = max(self._count, count)

    def get(self, file_id: str) -> StoredFile | None:
        """Return the file with this id, or None if there is none or it was dropped."""
        return self._by_id.get(file_id)

    def at(self, path: str) -> StoredFile | None:
        """Return the file with this download path, or None."""
        return next((stored for stored in self._by_id.values() if stored.path == path), None)

    def _make_room(self) -> None:
        while self._bytes > self._kept_bytes and len(self._by_id) > 1:
            oldest = next(iter(self._by_id))
            self._bytes -= len(self._by_id.pop(oldest).data)


def _digest(data: bytes, length: int) -> str:
    return base64.urlsafe_b64encode(hashlib.blake2b(data, digest_size=length).digest()).decode().rstrip("=")
