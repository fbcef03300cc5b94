"""Parse and format durations, sizes and job numbers. Pure."""

from __future__ import annotations

import math
import re

from runner.errors import UserError

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MIB = {"M": 1, "G": 1024, "T": 1024 * 1024}

_NUMBER = r"[0-9]{1,18}(?:\.[0-9]{1,18})?"
_PART = rf"(?ai:({_NUMBER})\s*(ms|s|m|h|d)\s*)"
_SIZE = rf"(?ai:({_NUMBER})\s*(?:([MGT])(?:i?B)?)?)"

# A number above these is a typing error, and clocks and integers further on would overflow.
_MAX_SECONDS = 10 * 365 * 86400.0
_MAX_MIB = 1024 * 1024 * 1024

_DURATION_FORMS = "write it like 30s, 10m, 6h, 3d, 1h30m or 500ms"
_SIZE_FORMS = "write it like 20G, 500M, 1.5T or 20 (a bare number is GiB)"


LARGEST_JOB_ID = (1 << 63) - 1  # SQLite's
_JOBS = re.compile(r"(?a)#?([0-9]{1,19})(?:-#?([0-9]{1,19}))?")


def parse_job_range(word: str) -> tuple[int, int] | None:
    """Parse a job number or a range of them, like `12`, `#12` or `12-15`. Return its ends; None if it is neither."""
    match = _JOBS.fullmatch(word)
    if match is None:
        return None
    first, last = int(match[1]), int(match[2] or match[1])
    return (first, last) if first > 0 and max(first, last) <= LARGEST_JOB_ID else None


def parse_duration(text: str) -> float:
    """Return the seconds of a text like `6h`, `1h30m` or `500ms`. Raise UserError if it is not a duration."""
    words = text.strip()
    if re.fullmatch(_NUMBER, words):
        raise UserError(f"{words!r} has no unit: {words}s, {words}m or {words}h? ({_DURATION_FORMS})")
    seconds = _sum_of_parts(words)
    if seconds is None:
        raise UserError(f"{text!r} is not a duration: {_DURATION_FORMS}")
    if seconds > _MAX_SECONDS:
        raise UserError(f"{text!r} is longer than ten years: {_DURATION_FORMS}")
    return seconds


def _sum_of_parts(words: str) -> float | None:
    """Add up the parts. Return None unless they fill the whole text, larger units first."""
    part_of = re.compile(_PART)
    total, at, smallest = 0.0, 0, float("inf")
    while at < len(words):
        part = part_of.match(words, at)
        if part is None:
            return None
        unit_s = _SECONDS[part[2].lower()]
        if unit_s >= smallest:
            return None
        total, at, smallest = total + float(part[1]) * unit_s, part.end(), unit_s
    return total if words else None


def parse_size_mib(text: str) -> int:
    """Return the MiB of a text like `20G`, `500M` or `1.5T`. A bare number is GiB."""
    match = re.fullmatch(_SIZE, text.strip())
    if match is None:
        raise UserError(f"{text!r} is not a size: {_SIZE_FORMS}")
    mib = float(match[1]) * _MIB[(match[2] or "G").upper()]
    if mib > _MAX_MIB:
        raise UserError(f"{text!r} is larger than 1024T: {_SIZE_FORMS}")
    return math.ceil(mib)  # round up, because 0 would mean "no limit"


def format_duration(seconds: float) -> str:
    """Format a duration for people: `0.3 s`, `14 s`, `2m 05s`, `2h 05m`, `3d 4h`."""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"


def format_mib(mib: float) -> str:
    """Format a size for people: `300 MiB`, `23.7 GiB`."""
    if round(mib) < 1024:
        return f"{round(mib)} MiB"
    return f"{mib / 1024:.1f} GiB"
