"""The size of a picture, from its header."""

from __future__ import annotations

import struct

JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def dimensions(data: bytes) -> tuple[int, int] | None:
    """Return width and height of a PNG, GIF or JPEG, or None for anything else."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            width, height = struct.unpack_from(">II", data, 16)
        elif data.startswith((b"GIF87a", b"GIF89a")):
            width, height = struct.unpack_from("<HH", data, 6)
        elif data.startswith(b"\xff\xd8"):
            return _jpeg(data)
        else:
            return None
    except struct.error:
        return None
    return width, height


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        (length,) = struct.unpack_from(">H", data, at + 2)
        if data[at + 1] in JPEG_SIZES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + length
    return None
