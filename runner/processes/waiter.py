"""Where the runner sleeps: until a descriptor is readable or a timer ends.

A callback returns False if it has handled everything and the runner need not do a tick for it.
"""

from __future__ import annotations

import heapq
import itertools
import select
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[], bool | None]

SLACK_S = 0.05  # times that follow from the wall clock are never quite the same again


class Waiter:
    """Calls back when a descriptor is readable or a timer ends. Single-threaded."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._ready: dict[int, Call] = {}
        self._moments: list[tuple[float, int, Call]] = []
        self._count = itertools.count()
        self._tick_at = 0.0  # the latest time that tick_within asked for, monotonic clock

    def add(self, descriptor: int, call: Call) -> None:
        """Call `call` each time the descriptor is readable, until it is removed."""
        self._ready[descriptor] = call
        self._poll.register(descriptor, select.POLLIN)

    def remove(self, descriptor: int) -> None:
        """Stop the calls for this descriptor."""
        if self._ready.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def after(self, seconds: float, call: Call) -> None:
        """Call `call` once, after this many seconds."""
        heapq.heappush(self._moments, (time.monotonic() + seconds, next(self._count), call))

    def tick_in(self, seconds: float) -> None:
        """Let the runner do a tick after this many seconds."""
        self.after(seconds, lambda: None)

    def tick_within(self, seconds: float) -> None:
        """Let the runner do a tick after about this many seconds or sooner. Ask again at each tick.

        All requests share one timer.
        """
        now = time.monotonic()
        if not now < self._tick_at <= now + seconds + SLACK_S:
            self._tick_at = now + seconds
            self.tick_in(seconds)

    def wait(self) -> bool:
        """Sleep until something happens and make the calls. Return whether any of them left something to do."""
        wait_ms = None
        if self._moments:
            wait_ms = max(0.0, (self._moments[0][0] - time.monotonic()) * 1000)
        tick = False
        for descriptor, _ in self._poll.poll(wait_ms):
            if call := self._ready.get(descriptor):
                tick |= call() is not False
        now = time.monotonic()
        while self._moments and self._moments[0][0] <= now:
            tick |= heapq.heappop(self._moments)[2]() is not False
        return tick
