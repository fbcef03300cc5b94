"""Sends one notice when the queue can no longer be copied, and one when copying works again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner import clock
from runner.notices import BackupBack, BackupFailing
from runner.step import Step
from runner.store.box import BoxKey

if TYPE_CHECKING:
    from runner.step import Context
    from runner.store.backup import Backup

EVERY_S = 20.0


class BackupWatch(Step):
    """Keeps what it has reported in the database, so that the next runner does not report it again."""

    def __init__(self, context: Context, backup: Backup) -> None:
        self._backup, self._box = backup, context.box
        self._notices, self._waiter = context.notices, context.waiter

    def tick(self) -> None:
        """Check the copies and add a notice if that changed."""
        if self._backup.folder is None:
            return
        self._waiter.tick_within(EVERY_S)  # a copy that hangs does not ring the doorbell
        before = self._box.get(BoxKey.BACKUP) or {}
        if why := self._backup.trouble():
            self._note_failing(before, why)
        elif self._backup.works():
            self._note_working(before)

    def _note_failing(self, before: dict[str, str | None], why: str) -> None:
        if before.get("failing_since") is None:
            self._box.set(BoxKey.BACKUP, {**self._state(), "failing_since": clock.text(clock.now())})
            self._notices.add(BackupFailing(folder=self._backup.folder or "", why=why))

    def _note_working(self, before: dict[str, str | None]) -> None:
        if before != (now := {**self._state(), "failing_since": None}):
            self._box.set(BoxKey.BACKUP, now)
        if since := before.get("failing_since"):
            self._notices.add(BackupBack(folder=self._backup.folder or "", since=since))

    def _state(self) -> dict[str, object]:
        return {"folder": self._backup.folder, "is_apart": self._backup.is_apart}
