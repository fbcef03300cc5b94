"""Telegram's HTML: a few tags, a few escapes, and errors for everything else.

It is not a browser's HTML: an unknown tag, a lone `<` or an unclosed tag makes Telegram refuse the whole message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from bot.local_chat.bot_api.formatted_text import Entity, utf16_length
from tests.telegram import links
from tests.telegram.api_errors import bad_request
from tests.telegram.entities import in_order

SIMPLE = {
    "b": "bold",
    "strong": "bold",
    "i": "italic",
    "em": "italic",
    "u": "underline",
    "ins": "underline",
    "s": "strikethrough",
    "strike": "strikethrough",
    "del": "strikethrough",
    "span": "spoiler",
    "tg-spoiler": "spoiler",
}
TAGS = frozenset({*SIMPLE, "a", "pre", "code", "blockquote", "tg-emoji", "tg-time"})
NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
REFERENCE = re.compile(r"&(?:#x([0-9A-Fa-f]*)|#([0-9]*)|([A-Za-z]*))(;?)")
TEXT = re.compile(r"[^<]+")
SURROGATE = re.compile("[\ud800-\udfff]")
SPACES = re.compile(r"[ \t\r\n\v\0]*")
TAG_NAME = re.compile(r"[^ \t\r\n\v\0>]*")
ATTRIBUTE = re.compile(r"[^ \t\r\n\v\0=>/\"']*")
TOKEN = re.compile(r"[A-Za-z0-9.\-]*")


@dataclass(slots=True)
class _Open:
    """A start tag that waits for its end tag."""

    tag: str
    attributes: dict[str, str]
    offset: int
    begins: int


def parse_html(source: str) -> tuple[str, list[Entity]]:
    """Return the plain text and its entities. Refuse what Telegram refuses."""
    return _Parser(source).parse()


def decode_references(text: str) -> str:
    """Replace &lt; and similar references. Unknown ones stay as they are."""
    return REFERENCE.sub(lambda reference: _character(reference) or reference[0], text)


def _character(reference: re.Match[str]) -> str | None:
    hexadecimal, decimal, name, _ = reference.groups()
    if name is not None:
        return NAMED.get(name)
    if len(reference[0].rstrip(";")) >= 10:
        return None
    digits, base = (hexadecimal, 16) if hexadecimal is not None else (decimal, 10)
    code = int(digits or "0", base)
    return chr(code) if 0 < code < 0x10FFFF else None


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0
        self.plain: list[str] = []
        self.offset = 0
        self.open: list[_Open] = []
        self.entities: list[Entity] = []

    def parse(self) -> tuple[str, list[Entity]]:
        while self.at < len(self.source):
            self._step()
        if self.open:
            raise _refusal(f'Can\'t find end tag corresponding to start tag "{self.open[-1].tag}"')
        text = "".join(self.plain)
        if SURROGATE.search(text):
            raise _refusal(
                "Text contains invalid Unicode characters after decoding HTML entities, "
                "check for unmatched surrogate code units"
            )
        return text, in_order(replace(entity, extra=_shown(entity)) for entity in self.entities)

    def _step(self) -> None:
        if run := TEXT.match(self.source, self.at):
            text = decode_references(run[0])
            self.plain.append(text)
            self.offset += utf16_length(text)
            self.at = run.end()
        elif self.source.startswith("</", self.at):
            self._end_tag()
        else:
            self._start_tag()

    def _peek(self) -> str:
        """Return the current character, empty at the end."""
        return self.source[self.at : self.at + 1]

    def _read(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.source, self.at)
        assert match is not None
        self.at = match.end()
        return match[0]

    def _start_tag(self) -> None:
        begin = self.at
        self.at += 1
        tag = self._read(TAG_NAME).lower()
        if not self._peek():
            raise _refusal("Unclosed start tag", self.source, begin)
        if tag not in TAGS:
            raise _refusal(f'Unsupported start tag "{tag}"', self.source, begin)
        attributes = self._attributes(tag, begin)
        if tag == "span" and attributes.get("class") != "tg-spoiler":
            raise _refusal('Tag "span" must have class "tg-spoiler"', self.source, begin)
        self.open.append(_Open(tag, attributes, self.offset, len(self.plain)))
        self.at += 1

    def _attributes(self, tag: str, begin: int) -> dict[str, str]:
        attributes: dict[str, str] = {}
        while self._peek() != ">":
            self._read(SPACES)
            if self._peek() == ">":
                break
            name = self._read(ATTRIBUTE)
            if not name:
                raise _refusal(f'Empty attribute name in the tag "{tag}"', self.source, begin)
            self._read(SPACES)
            attributes[name] = self._value(tag, begin)
        return attributes

    def _value(self, tag: str, begin: int) -> str:
        """Read what follows an attribute's name. Without a value it is the empty string."""
        if self._peek() == "=":
            self.at += 1
            self._read(SPACES)
            if self._peek():
                value = self._quoted() if self._peek() in "'\"" else self._token()
                if not self._peek():
                    raise _refusal("Unclosed start tag", self.source, begin)
                return value
        if not self._peek():
            raise _refusal(f'Unclosed start tag "{tag}"', self.source, begin)
        return ""

    def _quoted(self) -> str:
        quote = self._peek()
        start = self.at + 1
        end = self.source.find(quote, start)
        self.at = len(self.source) if end < 0 else end + 1
        return decode_references(self.source[start : None if end < 0 else end])

    def _token(self) -> str:
        begin = self.at
        token = self._read(TOKEN).lower()
        if self._peek() and self._peek() not in " \t\r\n\v\0>":
            raise _refusal("Unexpected end of name token", self.source, begin)
        return token

    def _end_tag(self) -> None:
        begin = self.at
        if not self.open:
            raise _refusal("Unexpected end tag", self.source, begin)
        self.at += 2
        tag = self._read(TAG_NAME).lower()
        self._read(SPACES)
        if self._peek() != ">":
            raise _refusal("Unclosed end tag", self.source, begin)
        opened = self.open[-1]
        if tag not in {"", opened.tag}:
            expected = f', expected "</{opened.tag}>", found "</{tag}>"'
            raise _refusal("Unmatched end tag", self.source, begin, expected)
        self.at += 1
        self.open.pop()
        if self.offset > opened.offset:
            self._close(opened)

    def _close(self, opened: _Open) -> None:
        kind, extra = self._meaning(opened)
        entity = Entity(kind, opened.offset, self.offset - opened.offset, extra)
        last = self.entities[-1] if self.entities else None
        twins = last is not None and (last.offset, last.length) == (entity.offset, entity.length)
        if twins and last is not None and {kind, last.type} == {"pre", "code"} and (language := last.extra or extra):
            self.entities[-1] = replace(entity, type="pre", extra=language)
        elif kind:
            self.entities.append(entity)

    def _meaning(self, opened: _Open) -> tuple[str, tuple[tuple[str, Any], ...]]:
        """Return an entity's type and extra fields. The type is empty if the tag leaves no entity."""
        attributes = opened.attributes
        if opened.tag in SIMPLE:
            return SIMPLE[opened.tag], ()
        if opened.tag == "a":
            return _link(attributes.get("href") or "".join(self.plain[opened.begins :]))
        if opened.tag == "code":
            language = attributes.get("class", "").removeprefix("language-")
            return "code", (("language", language),) if language != attributes.get("class", "") else ()
        if opened.tag == "blockquote":
            return ("expandable_blockquote" if "expandable" in attributes else "blockquote"), ()
        if opened.tag == "tg-emoji":
            return _custom_emoji(attributes.get("emoji-id", ""))
        return ("pre", ()) if opened.tag == "pre" else _time(attributes)


