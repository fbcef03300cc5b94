"""The audit log: who did what. Rows are only added, and the hash of each covers all rows before it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.digests import sha256
from runner.store.connection import Table

if TYPE_CHECKING:
    from collections.abc import Mapping


FIRST = "0" * 64


class Audit(Table):
    """The log, as a hash chain."""

    def add(self, actor: str, action: str, data: Mapping[str, Any]) -> None:
        """Record an action, in the transaction of its effect."""
        with self._store.transaction():
            last = self._store.value("SELECT hash FROM audit ORDER BY id DESC LIMIT 1") or FIRST
            at, body = clock.text(clock.now()), json.dumps(data, sort_keys=True)
            chained = _hash(last, at, actor, action, body)
            self._store.execute(
                "INSERT INTO audit (at, actor, action, data, hash) VALUES (?, ?, ?, ?, ?)",
                (at, actor, action, body, chained),
            )

    def rows(self, limit: int = 100) -> list[dict[str, Any]]:
        """Return the latest actions, oldest first."""
        rows = self._store.rows("SELECT * FROM audit ORDER BY id DESC LIMIT ?", (limit,))
        return [{**dict(row), "data": json.loads(row["data"])} for row in reversed(rows)]

    def first_broken(self) -> int | None:
        """Return the id of the first row that breaks the chain, or of a missing last row; None if the log is intact."""
        last, expected_id = FIRST, None
        with self._store.reading():
            for row in self._store.execute("SELECT * FROM audit ORDER BY id"):
                gap = expected_id is not None and row["id"] != expected_id
                last = _hash(last, row["at"], row["actor"], row["action"], row["data"])
                if gap or last != row["hash"]:
                    return int(row["id"])
                expected_id = row["id"] + 1
        newest = self._store.value("SELECT seq FROM sqlite_sequence WHERE name = 'audit'")
        return None if newest is None or expected_id == newest + 1 else int(newest)


def _hash(*parts: str) -> str:
    return sha256("\x1f".join(parts).encode()).hexdigest()
