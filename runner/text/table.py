"""Tables that fit the terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GAP = "  "
NARROWEST = 12  # cells that a shortened column keeps at least
_COLOURS = {"red": 31, "green": 32, "yellow": 33, "cyan": 36, "bright_black": 90}  # codes of ECMA-48


class Row(NamedTuple):
    """The cells of one line, and the colours of some of them, by column."""

    cells: Sequence[str]
    colours: Mapping[int, str | None] | None = None


def terminal_width() -> int | None:
    """Return the width of the terminal, or None if stdout is not a terminal: then nothing is cut."""
    if not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def print_table(
    headers: Sequence[str], rows: Sequence[Row], *, cut: Sequence[int] = (), right: Sequence[int] = ()
) -> None:
    """Print rows under headers. If lines are too long, shorten the columns in `cut`, in that order."""
    for line in table_lines(headers, rows, cut=cut, right=right):
        print(line)


def table_lines(
    headers: Sequence[str], rows: Sequence[Row], *, cut: Sequence[int] = (), right: Sequence[int] = ()
) -> list[str]:
    """Return the lines of such a table."""
    columns = list(zip(headers, *(row.cells for row in rows), strict=True))
    widths = [max(map(cells, column)) for column in columns]
    limit = terminal_width()
    if limit is not None:
        widths = _narrowed(widths, limit - len(GAP) * (len(widths) - 1), cut)
    header = Row(headers, dict.fromkeys(range(len(headers)), "bright_black"))
    return [_line(row, widths, right) for row in (header, *rows)]


def _narrowed(widths: list[int], limit: int, cut: Sequence[int]) -> list[int]:
    narrowed = list(widths)
    for column in cut:
        over = sum(narrowed) - limit
        if over > 0:
            narrowed[column] = max(min(NARROWEST, narrowed[column]), narrowed[column] - over)
    return narrowed


def _line(row: Row, widths: Sequence[int], right: Sequence[int]) -> str:
    parts = []
    for number, (text, width) in enumerate(zip(row.cells, widths, strict=True)):
        shown = shortened(text, width)
        space = " " * (width - cells(shown))
        painted = paint(shown, row.colours.get(number) if row.colours else None)
        parts.append(space + painted if number in right else painted + space)
    return GAP.join(parts).rstrip()


def paint(text: str, colour: str | None) -> str:
    """Return the text in this colour, unless NO_COLOR is set or stdout is not a terminal."""
    if not (colour and text and sys.stdout.isatty()) or os.environ.get("NO_COLOR"):
        return text
    return f"\033[{_COLOURS[colour]}m{text}\033[0m"


def shortened(text: str, width: int) -> str:
    """Return the text in at most `width` cells, with … at the end if it was cut."""
    if cells(text) <= width:
        return text
    shown, used = [], 1
    for character in text:
        used += _cells_of(character)
        if used > width:
            break
        shown.append(character)
    return "".join(shown) + "…"


def cells(text: str) -> int:
    """Return how many terminal cells a text takes."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    import unicodedata

    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
