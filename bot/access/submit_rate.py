"""How often a person may submit."""

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
        self._sent: dict[int, deque[tuple[datetime, int]]] = {}

    def refuse_burst(self, person: int, sent_at: datetime | None, update_id: int) -> None:
        """Raise UserError if this person has sent too many submissions within a minute."""
        sent = self._sent.get(person)
        if sent_at is None or sent is None or len(sent) < self._per_minute or (sent_at, update_id) in sent:
            return
        apart_s = abs((sent_at - sent[0][0]).total_seconds())  # abs: if the clock was set back, a new minute begins
        if apart_s < 60:
            raise UserError(
                f"That is more than {self._per_minute} submissions a minute, so this one is not queued. Send it again"
                f" in {60 - apart_s:.0f} s, or send many at once with /batch."
            )

    def count(self, person: int, sent_at: datetime | None, update_id: int) -> None:
        """Count a submission, once per update however often it is retried."""
        sent = self._sent.setdefault(person, deque(maxlen=self._per_minute))
        if sent_at is not None and (sent_at, update_id) not in sent:
            sent.append((sent_at, update_id))
