"""Text in Telegram's HTML mode: escaped, measured as Telegram measures it, and cut to fit. Pure."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

Keep = Literal["start", "end", "both"]

MESSAGE_UNITS = 4096
CAPTION_UNITS = 1024
RAW_BYTES = 32_000
"""Telegram refuses 32,768 bytes of text and markup. This leaves some room for other fields."""
ELLIPSIS = "…"
_UNKNOWN = "\ufffd"

_LINE_END = re.compile("\r\n|[\u2028\u2029\x85]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
# Characters that change the text direction, code points that are not characters, and lone surrogates.
_MISLEADING = re.compile(
    "[\x80-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]",
)
# Characters of no width, which could hide in a name or a command, and three marks that Telegram removes.
_INVISIBLE = re.compile(
    "[\u00ad\u030a\u0333\u033f\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0d\ufeff"
    "\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# A joiner belongs in an emoji or in a script that needs it. Anywhere else it is just invisible.
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
    """Return the text without characters that are invisible, change its direction or are refused by Telegram."""
    if not _ODD.search(text):
        return text
    text = _LINE_END.sub("\n", text)
    text = _CONTROL.sub(_picture, text)
    text = _MISLEADING.sub(_UNKNOWN, text)
    text = _INVISIBLE.sub("", text)
    text = LOOSE_JOINER.sub("", text)
    return _MARKS.sub(r"\1", text)


def _picture(control: re.Match[str]) -> str:
    """Return the visible symbol of a control character, like ␛."""
    return "\u2421" if control[0] == "\x7f" else chr(0x2400 + ord(control[0]))


def escape(text: str) -> str:
    """Return HTML that shows exactly this text."""
    return printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def bold(text: str) -> str:
    """Return the text in bold."""
    return f"<b>{escape(text)}</b>"


def italic(text: str) -> str:
    """Return the text in italics."""
    return f"<i>{escape(text)}</i>"


def code(text: str) -> str:
    """Return the text in monospace. A tap copies it."""
    return f"<code>{escape(text)}</code>"


def pre(text: str) -> str:
    """Return the text as a code block."""
    return f"<pre>{escape(text)}</pre>"


def local_time(moment: datetime, text: str) -> str:
    """Return a time that Telegram and the page show in the reader's own zone. The text says it for other programs."""
    shape = "d" if "-" in text else "wt" if " " in text else "T" if text.count(":") > 1 else "t"
    return f'<tg-time unix="{moment.timestamp():.0f}" format="{shape}">{escape(text)}</tg-time>'


def link(text: str, url: str) -> str:
    """Return the text as a link, or as plain text if the address is not a usual http(s) one."""
    if printable(url) != url or not _LINK.fullmatch(url):
        return escape(text)
    return f'<a href="{escape(url).replace(chr(34), "&quot;")}">{escape(text)}</a>'


def units(text: str) -> int:
    """Return the length of a plain text as Telegram counts it, in UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def visible_units(html: str) -> int:
    """Return the length of HTML as Telegram counts it, without its markup."""
    return units(_REFERENCE.sub("x", TAG.sub("", html)))


def shorten(text: str, limit: int, *, keep: Keep = "start") -> str:
    """Return the text cut to at most `limit` units, with … where something was left out."""
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
    """Move `at` by `step` until it splits no combined character. Gives up after 16 steps."""
    for _ in range(16):
        if not 0 < at < len(text) or not _belong_together(text[at - 1], text[at]):
            break
        at += step
    return at


def _belong_together(before: str, after: str) -> bool:
    return (
        _ZWJ in (before, after)
        or unicodedata.category(after).startswith("M")
        or "\U0001f3fb" <= after <= "\U0001f3ff"  # skin tone
        or ("\U0001f1e6" <= before <= "\U0001f1ff" and "\U0001f1e6" <= after <= "\U0001f1ff")  # halves of a flag
        or (before == "\r" and after == "\n")
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
    )


@dataclass(frozen=True, slots=True)
class Shrink:
    """Plain text that may be shortened to make the message fit. It keeps `at_least` units if possible."""

    text: str
    render: Callable[[str], str] = pre
    keep: Keep = "end"
    at_least: int = 0


def fit(parts: Sequence[str | Shrink], limit: int = MESSAGE_UNITS) -> str:
    """Return one message made of HTML and of texts that may shrink. It is never too long and never empty.

    If the fixed parts alone are too long, the message loses its formatting and, if needed, its middle.
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
    """Return the text ready to show. Of a huge text, only the part that could fit is processed."""
    text = printable(shorten(part.text, 8 * limit, keep=part.keep))
    return "" if _BLANK.fullmatch(text) else text


def _excess(html: str, limit: int) -> int:
    """Return how many units must go. A unit takes at most five bytes of HTML."""
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
    """Return how many units each text gets: first its minimum, then equal shares of the rest, short texts first."""
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
    """Return what somebody typed, cut to 40 units, to quote it back."""
    return shorten(printable(text), 40)
