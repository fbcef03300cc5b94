"""The limit on submissions per minute. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from runner.errors import UserError

if TYPE_CHECKING:
    from datetime import datetime


class Rate:
    """Counts submissions per person by the time they were sent, so a backlog is not taken for a burst."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._sent: dict[int, deque[tuple[float, int]]] = {}

    def check(self, person: int, sent_at: datetime | None, update_id: int) -> None:
        """Count a submission, once per update however often it is retried. Raise UserError if there are too many."""
        if sent_at is None:
            return
        at, sent = sent_at.timestamp(), self._sent.setdefault(person, deque(maxlen=self._per_minute))
        if (at, update_id) in sent:
            return
        apart_s = abs(at - sent[0][0]) if sent else 0.0  # abs: if the clock was set back, a new minute begins
        if len(sent) == self._per_minute and apart_s < 60:
            raise UserError(
                f"That is more than {self._per_minute} submissions a minute; this one is not queued. Send it again in "
                f"{60 - apart_s:.0f} s, or many at once with /batch."
            )
        sent.append((at, update_id))
