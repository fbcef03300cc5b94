"""Notices: events that people get a message about, written in the same transaction as what happened."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.model import Notice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.store.connection import Store


class Outbox:
    """Notices, which wait here until the bot has turned them into messages."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, kind: str, data: Mapping[str, Any], job_id: int | None = None) -> int:
        """Add a notice and return its number."""
        added = self._store.execute(
            "INSERT INTO notices (job_id, kind, data, created_at) VALUES (?, ?, ?, ?)",
            (job_id, kind, json.dumps(data), clock.text(clock.now())),
        )
        return int(added.lastrowid)

    def has_arrived(self, notice_id: int) -> bool:
        """Return whether a message about it was delivered, or the bot had nobody to send one to."""
        told = self._store.row("SELECT told_at FROM notices WHERE id = ?", (notice_id,))
        rows = self._store.rows("SELECT told_at, message FROM messages WHERE notice_id = ?", (notice_id,))
        if told is None or told["told_at"] is None:
            return False
        return not rows or any(row["told_at"] is not None and row["message"] is not None for row in rows)

    def open(self, limit: int = 100) -> list[Notice]:
        """Return notices that are not yet turned into messages, oldest first."""
        rows = self._store.rows(
            "SELECT * FROM notices WHERE told_at IS NULL AND parked IS NULL ORDER BY id LIMIT ?", (limit,)
        )
        return [_notice(row) for row in rows]

    def about(self, job_id: int) -> list[Notice]:
        """Return all notices about a job, oldest first."""
        return [_notice(r) for r in self._store.rows("SELECT * FROM notices WHERE job_id = ? ORDER BY id", (job_id,))]

    def forget_untold(self, before: str) -> None:
        """Mark open notices from before this time as handled: they are too old to send."""
        self._store.execute(
            "UPDATE notices SET told_at = ? WHERE told_at IS NULL AND created_at < ?",
            (clock.text(clock.now()), before),
        )

    def told(self, notice_id: int) -> None:
        """Mark a notice as handled: its messages, if any, are in the same transaction."""
        self._store.execute("UPDATE notices SET told_at = ? WHERE id = ?", (clock.text(clock.now()), notice_id))

    def forget(self, before: str, at_most: int) -> int:
        """Delete up to `at_most` notices from before this time, handled or not. Return how many were deleted."""
        sql = "DELETE FROM notices WHERE id IN (SELECT id FROM notices WHERE created_at < ? LIMIT ?)"
        return int(self._store.execute(sql, (before, at_most)).rowcount)


def _notice(row: Any) -> Notice:
    created_at = clock.moment(row["created_at"])
    assert created_at is not None
    return Notice(
        id=row["id"],
        job_id=row["job_id"],
        kind=row["kind"],
        data=json.loads(row["data"]),
        created_at=created_at,
    )
