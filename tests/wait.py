"""Waiting in tests: for a condition, with a deadline, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T], timeout: float = 40.0, what: str = "") -> T:
    """Return what `look` returns as soon as it is true; fail after the deadline."""
    began = time.monotonic()
    while True:
        found = look()
        if found:
            return found
        waited = time.monotonic() - began
        if waited > timeout:
            raise AssertionError(f"not within {timeout} s: {what or look}; last seen: {found!r}")
        time.sleep(min(0.01 + waited / 50, 0.03))  # the longer it takes, the less a moment matters


def is_on_time(moment: datetime, promised: datetime) -> bool:
    """Never before it was promised; later only by what a busy machine may take."""
    return timedelta(seconds=-1.5) <= moment - promised <= timedelta(seconds=10)
