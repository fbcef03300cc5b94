"""Read and write stored times (UTC, ISO 8601, microseconds), and read the monotonic clock for waits."""

from __future__ import annotations

import contextlib
import time
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

_zone: ContextVar[tzinfo | None] = ContextVar("zone", default=None)
_zone_note: ContextVar[str] = ContextVar("zone_note", default="")


@contextlib.contextmanager
def read_in(zone: tzinfo | None, note: str = "") -> Iterator[None]:
    """Show and read local times in this zone inside the block; None is the box's. The note names it in answers."""
    zone_before, note_before = _zone.set(zone), _zone_note.set(note)
    try:
        yield
    finally:
        _zone.reset(zone_before)
        _zone_note.reset(note_before)


def local(moment: datetime) -> datetime:
    """Return a time in the zone of the person who reads it, or else in the box's."""
    return moment.astimezone(_zone.get())


def zone_note() -> str:
    """Return the name of the zone, to be put behind a time that somebody typed; empty if they know it."""
    return _zone_note.get()


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
