"""Example outputs for the progress reader: what a program prints and when, and what is to be read from it.

The first line of a file in tests/data/progress is a JSON object: the format, its source, and the expected values. Each
other line has the seconds since the start, a tab, and the text with `\\r` and `\\e` written out. Files in
tests/data/no_progress are outputs without progress, as programs print them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).parent / "data"


class Fixture(NamedTuple):
    """One example output."""

    name: str
    expected: dict[str, Any]
    lines: list[tuple[float, str]]


def fixtures() -> list[Fixture]:
    return [_fixture(path) for path in sorted((DATA / "progress").glob("*.txt"))]


def no_progress() -> list[Path]:
    return sorted((DATA / "no_progress").glob("*.txt"))


def _fixture(path: Path) -> Fixture:
    head, *rows = path.read_text().splitlines()
    lines = []
    for row in rows:
        at, tab, text = row.partition("\t")
        if tab:
            lines.append((float(at), text.replace("\\r", "\r").replace("\\e", "\x1b")))
    return Fixture(path.stem, json.loads(head.removeprefix("# ")), lines)
