"""Formats every text just before it is sent: what Telegram would turn into a link becomes code. Pure.

Telegram links `train.py` to a site in Paraguay and `/data` to a command. A tap on `/kill 12` sends only `/kill`.
In our sentences, text for the reader to type is in backticks, as at the terminal. It becomes code that a tap copies.
"""

from __future__ import annotations

import re
from html import unescape

from bot.commands import BY_NAME
from bot.text.html import code, escape

NO_BREAK = "\u00a0"
_TAG = re.compile(r"(<[^<>]*>)")
_SOLID = re.compile(r"<(/?)(?:code|pre|a)\b")  # Telegram makes no links inside these
_TYPED = re.compile(r"`([^`]+)`")
_UNIT = re.compile(r"(?<=\d) (?=(?:[KMGT]i?B|°C|ms|min|[Whs])\b|%)")
_WORD = re.compile(r"\S+")
# Matches more than Telegram links, so that all file names look alike and no list of domains is needed.
_DOTTED = re.compile(r"[^\s.]\.[^\W\d_]{2}|\d\.\d+\.\d+\.\d")
_COMMAND = re.compile(r"(?<!\w)/(\w+)")
_BEFORE, _BEHIND = "([{\"'“‘«", ".,;:!?)]}\"'”’»…"


def finished(html: str) -> str:
    """Return the text with file names, paths and text in backticks as code, and no line break before a unit."""
    done, solid = [], 0
    for piece in _TAG.split(html):
        if tag := _SOLID.match(piece):
            solid += -1 if tag[1] else 1
        done.append(piece if solid or piece.startswith("<") else _text(unescape(piece)))
    return "".join(done)


def plain(text: str) -> str:
    """Return a text for the pop-up of a pressed button, which has no markup: no backticks, no break before a unit."""
    return _UNIT.sub(NO_BREAK, _TYPED.sub(r"\1", text))


def _text(text: str) -> str:
    parts = _TYPED.split(text)  # every second part was in backticks
    return "".join(
        code(part) if at % 2 else _WORD.sub(_word, _UNIT.sub(NO_BREAK, part)) for at, part in enumerate(parts)
    )


def _word(match: re.Match[str]) -> str:
    word = match[0]
    tail = word[len(word.rstrip(_BEHIND)) :]
    core = word.removesuffix(tail).lstrip(_BEFORE)
    if not _would_be_link(core):
        return escape(word)
    head = word[: len(word) - len(tail) - len(core)]
    return f"{escape(head)}{code(core)}{escape(tail)}"


def _would_be_link(word: str) -> bool:
    if word.startswith(("http://", "https://")):
        return False  # it is meant as a link
    return bool(_DOTTED.search(word)) or any(name not in BY_NAME for name in _COMMAND.findall(word))
