"""What `nightshift doctor` checks, one file per subject, and the result of one check."""

from __future__ import annotations

from typing import NamedTuple

OK, INFO, WARN, FAIL = "ok", "info", "warn", "fail"


class Finding(NamedTuple):
    """What was checked, what was found, and how to fix it."""

    level: str
    name: str
    text: str
    fix: str | None = None


def verdict(good: bool, name: str, text: str, otherwise: str, fix: str, *, level: str = FAIL) -> Finding:
    """Return an OK finding with `text`, or one at `level` with `otherwise` and the fix."""
    return Finding(OK, name, text) if good else Finding(level, name, otherwise, fix)
