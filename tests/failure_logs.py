"""Logs of real programs that failed. `tests/data/failures/SOURCES.md` says where each of them comes from."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "data" / "failures"
NAMES = sorted(path.stem for path in FOLDER.glob("*.log"))


def output_of(name: str) -> bytes:
    """The output of this program."""
    return (FOLDER / f"{name}.log").read_bytes()
