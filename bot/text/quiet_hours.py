"""Parses quiet hours as people write them: `23-7`. Pure."""

from __future__ import annotations

import re

from bot.text.html import quoted, shorten
from runner.errors import UserError

_DAY_MIN = 24 * 60
_CLOCK = r"([0-9]{1,2})(?:[:.]([0-9]{2}))?(?:\s*([ap]m))?"
_HOURS = re.compile(rf"{_CLOCK}\s*(?:[-–—]{{1,2}}|to)\s*{_CLOCK}", re.IGNORECASE)
_OFF = frozenset({"off", "no", "none", "never"})
_ASK_HOURS = "send hours like 23-7 or 23:30-07:00, or off"


def quiet_hours(text: str) -> tuple[int, int] | None:
    """Return begin and end in minutes since midnight, from `23-7` or `23:30-07:00`; None for `off`."""
    hours = text.strip().lower()
    if hours in _OFF:
        return None
    match = _HOURS.fullmatch(hours)
    if match is None:
        raise UserError(f"“{quoted(hours)}” is not a range of hours; {_ASK_HOURS}.")
    begin, end = _minutes(*match.groups()[:3]), _minutes(*match.groups()[3:])
    if begin == end:
        raise UserError(f"Quiet hours must begin and end at different times; {_ASK_HOURS}.")
    return begin, end


def _minutes(hour_text: str, minute_text: str | None, half: str | None) -> int:
    hour, minute = int(hour_text), int(minute_text or 0)
    wrong = hour * 60 + minute > _DAY_MIN or minute > 59 or (half is not None and not 1 <= hour <= 12)
    if wrong:
        raise UserError(f"“{shorten(hour_text, 2)}:{minute:02}” is not a time of day; {_ASK_HOURS}.")
    if half is not None:
        hour = hour % 12 + 12 * (half.lower() == "pm")
    return (hour * 60 + minute) % _DAY_MIN
