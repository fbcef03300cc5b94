"""Tables that fit the terminal."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP = "  "
NARROWEST = 12  # a column that is cut keeps at least this much


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a line, and the colour of one of them."""

    cells: Sequence[str]
    colours: dict[int, str | None] = field(default_factory=dict)


def terminal_width() -> int | None:
    """How wide lines may be; None where nobody looks and nothing need be cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_table(
    headers: Sequence[str], rows: Sequence[Row], *, cut: Sequence[int] = (), right: Sequence[int] = ()
) -> None:
    """Print rows under headers; columns in `cut` give way, the first named first, where the line is too short."""
    columns = list(zip(headers, *(row.cells for row in rows), strict=True))
    widths = [max(map(cells, column)) for column in columns]
    limit = terminal_width()
    if limit is not None:
        widths = _narrowed(widths, limit - len(GAP) * (len(widths) - 1), cut)
    _print_line(Row(headers, dict.fromkeys(range(len(headers)), "bright_black")), widths, right)
    for row in rows:
        _print_line(row, widths, right)


def _narrowed(widths: list[int], limit: int, cut: Sequence[int]) -> list[int]:
    narrowed = list(widths)
    for column in cut:
        over = sum(narrowed) - limit
        if over > 0:
            narrowed[column] = max(min(NARROWEST, narrowed[column]), narrowed[column] - over)
    return narrowed


def _print_line(row: Row, widths: Sequence[int], right: Sequence[int]) -> None:
    parts = []
    for number, (text, width) in enumerate(zip(row.cells, widths, strict=True)):
        shown = shortened(text, width)
        space = " " * (width - cells(shown))
        painted = paint(shown, row.colours.get(number))
        parts.append(space + painted if number in right else painted + space)
    click.echo(GAP.join(parts).rstrip())


def paint(text: str, colour: str | None) -> str:
    """Coloured, unless colours are not wanted; where nobody looks click takes them off again."""
    return click.style(text, fg=colour) if colour and text and not os.environ.get("NO_COLOR") else text


def shortened(text: str, width: int) -> str:
    """The text in at most so many cells, with … where something is left out."""
    if cells(text) <= width:
        return text
    kept, used = [], 1
    for character in text:
        used += _cells_of(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept) + "…"


def cells(text: str) -> int:
    """How much room a text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
