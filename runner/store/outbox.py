"""Notices: what somebody is to be told, written in the same transaction as what happened."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.model import Notice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.store.connection import Store


class Outbox:
    """Notices wait here until they have been told."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, kind: str, data: Mapping[str, Any], job_id: int | None = None) -> None:
        """A notice to be told."""
        self._store.execute(
            "INSERT INTO notices (job_id, kind, data, created_at) VALUES (?, ?, ?, ?)",
            (job_id, kind, json.dumps(data), clock.text(clock.now())),
        )

    def open(self, limit: int = 100) -> list[Notice]:
        """Notices not yet told, oldest first."""
        rows = self._store.rows(
            "SELECT * FROM notices WHERE told_at IS NULL AND parked IS NULL ORDER BY id LIMIT ?", (limit,)
        )
        return [_notice(row) for row in rows]

    def about(self, job_id: int) -> list[Notice]:
        """All notices of one job, told or not."""
        return [_notice(r) for r in self._store.rows("SELECT * FROM notices WHERE job_id = ? ORDER BY id", (job_id,))]

    def told(self, notice_id: int) -> None:
        """It has arrived."""
        self._store.execute("UPDATE notices SET told_at = ? WHERE id = ?", (clock.text(clock.now()), notice_id))


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
