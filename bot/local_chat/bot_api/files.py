"""Files that were sent, in memory. The oldest are dropped to make room."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

FOLDERS = {"document": "documents", "photo": "photos"}


@dataclass(frozen=True, slots=True)
class Upload:
    """A file sent along with a call."""

    name: str
    data: bytes
    mime_type: str = "application/octet-stream"


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

    def to_json(self) -> dict[str, Any]:
        """Return the file as a message shows it."""
        ids = {"file_id": self.file_id, "file_unique_id": self.file_unique_id, "file_size": len(self.data)}
        if self.size is not None:
            return ids | {"width": self.size[0], "height": self.size[1]}
        return ids | {"file_name": self.name, "mime_type": self.mime_type}


class FileStore:
    """Files by id; they can also be found by download path."""

    def __init__(self, kept_bytes: int, salt: str) -> None:
        self._kept_bytes = kept_bytes
        self._salt = salt
        self._bytes = 0
        self._by_id: dict[str, StoredFile] = {}
        self.count = 0

    def add(self, kind: str, upload: Upload, size: tuple[int, int] | None = None) -> StoredFile:
        """Keep a new file. A picture has a size."""
        self.count += 1
        name = upload.name or "file"
        extension = f".{name.rpartition('.')[2]}" if "." in name else ""
        stored = StoredFile(
            kind=kind,
            file_id=_digest(f"{self._salt} {self.count}".encode(), 48),
            file_unique_id=_digest(upload.data, 9),
            path=f"{FOLDERS[kind]}/file_{self.count}{extension if extension.isascii() else ''}",
            name=name,
            mime_type=upload.mime_type,
            data=upload.data,
            size=size,
        )
        self.restore(stored)
        return stored

    def restore(self, stored: StoredFile) -> None:
        """Keep a file under the ids it has."""
        self._by_id[stored.file_id] = stored
        self._bytes += len(stored.data)
        while self._bytes > self._kept_bytes and len(self._by_id) > 1:
            oldest = next(iter(self._by_id))
            self._bytes -= len(self._by_id.pop(oldest).data)

    def get(self, file_id: str) -> StoredFile | None:
        """Return the file with this id, or None if there is none or it was dropped."""
        return self._by_id.get(file_id)

    def at(self, path: str) -> StoredFile | None:
        """Return the file with this download path, or None."""
        return next((stored for stored in self._by_id.values() if stored.path == path), None)


def _digest(data: bytes, length: int) -> str:
    return base64.urlsafe_b64encode(hashlib.blake2b(data, digest_size=length).digest()).decode().rstrip("=")
