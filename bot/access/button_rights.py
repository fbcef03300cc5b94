"""Which buttons a person may press, by their role and by whose job it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.access.gate import actor_of
from bot.commands import Role
from bot.text.buttons import Right
from runner.api.chat import BoxKey

if TYPE_CHECKING:
    from collections.abc import Iterable

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
