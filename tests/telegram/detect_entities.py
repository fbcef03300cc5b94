"""What Telegram finds in a text by itself: commands, mentions, links. A bot's commands arrive as such entities."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from bot.local_chat.bot_api.formatted_text import PATTERNS, QUOTES, Entity
from tests.telegram import links
from tests.telegram.bare_urls import bare_urls
from tests.telegram.entities import SPLITTABLE, tidy

if TYPE_CHECKING:
    from collections.abc import Iterator


def detect(text: str, marked: list[Entity]) -> list[Entity]:
    """Return the marked entities and those found in the text, except where a link, code or mention is marked."""
    places = [0, *accumulate(1 + (char > "\uffff") for char in text)]
    taken = bytearray(places[-1])
    for entity in marked:
        if entity.type not in {*QUOTES, *SPLITTABLE}:  # bold text or a quote can still contain a link
            taken[entity.offset : entity.end] = b"x" * entity.length
    detected: list[Entity] = []
    for kind, first, last in _candidates(text):
        start, end = places[first], places[last]
        if not any(taken[start:end]):
            taken[start:end] = b"x" * (end - start)
            detected.append(Entity(kind, start, end - start))
    return tidy([*marked, *detected])


def _candidates(text: str) -> Iterator[tuple[str, int, int]]:
    for kind, pattern in PATTERNS:
        for match in pattern.finditer(text):
            if _is_one(kind, match[0]):
                yield kind, match.start(), match.end()
    for start, end in bare_urls(text):
        yield "url", start, end


def _is_one(kind: str, text: str) -> bool:
    return kind != "url" or links.valid(text) is not None
