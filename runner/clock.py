"""Read and write stored times (UTC, ISO 8601, microseconds), and read the monotonic clock for waits."""

from __future__ import annotations

import time
from datetime import datetime, timezone


def now() -> datetime:
    """Return the current time in UTC, with its time zone."""
    return datetime.now(timezone.utc)


def monotonic() -> float:
    """Return seconds of the monotonic clock, for waits within a process."""
    return time.monotonic()


def text(moment: datetime) -> str:
    """Return a time as it is stored: ISO 8601 text, which also sorts by time."""
    return moment.isoformat(timespec="microseconds")


def seconds_since(stored: str, now: datetime) -> float:
    """Return the seconds between a stored time and now; negative if the time is still to come."""
    return (now - datetime.fromisoformat(stored)).total_seconds()


def moment(stored: str | None) -> datetime | None:
    """Parse a stored time, the inverse of `text`. None or "" gives None."""
    return datetime.fromisoformat(stored) if stored else None
