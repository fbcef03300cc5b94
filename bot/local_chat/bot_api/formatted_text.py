"""A message's text as the page shows it: plain text, and entities that say which part is bold, a link or code."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from itertools import accumulate
from typing import Any

Extra = tuple[tuple[str, Any], ...]

KINDS = {
    "b": "bold",
    "i": "italic",
    "u": "underline",
    "s": "strikethrough",
    "a": "text_link",
    "blockquote": "blockquote",
    "code": "code",
    "pre": "pre",
    "tg-time": "date_time",
}
STYLES = frozenset({"bold", "italic", "underline", "strikethrough"})
CODE = frozenset({"code", "pre"})
QUOTES = frozenset({"blockquote", "expandable_blockquote"})
PATTERNS = (
    ("url", re.compile(r"(?<![\w@./])https?://[^\s<>\"]+[^\s<>\".,:;!?'()\[\]{}]", re.IGNORECASE)),
    ("email", re.compile(r"(?<![\w.+-])[A-Za-z0-9][\w.+-]*@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}(?![\w.-])", re.ASCII)),
    ("bot_command", re.compile(r"(?<![\w/<>])/[A-Za-z0-9_]{1,64}(?:@[A-Za-z0-9_]{3,32})?(?![\w/<>@])")),
    ("mention", re.compile(r"(?<![\w@/])@[A-Za-z][A-Za-z0-9_]{1,31}(?![\w@])")),
    ("hashtag", re.compile(r"(?<![\w@/&])#(?!\d+\b)\w{1,256}")),
)
DROPPED = "\r\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u0333\u033f\u030a"
CLEANED = {code: " " for code in range(32) if chr(code) != "\n"} | dict.fromkeys(map(ord, DROPPED))


@dataclass(frozen=True, slots=True)
class Entity:
    """A part of a text and its type. Offset and length count UTF-16 units."""

    type: str
    offset: int
    length: int
    extra: Extra = ()

    @property
    def end(self) -> int:
        """The first unit after it."""
        return self.offset + self.length

    def to_json(self) -> dict[str, Any]:
        """Return the entity as the Bot API shows it."""
        return {"type": self.type, "offset": self.offset, "length": self.length, **dict(self.extra)}


@dataclass(frozen=True, slots=True)
class FormattedText:
    """A text as it is stored and shown."""

    text: str = ""
    entities: tuple[Entity, ...] = ()

    def entities_json(self) -> list[dict[str, Any]]:
        """Return the entities as the Bot API shows them."""
        return [entity.to_json() for entity in self.entities]


def utf16_length(text: str) -> int:
    """Return a text's length as Telegram counts it: characters beyond the basic plane count twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def plain_text(source: str) -> FormattedText:
    """Return plain text as Telegram stores it: cleaned of control characters, and without blanks at its ends."""
    text = source.translate(CLEANED).strip(" \n")
    return FormattedText(text, tuple(_linked(text, [])))


def html_text(source: str) -> FormattedText:
    """Return a text in Telegram's HTML, with the tags that the bot uses. The markup must be correct: tests check it."""
    reader = _HtmlReader()
    reader.feed(source)
    reader.close()
    text = "".join(reader.plain).rstrip(" \n")
    end = utf16_length(text)
    entities = [replace(entity, length=min(entity.end, end) - entity.offset) for entity in reader.entities]
    return FormattedText(text, tuple(_linked(text, [entity for entity in entities if entity.length > 0])))


@dataclass(slots=True)
class _OpenTag:
    kind: str
    offset: int
    extra: Extra


class _HtmlReader(HTMLParser):
    """Collects the plain text and its entities. Code has no other style in it, as with Telegram."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.plain: list[str] = []
        self.entities: list[Entity] = []
        self._offset = 0
        self._open: list[_OpenTag] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a tag. A `code` with a class inside a `pre` gives the block its language."""
        kind, extra = KINDS.get(tag, ""), _extra(tag, dict(attrs))
        code = next((opened for opened in self._open if opened.kind in CODE), None)
        if code is not None:
            kind, code.extra = "", extra or code.extra
        elif kind in CODE:
            self._end_styles()
        elif tag == "blockquote" and ("expandable", None) in attrs:
            kind = "expandable_blockquote"
        self._open.append(_OpenTag(kind, self._offset, extra))

    def handle_data(self, data: str) -> None:
        """Add text between tags."""
        text = data.translate(CLEANED)
        self.plain.append(text)
        self._offset += utf16_length(text)

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 - tags are closed in the order in which they were opened
        """Close the innermost tag."""
        opened = self._open.pop()
        self._add(opened)
        if opened.kind in CODE:
            for outer in self._open:
                outer.offset = self._offset if outer.kind in STYLES else outer.offset

    def _end_styles(self) -> None:
        """End bold and the like where code begins. They go on behind it."""
        for opened in self._open:
            if opened.kind in STYLES:
                self._add(opened)

    def _add(self, opened: _OpenTag) -> None:
        if opened.kind and self._offset > opened.offset:
            extra = () if opened.kind == "code" else opened.extra
            self.entities.append(Entity(opened.kind, opened.offset, self._offset - opened.offset, extra))


def _extra(tag: str, attributes: dict[str, str | None]) -> Extra:
    """Return an entity's extra fields: a link's address, a code block's language, a time."""
    if tag == "a":
        return (("url", attributes.get("href") or ""),)
    if tag == "tg-time":
        return ("unix_time", int(attributes["unix"] or 0)), ("date_time_format", attributes.get("format") or "")
    language = (attributes.get("class") or "").partition("language-")[2] if tag == "code" else ""
    return (("language", language),) if language else ()


def _linked(text: str, marked: list[Entity]) -> list[Entity]:
    """Return the entities together with the commands, links and names that Telegram would find in the text."""
    offsets = [0, *accumulate(1 + (char > "\uffff") for char in text)]
    taken = bytearray(offsets[-1])  # by code and links, which have no link inside
    styles = [entity for entity in marked if entity.type in STYLES | QUOTES]
    for entity in marked:
        if entity.type not in STYLES | QUOTES:
            taken[entity.offset : entity.end] = b"x" * entity.length
    links = []
    for kind, pattern in PATTERNS:
        for match in pattern.finditer(text):
            link = Entity(kind, offsets[match.start()], offsets[match.end()] - offsets[match.start()])
            if not any(taken[link.offset : link.end]) and not any(_cross(style, link) for style in styles):
                taken[link.offset : link.end] = b"x" * link.length
                links.append(link)
    return sorted([*marked, *links], key=lambda entity: (entity.offset, -entity.length))


def _cross(entity: Entity, other: Entity) -> bool:
    """Return whether two entities overlap and neither is inside the other."""
    first, second = sorted((entity, other), key=lambda either: (either.offset, -either.length))
    return second.offset < first.end < second.end