def _shown(entity: Entity) -> tuple[tuple[str, Any], ...]:
    """Return the extra fields to show: only a code block has a language."""
    return () if entity.type == "code" else entity.extra


def _link(url: str) -> tuple[str, tuple[tuple[str, Any], ...]]:
    user_id = links.linked_user(url)
    if user_id is not None:
        return "text_mention", (("user_id", user_id),)
    target = links.valid(url)
    return ("text_link", (("url", target),)) if target else ("", ())


def _custom_emoji(number: str) -> tuple[str, tuple[tuple[str, Any], ...]]:
    if not re.fullmatch(r"-?\d+", number) or int(number) == 0:
        raise _refusal("Invalid custom emoji identifier specified")
    return "custom_emoji", (("custom_emoji_id", number),)


def _time(attributes: dict[str, str]) -> tuple[str, tuple[tuple[str, Any], ...]]:
    unix, shape = attributes.get("unix", ""), attributes.get("format", "")
    if not re.fullmatch(r"[1-9][0-9]{0,9}", unix):
        raise _refusal("Invalid Unix time specified")
    if not re.fullmatch(r"r|w?[dD]?[tT]?", shape):
        raise _refusal("Invalid date-time format specified")
    return "date_time", (("unix_time", int(unix)), ("date_time_format", shape))


def _refusal(text: str, source: str | None = None, at: int = 0, more: str = "") -> Exception:
    place = "" if source is None else f" at byte offset {len(source[:at].encode())}"
    return bad_request(f"can't parse entities: {text}{place}{more}")
