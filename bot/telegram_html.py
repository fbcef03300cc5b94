"""Text in Telegram's HTML mode: escaped, measured as Telegram measures it, and cut to fit. Pure."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Keep = Literal["start", "end", "both"]

MESSAGE_UNITS = 4096
CAPTION_UNITS = 1024
RAW_BYTES = 32_000
"""Telegram refuses 32,768 bytes of markup and text; a little room is left for what is sent along."""
ELLIPSIS = "…"
_UNKNOWN = "\ufffd"

_LINE_END = re.compile("\r\n|[\u2028\u2029\x85]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
# What turns the direction of a line, what is no character at all, and halves of surrogate pairs.
_MISLEADING = re.compile(
    "[\x80-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]",
)
# What takes no room on the screen and so could hide in a name or a command, and three marks Telegram takes out.
_INVISIBLE = re.compile(
    "[\u00ad\u030a\u0333\u033f\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0d\ufeff"
    "\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# A joiner is part of an emoji or of a script that needs it; anywhere else it is only invisible.
_PLAIN = "\x00-\u05ff\u2000-\u206f"
LOOSE_JOINER = re.compile(f"(?<![^{_PLAIN}])[\u200c\u200d]|[\u200c\u200d](?![^{_PLAIN}])")
_MARK = "[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]"
_MARKS = re.compile(f"({_MARK}{{3}}){_MARK}+")
_ODD = re.compile("[^\t\n -~]")
_BLANK = re.compile("[\\s\u2800\ufffc]*")
TAG = re.compile(r"<[^<>]*>")
_REFERENCE = re.compile(r"&(?:lt|gt|amp|quot);")
_LINK = re.compile(r"https?://[^\s\x00-\x20\x7f-\x9f@/?#\\]+(?:[/?#][^\s\x00-\x20\x7f-\x9f\\]*)?", re.IGNORECASE)
_ZWJ = "\u200d"


def printable(text: str) -> str:
    """The text as it can be shown: nothing in it is invisible, turns the line round or is refused."""
    if not _ODD.search(text):
        return text
    text = _LINE_END.sub("\n", text)
    text = _CONTROL.sub(_picture, text)
    text = _MISLEADING.sub(_UNKNOWN, text)
    text = _INVISIBLE.sub("", text)
    text = LOOSE_JOINER.sub("", text)
    return _MARKS.sub(r"\1", text)


def _picture(found: re.Match[str]) -> str:
    """The visible sign of a control character, such as ␛."""
    return "\u2421" if found[0] == "\x7f" else chr(0x2400 + ord(found[0]))


def escape(text: str) -> str:
    """Plain text as HTML that shows just that text."""
    return printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def bold(text: str) -> str:
    """The text in bold."""
    return f"<b>{escape(text)}</b>"


def italic(text: str) -> str:
    """The text in italics."""
    return f"<i>{escape(text)}</i>"


def code(text: str) -> str:
    """The text in a typewriter's letters; a tap copies it."""
    return f"<code>{escape(text)}</code>"


def pre(text: str) -> str:
    """The text as a block of code."""
    return f"<pre>{escape(text)}</pre>"


def quote(text: str, expandable: bool = True) -> str:
    """The text as a quotation, of which only the beginning shows until it is tapped."""
    tag = "blockquote expandable" if expandable else "blockquote"
    return f"<{tag}>{escape(text)}</blockquote>"


def link(text: str, url: str) -> str:
    """The text as a link; plain text if the address is not an ordinary one of the web."""
    if printable(url) != url or not _LINK.fullmatch(url):
        return escape(text)
    return f'<a href="{escape(url).replace(chr(34), "&quot;")}">{escape(text)}</a>'


