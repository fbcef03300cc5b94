"""Time zones as people name them: `Europe/Berlin`, or just `berlin`."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, available_timezones

from bot.text.html import quoted
from runner.api.chat import clock
from runner.errors import UserError

if TYPE_CHECKING:
    from bot.store.people import Person

_OFF = frozenset({"off", "none", "box"})


@cache
def _names() -> dict[str, str]:
    """Return the names of all zones by what people may type: in lower case, with or without the region."""
    names = sorted(available_timezones(), key=lambda name: ("/" not in name, name))
    cities = {name.rpartition("/")[2].lower(): name for name in reversed(names)}
    return cities | {name.lower(): name for name in names}


def zone_name(text: str) -> str | None:
    """Return the full name of a zone; None for `off`. Raise UserError if there is no such zone."""
    typed = "_".join(text.lower().split())[:64]
    if typed in _OFF:
        return None
    if typed not in _names():
        near = get_close_matches(typed, _names(), n=1, cutoff=0.7)
        like = f"/notify zone {_names()[near[0]] if near else 'Europe/Berlin'}"
        raise UserError(f"“{quoted(text)}” is not a time zone; send one like `{like}`, or off for the box's.")
    return _names()[typed]


def zone_of(person: Person) -> ZoneInfo | None:
    """Return a person's zone; None if they use the box's, or if the box no longer knows theirs."""
    try:
        return ZoneInfo(person.zone) if person.zone else None
    except (ValueError, OSError, KeyError):
        return None


def box_zone() -> str:
    """Return the name of the box's own zone, like CET."""
    return clock.now().astimezone().tzname() or "UTC"
