"""Finds what is in a text but not visible: escapes, control and zero-width characters, erased text. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

ESCAPES = (
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[PX^_][^\x1b\n]*(?:\x1b\\)?|[ -/]*[0-~])?"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
"""Sequences that a terminal obeys and does not show."""
# Control characters, bytes that are no text (as Python decodes them), combining marks, characters without width.
_NO_ROOM = (
    "\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u1ab0-\u1aff"
    "\u1dc0-\u1dff\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20d0-\u20ff\u3164\ud800-\udfff\ufe00-\ufe0f\ufe20-\ufe2f\ufeff"
    "\uffa0\ufff9-\uffff\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSEEN = re.compile(f"{ESCAPES}|\b+|[{_NO_ROOM}]+")
_ODD = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\xff]")


class Seen(NamedTuple):
    """The visible part of some bytes, and where each piece of it is in the original."""

    plain: bytes
    begins: list[int]
    places: list[int]

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """Return where a stretch of the visible part is in the original."""
        return self._place(begin), self._place(end - 1) + 1

    def _place(self, at: int) -> int:
        piece = bisect_right(self.begins, at) - 1
        return self.places[piece] + at - self.begins[piece]


def seen(data: bytes) -> Seen | None:
    """Return the visible part of a text; None if all of it is visible."""
    if not _ODD.search(data):
        return None
    text = data.decode("utf-8", "surrogateescape")
    stretches = _visible(text)
    if stretches == [(0, len(text))]:
        return None
    pieces, begins, places = [], [], []
    length = place = at = 0
    for begin, end in stretches:
        place += len(text[at:begin].encode("utf-8", "surrogateescape"))
        pieces.append(text[begin:end].encode("utf-8", "surrogateescape"))
        begins.append(length)
        places.append(place)
        length += len(pieces[-1])
        place, at = place + len(pieces[-1]), end
    return Seen(b"".join(pieces), begins, places)


def _visible(text: str) -> list[tuple[int, int]]:
    """Return the visible stretches of a text."""
    stretches: list[tuple[int, int]] = []
    at = 0
    for match in _UNSEEN.finditer(text):
        if match.start() > at:
            stretches.append((at, match.start()))
        at = match.end()
        if match[0][0] == "\b":
            _erase(text, stretches, len(match[0]))
    return [*stretches, (at, len(text))] if at < len(text) else stretches


def _erase(text: str, stretches: list[tuple[int, int]], count: int) -> None:
    """Remove the last `count` characters, but not beyond their line."""
    while count and stretches:
        begin, end = stretches.pop()
        stays = max(end - count, begin, text.rfind("\n", max(end - count, begin), end) + 1)
        if stays > begin:
            stretches.append((begin, stays))
            return
        count -= end - begin
