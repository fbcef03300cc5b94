"""A clock that a test can advance, so that six hours pass at once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """Seconds since 1970 from `now`, plus the seconds it was advanced."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._ahead_s = 0.0

    def __call__(self) -> float:
        """Return the current time."""
        return self._now() + self._ahead_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._ahead_s += seconds
