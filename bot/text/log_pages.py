"""Cuts a job's output into pages for a phone, and finds lines in it. Reads only a bounded part of it at a time.

A page is a stretch between two positions in the output, so that the next older and the next newer page join it.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from bot.text.html import shorten, units
from bot.text.log_excerpt import LOG_BYTES, LONGEST_LINE, QUICK_BYTES, clean, collapsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bot.secrets.redact import Redactor
    from runner.api.chat import Log

    Stretch = tuple[int, int]

PAGE_LINES, MATCHES = 30, 20
PAGE_UNITS = 3600  # a message holds 4096; its first line needs some
CONTEXT = 16 << 10  # bytes around a page that are searched for secrets too: a private key fits in there
SEARCHED_BYTES, SEARCH_S = 64 << 20, 5.0  # how much of an output one search looks at


class LogPage(NamedTuple):
    """A part of an output, ready to show, and where in the output it is."""

    text: str
    begin: int
    end: int
    has_older: bool
    size: int  # of the whole output

    @property
    def has_newer(self) -> bool:
        """Return whether there was output behind this page when it was read."""
        return self.end < self.size


class _Line(NamedTuple):
    begin: int
    end: int
    text: str


def page_before(output: Log, redactor: Redactor, end: int | None = None, most: int = PAGE_LINES) -> LogPage:
    """Return the page that ends at this position; without one, the newest."""
    kept = output.stretches()
    stretch = next((each for each in reversed(kept) if end is None or each[0] < end), kept[0])
    end = stretch[1] if end is None else min(end, stretch[1])
    begin, lines = end, list[_Line]()
    for size in (QUICK_BYTES, LOG_BYTES):  # more is read only if long lines, like progress bars, fill the first part
        begin = max(end - size, stretch[0])
        whole = _without_cut(_lines(output, redactor, stretch, begin, end))
        lines = _fitting(reversed(whole), most)[::-1]
        if begin == stretch[0] or len(lines) < len(whole):
            break
    return _page(lines, lines[0].begin if lines else begin, end, kept)


def page_after(output: Log, redactor: Redactor, begin: int, most: int = PAGE_LINES) -> LogPage:
    """Return the page that begins at this position."""
    kept = output.stretches()
    stretch = next((each for each in kept if each[1] > begin), kept[-1])
    begin = min(max(begin, stretch[0]), stretch[1])
    end, lines = begin, list[_Line]()
    for size in (QUICK_BYTES, LOG_BYTES):
        end = min(begin + size, stretch[1])
        whole = _lines(output, redactor, stretch, begin, end)
        if end < stretch[1] and len(whole) > 1:
            del whole[-1]  # it may go on behind what was read
        lines = _fitting(whole, most)
        if end == stretch[1] or len(lines) < len(whole):
            break
    return _page(lines, begin, lines[-1].end if lines else end, kept)


def find(output: Log, redactor: Redactor, word: str, end: int | None = None) -> LogPage:
    """Return the last lines before this position that contain a word, in capitals or not.

    Only what may be shown is searched, so that nobody can find out a secret by guessing it.
    """
    kept, deadline, found = output.stretches(), time.monotonic() + SEARCH_S, list[_Line]()
    last = at = kept[-1][1] if end is None else end
    least, sought = at - SEARCHED_BYTES, word.lower()
    for stretch in reversed(kept):
        at = min(at, stretch[1])
        while at > stretch[0] and len(found) < MATCHES and at > least and time.monotonic() < deadline:
            begin = max(at - LOG_BYTES, stretch[0])
            data = output.between(begin, at)
            if begin > stretch[0] and (cut := data.find(b"\n") + 1) < len(data):
                begin += cut  # the rest of that line is read with its beginning
            if sought.encode("utf-8", "replace") in data.lower():
                lines = _lines(output, redactor, stretch, begin, at)
                found += [line for line in reversed(lines) if sought in line.text.lower()]
            at = begin
    shown = _fitting(found, MATCHES)[::-1]
    return _page(shown, shown[0].begin if len(shown) < len(found) else at, last, kept)


def _page(lines: Sequence[_Line], begin: int, end: int, kept: Sequence[Stretch]) -> LogPage:
    text = "\n".join(collapsed(line.text for line in lines)).strip("\n")
    return LogPage(text, begin, end, has_older=begin > kept[0][0], size=kept[-1][1])


def _fitting(lines: Iterable[_Line], most: int) -> list[_Line]:
    """Return the first lines that fit a page. A line that repeats the one before takes no room."""
    fitting: list[_Line] = []
    shown, room = 0, PAGE_UNITS
    for line in lines:
        if not fitting or line.text != fitting[-1].text:
            shown, room = shown + 1, room - units(line.text) - 1
        if fitting and (shown > most or room < 0):
            break
        fitting.append(line)
    return fitting


def _without_cut(lines: list[_Line]) -> list[_Line]:
    """Return the lines without the first if it may have begun before what was read, unless it is the only one."""
    return lines[1:] if len(lines) > 1 and lines[0].begin > 0 else lines


def _lines(output: Log, redactor: Redactor, stretch: Stretch, begin: int, end: int) -> list[_Line]:
    """Return the lines between two positions as they may leave the box, each with its place in the output.

    As in `log_excerpt.presentable`, secrets are removed before and after the text is cleaned.
    """
    low = max(begin - CONTEXT, stretch[0])
    data = output.between(low, min(end + CONTEXT, stretch[1]))
    places = {0, begin - low, min(end - low, len(data)), len(data)}
    at = data.find(b"\n") + 1
    while at:
        places.add(at)
        at = data.find(b"\n", at) + 1
    cuts = sorted(places)
    cleaned = [clean(piece.rstrip(b"\n")).encode() for piece in redactor.pieces(data, cuts)]
    ends = [0]
    for piece in cleaned:
        ends.append(ends[-1] + len(piece) + 1)
    again = redactor.pieces(b"\n".join([*cleaned, b""]), ends)
    texts = [shorten(line.decode("utf-8", "replace").rstrip(), LONGEST_LINE, keep="both") for line in again]
    lines = [_Line(low + a, low + b, text) for (a, b), text in zip(pairwise(cuts), texts, strict=True)]
    return [line for line in lines if begin <= line.begin < end]
