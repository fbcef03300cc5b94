"""One thing the doctor found."""

from __future__ import annotations

from typing import NamedTuple

OK, INFO, WARN, FAIL = "ok", "info", "warn", "fail"


class Finding(NamedTuple):
    """What was looked at, how it is, and how to mend it."""

    level: str
    name: str
    text: str
    fix: str | None = None


def verdict(good: bool, name: str, text: str, otherwise: str, fix: str, *, level: str = FAIL) -> Finding:
    """Good or not, in one line."""
    return Finding(OK, name, text) if good else Finding(level, name, otherwise, fix)
