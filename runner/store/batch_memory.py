"""What is known about the GPU memory of each kind of job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runner import clock
from runner.supervisor.probe_records import RememberedMemory

if TYPE_CHECKING:
    from runner.store.connection import Store

KEPT = 1000  # kinds; the least recently stored are deleted


class KnownBatches:
    """One row for each kind of job."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, key: str | None) -> RememberedMemory | None:
        """Return what is known about a kind; None if nothing is known or the key is None."""
        row = None if key is None else self._store.row("SELECT body FROM known_batches WHERE key = ?", (key,))
        return RememberedMemory.from_json(json.loads(row["body"])) if row else None

    def put(self, key: str, gpu: str | None, memory: RememberedMemory) -> None:
        """Store what is known about a kind, in place of what was known before."""
        self._store.execute(
            "INSERT OR REPLACE INTO known_batches VALUES (?, ?, ?, ?)",
            (key, gpu, json.dumps(memory.to_json()), clock.text(clock.now())),
        )
        self._store.execute(
            "DELETE FROM known_batches WHERE key IN"
            " (SELECT key FROM known_batches ORDER BY used_at DESC LIMIT -1 OFFSET ?)",
            (KEPT,),
        )

    def drop(self, key: str | None) -> None:
        """Delete what is known about a kind."""
        self._store.execute("DELETE FROM known_batches WHERE key = ?", (key,))
