"""So many submissions a minute. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from runner.errors import UserError

if TYPE_CHECKING:
    from datetime import datetime


class Rate:
    """By person, and by when they were sent: what waited while we were away counts as then."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._sent: dict[int, deque[tuple[float, int]]] = {}

    def check(self, person: int, sent_at: datetime | None, update_id: int) -> None:
        """Count one, however often it is tried; UserError says when to go on."""
        if sent_at is None:
            return
        at, sent = sent_at.timestamp(), self._sent.setdefault(person, deque(maxlen=self._per_minute))
        if (at, update_id) in sent:
            return
        apart_s = abs(at - sent[0][0]) if sent else 0.0  # a clock that is set back begins a new minute
        if len(sent) == self._per_minute and apart_s < 60:
            raise UserError(
                f"That is more than {self._per_minute} submissions a minute; this one is not queued. Send it again in "
                f"{60 - apart_s:.0f} s, or many at once with /batch."
            )
        sent.append((at, update_id))