def units(text: str) -> int:
    """How long Telegram finds a plain text, in UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def visible_units(html: str) -> int:
    """How long Telegram finds HTML once its markup is taken out."""
    return units(_REFERENCE.sub("x", TAG.sub("", html)))


def shorten(text: str, limit: int, *, keep: Keep = "start") -> str:
    """Plain text of at most `limit` units, with … where something was left out."""
    if units(text) <= limit:
        return text
    room = limit - 1
    if room <= 0:
        return ELLIPSIS[: max(limit, 0)]
    if keep == "start":
        return _start(text, room) + ELLIPSIS
    if keep == "end":
        return ELLIPSIS + _end(text, room)
    return _start(text, room - room // 2) + ELLIPSIS + _end(text, room // 2)


def _start(text: str, room: int) -> str:
    at = min(room, len(text))
    while (over := units(text[:at]) - room) > 0:
        at -= (over + 1) // 2
    return text[: _boundary(text, at, -1)]


def _end(text: str, room: int) -> str:
    at = max(len(text) - room, 0)
    while (over := units(text[at:]) - room) > 0:
        at += (over + 1) // 2
    return text[_boundary(text, at, 1) :]


def _boundary(text: str, at: int, step: int) -> int:
    """The nearest place that way where no sign is torn apart; a long run of marks is torn all the same."""
    for _ in range(16):
        if not 0 < at < len(text) or not _belong_together(text[at - 1], text[at]):
            break
        at += step
    return at


def _belong_together(before: str, after: str) -> bool:
    return (
        _ZWJ in (before, after)
        or unicodedata.category(after).startswith("M")
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # the colour of a skin
        or ("\U0001f1e6" <= before <= "\U0001f1ff" and "\U0001f1e6" <= after <= "\U0001f1ff")  # halves of a flag
        or (before == "\r" and after == "\n")
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
    )


@dataclass(frozen=True, slots=True)
class Shrink:
    """Plain text in a message that gives way so that the rest has room; `at_least` units of it stay if they can."""

    text: str
    render: Callable[[str], str] = pre
    keep: Keep = "end"
    at_least: int = 0


def fit(parts: Sequence[str | Shrink], limit: int = MESSAGE_UNITS) -> str:
    """One message from HTML and from texts that shrink; never too long, never empty.

    Where even the fixed parts are too long their formatting is lost rather than the message.
    """
    texts = {at: _shown(part, limit) for at, part in enumerate(parts) if isinstance(part, Shrink)}
    room = sum(units(text) for text in texts.values())
    html = _joined(parts, texts, room)
    while room > 0 and (over := _excess(html, limit)) > 0:
        room = max(room - over, 0)
        html = _joined(parts, texts, room)
    if _excess(html, limit) > 0:
        html = escape(shorten(unescape(TAG.sub("", html)), limit, keep="both"))
    return html if _BLANK.fullmatch(TAG.sub("", html)) is None else ELLIPSIS


def _shown(part: Shrink, limit: int) -> str:
    """A text as it will be shown; of a huge one no more is looked at than could be."""
    text = printable(shorten(part.text, 8 * limit, keep=part.keep))
    return "" if _BLANK.fullmatch(text) else text


def _excess(html: str, limit: int) -> int:
    """How many units must go; a unit takes at most five bytes of HTML."""
    return max(visible_units(html) - limit, (len(html.encode("utf-8", "surrogatepass")) - RAW_BYTES + 4) // 5)


def _joined(parts: Sequence[str | Shrink], texts: dict[int, str], room: int) -> str:
    shares = _shares(parts, texts, room)
    done = []
    for at, part in enumerate(parts):
        if isinstance(part, str):
            done.append(part)
        elif text := shorten(texts[at], shares[at], keep=part.keep):
            done.append(part.render(text))
    return "".join(done)


def _shares(parts: Sequence[str | Shrink], texts: dict[int, str], room: int) -> dict[int, int]:
    """How many units each text gets: first what it must have, then level by level, the short ones whole."""
    wants = {at: units(text) for at, text in texts.items()}
    shares = {at: min(wants[at], part.at_least) for at, part in enumerate(parts) if isinstance(part, Shrink)}
    if (least := sum(shares.values())) > room:
        return {at: share * room // least for at, share in shares.items()}
    left = room - least
    open_ends = sorted((at for at in wants if wants[at] > shares[at]), key=lambda at: wants[at] - shares[at])
    for number, at in enumerate(open_ends):
        more = min(wants[at] - shares[at], left // (len(open_ends) - number))
        shares[at] += more
        left -= more
    return shares


def quoted(text: str) -> str:
    """What somebody typed, short enough to be quoted back."""
    return shorten(printable(text), 40)
