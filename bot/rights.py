"""Which buttons somebody is shown: those that would do something for them. Whoever presses one is judged again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.gate import Role, actor_of

if TYPE_CHECKING:
    from bot.chat import Chat, Press

OF_USERS = frozenset({"rerun", "lines", "script"})
OF_OWNERS = frozenset({"kill", "kill now", "keep", "extend", "edit", "front", "up", "down", "hold", "release"})
OF_ADMINS = frozenset({"drain", "revoke", "revoked", "people", "cancel links", "cancel when empty"})
KILL_GROUP, RERUN_FAILED = "kill group", "rerun failed"
RELEASE_ALL, RESUME = "release all", "resume"


def role_to_resume(chat: Chat) -> Role:
    """Who may let the queue go on: a pause that a person made is an admin's to end."""
    paused, draining = chat.queue.box.get("paused"), chat.queue.box.get("draining")
    by_person = draining or (paused and paused["by"] != "breaker")
    return Role.ADMIN if by_person else Role.USER


class Rights:
    """One person's, at the moment when a message is written for them."""

    def __init__(self, chat: Chat, person: int) -> None:
        self._chat, self._actor = chat, actor_of(person)
        self._role = chat.gate.role_of(person)
        self._owners: dict[int, str | None] = {}

    def may_press(self, press: Press) -> bool:
        """Whether it would do something for them."""
        if press.action in OF_ADMINS:
            return self._role is Role.ADMIN
        if press.action in {KILL_GROUP, RERUN_FAILED}:
            return self._has_any(press.action, str(press.data["group"]))
        if press.action == RESUME:
            return self._role is not None and self._role >= role_to_resume(self._chat)
        if press.action == RELEASE_ALL:
            return any(self.may_change(number) for number in press.data["jobs"])
        if press.action in OF_OWNERS and press.job_id is not None:
            return self.may_change(press.job_id)
        return press.action not in OF_USERS or self._is_user

    def may_change(self, job_id: int) -> bool:
        """Owners and admins may."""
        if self._role is Role.ADMIN:
            return True
        if job_id not in self._owners:
            job = self._chat.queue.jobs.get(job_id)
            self._owners[job_id] = job.spec.owner if job else None
        return self._is_user and self._owners[job_id] == self._actor

    @property
    def _is_user(self) -> bool:
        return self._role is not None and self._role >= Role.USER

    def _has_any(self, action: str, group: str) -> bool:
        """Whether one of its jobs that it would be about is theirs."""
        groups = self._chat.queue.groups
        found = groups.unfinished(group) if action == KILL_GROUP else groups.failed(group)
        return self._is_user and any(self._role is Role.ADMIN or one.owner == self._actor for one in found)
