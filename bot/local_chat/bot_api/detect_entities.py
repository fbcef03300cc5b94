"""What Telegram finds in a text by itself: commands, mentions, links. A bot's commands arrive as such entities."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING

from bot.local_chat.bot_api import links
from bot.local_chat.bot_api.bare_urls import bare_urls
from bot.local_chat.bot_api.entities import QUOTES, SPLITTABLE, Entity, tidy

if TYPE_CHECKING:
    from collections.abc import Iterator

PATTERNS = (
    ("url", re.compile(r"(?<![\w@./])https?://[^\s<>\"]+[^\s<>\".,:;!?'()\[\]{}]", re.IGNORECASE)),
    ("email", re.compile(r"(?<![\w.+-])[A-Za-z0-9][\w.+-]*@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}(?![\w.-])", re.ASCII)),
    ("bot_command", re.compile(r"(?<![\w/<>])/[A-Za-z0-9_]{1,64}(?:@[A-Za-z0-9_]{3,32})?(?![\w/<>@])")),
    ("mention", re.compile(r"(?<![\w@/])@[A-Za-z][A-Za-z0-9_]{1,31}(?![\w@])")),
    ("hashtag", re.compile(r"(?<![\w@/&])#(?!\d+\b)\w{1,256}")),
)


def detect(text: str, known: list[Entity]) -> list[Entity]:
    """Return the known entities and those found in the text. What overlaps a known link, code or mention is skipped."""
    places = [0, *accumulate(1 + (char > "\uffff") for char in text)]
    taken = bytearray(places[-1])
    for entity in known:
        if entity.type not in {*QUOTES, *SPLITTABLE}:  # bold text or a quote can still contain a link
            taken[entity.offset : entity.end] = b"x" * entity.length
    found: list[Entity] = []
    for kind, first, last in _candidates(text):
        start, end = places[first], places[last]
        if not any(taken[start:end]):
            taken[start:end] = b"x" * (end - start)
            found.append(Entity(kind, start, end - start))
    return tidy([*known, *found])


def _candidates(text: str) -> Iterator[tuple[str, int, int]]:
    for kind, pattern in PATTERNS:
        for match in pattern.finditer(text):
            if _is_one(kind, match[0]):
                yield kind, match.start(), match.end()
    for start, end in bare_urls(text):
        yield "url", start, end


def _is_one(kind: str, text: str) -> bool:
    return kind != "url" or links.valid(text) is not None
