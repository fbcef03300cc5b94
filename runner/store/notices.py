"""Notices: events that people get a message about, written in the same transaction as what happened."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.store.connection import Table

if TYPE_CHECKING:
    from runner.notices import Notice, Payload, Unknown


class Notices(Table):
    """Notices. The bot turns them into messages, then marks them as handled, and as delivered when one arrives."""

    def add(self, payload: Payload | Unknown, job_id: int | None = None) -> int:
        """Add a notice and return its number."""
        added = self._store.execute(
            "INSERT INTO notices (job_id, kind, data, created_at) VALUES (?, ?, ?, ?)",
            (job_id, payload.kind, json.dumps(payload.to_json()), clock.text(clock.now())),
        )
        return int(added.lastrowid)

    def has_arrived(self, notice_id: int) -> bool:
        """Return whether a message about it was delivered, or the bot had nobody to send one to."""
        sql = "SELECT 1 FROM notices WHERE id = ? AND delivered_at IS NOT NULL"
        return self._store.row(sql, (notice_id,)) is not None

    def open(self, limit: int = 100) -> list[Notice]:
        """Return notices that are not yet turned into messages, oldest first."""
        rows = self._store.rows("SELECT * FROM notices WHERE handled_at IS NULL ORDER BY id LIMIT ?", (limit,))
        return [_notice(row) for row in rows]

    def about(self, job_id: int) -> list[Notice]:
        """Return all notices about a job, oldest first."""
        return [_notice(r) for r in self._store.rows("SELECT * FROM notices WHERE job_id = ? ORDER BY id", (job_id,))]


def _notice(row: Any) -> Notice:
    from runner.notices import Notice, payload_of  # only the bot reads notices; the terminal starts faster without

    created_at = datetime.fromisoformat(row["created_at"])
    payload = payload_of(row["kind"], json.loads(row["data"]))
    return Notice(id=row["id"], job_id=row["job_id"], payload=payload, created_at=created_at)
