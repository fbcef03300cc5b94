"""How fast the bot may write: a token bucket per chat, one more per group, and one for all chats together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.telegram.api_errors import too_many_requests

if TYPE_CHECKING:
    from tests.telegram.limits import FloodLimits


@dataclass(slots=True)
class Bucket:
    """Holds up to `capacity` tokens and gains `per_s` of them every second."""

    per_s: float
    capacity: float
    tokens: float
    filled_at: float

    def wait_s(self, now: float) -> float:
        """Return the seconds until a token is available, 0 if one is."""
        self.tokens = min(self.capacity, self.tokens + max(0.0, now - self.filled_at) * self.per_s)
        self.filled_at = now
        # the sum of many small parts may fall just short of a whole token
        return 0.0 if self.tokens > 1.0 - 1e-9 else (1.0 - self.tokens) / self.per_s

    def take(self) -> None:
        """Use a token."""
        self.tokens = max(0.0, self.tokens - 1.0)


class Flood:
    """Counts the messages of the bot. Without limits everything passes."""

    def __init__(self, limits: FloodLimits | None) -> None:
        self.limits = limits
        self._buckets: dict[str, Bucket] = {}

    def set_limits(self, limits: FloodLimits | None) -> None:
        """Set these limits and start counting from zero."""
        self.limits = limits
        self._buckets.clear()

    def spend(self, chat_id: int, *, group: bool, now: float) -> None:
        """Count one message to a chat. If it is too fast, raise a 429 with the time to wait, and count nothing."""
        if self.limits is None:
            return
        buckets = self._of(chat_id, group=group, limits=self.limits, now=now)
        wait_s = max(bucket.wait_s(now) for bucket in buckets)
        if wait_s > 0:
            raise too_many_requests(wait_s)
        for bucket in buckets:
            bucket.take()

    def _of(self, chat_id: int, *, group: bool, limits: FloodLimits, now: float) -> list[Bucket]:
        sizes = {
            "overall": (limits.overall_per_s, limits.overall_per_s),
            f"chat {chat_id}": (limits.chat_per_s, limits.chat_burst),
        }
        if group:
            sizes[f"group {chat_id}"] = (limits.group_per_min / 60, limits.group_per_min)
        return [
            self._buckets.setdefault(name, Bucket(per_s, capacity, capacity, now))
            for name, (per_s, capacity) in sizes.items()
        ]
