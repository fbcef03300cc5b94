"""Moments as people write them: `23:00`, `+2h`, `2026-12-24T18:00`. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from runner.errors import UserError
from runner.units import parse_duration

_FORMS = "write 23:00, +2h or 2026-12-24T18:00"
_FURTHEST = timedelta(days=10 * 365)  # as far as durations go; beyond it clocks downstream overflow
_BETWEEN_ZONES = timedelta(days=2)  # no two clocks are further apart


def parse_moment(text: str, now: datetime) -> datetime:
    """The moment that is meant, in UTC; a time of day is the next one on the clock that `now` is read from."""
    text = text.strip()
    if text.startswith("+"):
        return (now + timedelta(seconds=parse_duration(text[1:]))).astimezone(timezone.utc)
    if found := re.fullmatch(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", text):
        return _next_at(int(found[1]), int(found[2]), now)
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise UserError(f"{text!r} is not a time: {_FORMS}") from None
    away = moment.replace(tzinfo=None) - now.replace(tzinfo=None)  # by the calendar: its ends are in no zone's reach
    if away > _FURTHEST:
        raise UserError(f"{text!r} is more than ten years away: {_FORMS}")
    if away > -_BETWEEN_ZONES:
        moment = moment if moment.tzinfo else _local(moment, now)
    if away <= -_BETWEEN_ZONES or moment <= now:
        raise UserError(f"{text} is in the past: {_FORMS}")
    return moment.astimezone(timezone.utc)


def _next_at(hour: int, minute: int, now: datetime) -> datetime:
    today = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    moment = today if today > now else today + timedelta(days=1)
    return _local(moment.replace(tzinfo=None), now).astimezone(timezone.utc)


def _local(moment: datetime, now: datetime) -> datetime:
    """On the box's own clock, with its summer time; in tests on the one that `now` is read from."""
    offset = now.utcoffset()
    here = moment.astimezone()
    return here if now.astimezone().utcoffset() == offset else moment.replace(tzinfo=now.tzinfo)
