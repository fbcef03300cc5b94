"""Times as they are written down: UTC, ISO 8601, microseconds. And the clock for waits, which nobody sets."""

from __future__ import annotations

import time
from datetime import datetime, timezone


def now() -> datetime:
    """This moment, aware of being UTC."""
    return datetime.now(timezone.utc)


def monotonic() -> float:
    """Seconds by a clock that only goes forward, for waits within a process."""
    return time.monotonic()


def text(moment: datetime) -> str:
    """As stored and shown to programs; sorts as text."""
    return moment.isoformat(timespec="microseconds")


def moment(stored: str | None) -> datetime | None:
    """The inverse of text."""
    return datetime.fromisoformat(stored) if stored else None
