"""The rule for when a job counts as idle, written like `5%:5s:60:12`. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any

from runner.errors import UserError
from runner.model import Record
from runner.units import format_duration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

OFF = "off"
FORM = "write it like 5%:5s:60:12 (threshold, period, samples in the window, samples to wait at the start) or off"

_NUMBER = r"[0-9]{1,6}(?:\.[0-9]{1,3})?"
_COUNT = r"[0-9]{1,9}"
_SHORTEST_PERIOD_S, _LONGEST_PERIOD_S = 1.0, 3600.0
_LONGEST_S = 7 * 86400.0
_MOST_SAMPLES = 10_000  # they are kept in memory and saved for the next runner

SHORTEST_GAP_S = 3.0  # on a busy box readings come late, which is no reason to restart the window


@dataclass(frozen=True, slots=True)
class IdlePolicy(Record):
    """When a job counts as idle."""

    threshold_percent: float
    period_s: float
    window: int  # samples, each of which must be below the threshold
    delay: int  # samples to skip at the start of the job

    @property
    def window_s(self) -> float:
        """Return how long the job must have been idle, in seconds."""
        return self.window * self.period_s

    def shortened(self, window_s: float) -> IdlePolicy:
        """Return the same policy with a window of about this long, if that is shorter."""
        return replace(self, window=min(self.window, max(1, math.ceil(window_s / self.period_s))))

    @property
    def gap_s(self) -> float:
        """Return how many seconds may pass without a reading before the window starts again."""
        return max(2 * self.period_s, SHORTEST_GAP_S)

    @property
    def first_tick(self) -> int:
        """Return the number of the first sample that counts, at least 1: the original never looks earlier either."""
        return max(self.delay, 1)

    def tick_at(self, since_start_s: float) -> int:
        """Return the number of periods since the start, with some tolerance for readings that come a little early."""
        return math.floor((since_start_s + min(0.1, self.period_s / 10)) / self.period_s)


DEFAULT = IdlePolicy(threshold_percent=5.0, period_s=5.0, window=60, delay=12)


def parse_policy(text: str) -> IdlePolicy | None:
    """Parse a policy like `20%:3s:7:1`. Parts left out at the end come from the default. `off` gives None.

    Raise UserError that says what to write instead.
    """
    words = text.strip()
    if words.lower() == OFF:
        return None
    parts = [part.strip() for part in words.split(":")]
    if not words or len(parts) > 4 or not all(parts):
        raise UserError(f"{text!r} is not a rule for idle jobs: {FORM}")
    values = [parse(part) for parse, part in zip(_PARSERS, parts, strict=False)]
    policy = IdlePolicy(*values, *astuple(DEFAULT)[len(values) :])
    for samples, what in ((policy.window, "the window"), (policy.delay, "the wait at the start")):
        if samples * policy.period_s > _LONGEST_S:
            raise UserError(
                f"{what} of {samples} samples every {format_duration(policy.period_s)} is longer than 7 days:"
                " write fewer samples, or off to never stop it"
            )
    return policy


def format_policy(policy: IdlePolicy | None) -> str:
    """Return the text that parse_policy reads as this policy."""
    if policy is None:
        return OFF
    return (
        f"{format_number(policy.threshold_percent)}%:{format_number(policy.period_s)}s:{policy.window}:{policy.delay}"
    )


def _threshold(text: str) -> float:
    number = text.removesuffix("%").strip()
    if not re.fullmatch(_NUMBER, number) or float(number) > 100:
        raise UserError(f"{text!r} is not a threshold: write a percentage from 1% to 100%, like 5%")
    if float(number) == 0:
        raise UserError("nothing is ever below 0 %: write 1% for a GPU that does nothing at all, or off")
    return float(number)


def _period(text: str) -> float:
    seconds = round(parse_duration(text), 3)
    if not _SHORTEST_PERIOD_S <= seconds <= _LONGEST_PERIOD_S:
        raise UserError(f"{text!r} is not a valid time between two samples: write one from 1s to 1h, like 5s")
    return seconds


def _window(text: str) -> int:
    if not re.fullmatch(_COUNT, text) or not 1 <= int(text) <= _MOST_SAMPLES:
        raise UserError(
            f"{text!r} is not a valid number of samples: write one from 1 to {_MOST_SAMPLES}, like 60;"
            " a longer period makes the window longer"
        )
    return int(text)


def _delay(text: str) -> int:
    if not re.fullmatch(_COUNT, text):
        raise UserError(f"{text!r} is not a valid number of samples to ignore at the start: write 0, 1, 2 …")
    return int(text)


_PARSERS: tuple[Callable[[str], Any], ...] = (_threshold, _period, _window, _delay)  # in the order of the fields


def format_number(number: float) -> str:
    """Format a number without trailing zeros."""
    return f"{number:.3f}".rstrip("0").rstrip(".")
