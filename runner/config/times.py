"""Parse times as people write them: `23:00`, `+2h`, `2026-12-24T18:00`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from runner.errors import UserError
from runner.units import parse_duration

_FORMS = "write 23:00, +2h or 2026-12-24T18:00"
_FURTHEST = timedelta(days=10 * 365)  # the same bound as for durations; beyond it later clock arithmetic overflows
_BETWEEN_ZONES = timedelta(days=2)  # no two time zones are further apart


def parse_moment(text: str, now: datetime) -> datetime:
    """Return the time that is meant, in UTC. A time of day means the next one, in the time zone of `now`."""
    text = text.strip()
    if text.startswith("+"):
        return (now + timedelta(seconds=parse_duration(text[1:]))).astimezone(timezone.utc)
    if match := re.fullmatch(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", text):
        return _next_at(int(match[1]), int(match[2]), now)
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise UserError(f"{text!r} is not a time: {_FORMS}") from None
    away = moment.replace(tzinfo=None) - now.replace(tzinfo=None)  # without zones: they overflow at the calendar's ends
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
    """Put a time without a zone on the clock of `now`, with its summer time."""
    is_box = not isinstance(now.tzinfo, ZoneInfo) and now.astimezone().utcoffset() == now.utcoffset()
    return moment.astimezone() if is_box else moment.replace(tzinfo=now.tzinfo)
