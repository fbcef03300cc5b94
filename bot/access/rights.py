"""Which buttons a person may press, and how often they may submit."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from bot.access.gate import actor_of
from bot.commands import Role
from bot.text.buttons import Right
from runner.api.chat import BoxKey
from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from bot.access.gate import Gate
    from bot.text.buttons import Press
    from runner.api import Queue
    from runner.api.groups import Member

NEEDED_ROLE = {Right.USER: Role.USER, Right.ADMIN: Role.ADMIN}  # rights that depend only on the role


def role_to_resume(queue: Queue) -> Role:
    """Return the role needed to resume the queue: admin if a person paused or drained it, else user."""
    pause = queue.box.pause()
    by_person = queue.box.any(BoxKey.DRAINING) or (pause is not None and pause.by_person)
    return Role.ADMIN if by_person else Role.USER


class Rights:
    """What one person may press, at the moment a message is written for them."""

    def __init__(self, queue: Queue, gate: Gate, person: int) -> None:
        self._queue, self._actor = queue, actor_of(person)
        self._role = gate.role_of(person)
        self._owners: dict[int, str | None] = {}

    def may_press(self, press: Press) -> bool:
        """Return whether pressing this would do anything for this person."""
        right, groups = press.rule.right, self._queue.groups
        if right is Right.OWNER and press.job_id is not None:
            return self.may_change(press.job_id)
        if right is Right.OWNER_OF_LISTED:
            return any(self.may_change(number) for number in press.data["jobs"])
        if right is Right.OWNER_OF_UNFINISHED:
            return self._owns_any(groups.unfinished(press.data["group"]))
        if right is Right.OWNER_OF_FAILED:
            return self._owns_any(groups.failed(press.data["group"]))
        role = role_to_resume(self._queue) if right is Right.RESUME else NEEDED_ROLE.get(right)
        return role is None or self._is_at_least(role)

    def may_change(self, job_id: int) -> bool:
        """Return whether this person may change the job: admins may, and users may change their own."""
        if self._role is Role.ADMIN:
            return True
        if job_id not in self._owners:
            job = self._queue.jobs.get(job_id)
            self._owners[job_id] = job.spec.owner if job else None
        return self._is_at_least(Role.USER) and self._owners[job_id] == self._actor

    def _is_at_least(self, role: Role) -> bool:
        return self._role is not None and self._role >= role

    def _owns_any(self, jobs: Iterable[Member]) -> bool:
        return self._is_at_least(Role.USER) and any(
            self._role is Role.ADMIN or job.owner == self._actor for job in jobs
        )


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
