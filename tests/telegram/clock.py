"""A clock that can be put forward, so that six hours pass at once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """Seconds since 1970 from `now`, plus what it was put forward."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._ahead_s = 0.0

    def __call__(self) -> float:
        """The time now."""
        return self._now() + self._ahead_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._ahead_s += seconds
