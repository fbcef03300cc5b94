"""Values about the whole box: paused, draining, the breaker's count …"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.store.connection import Store

WHEN_EMPTY = "when empty"  # the command to run because the queue is empty, and whether somebody cancelled it


class Box:
    """Named values, stored as JSON."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value, or the default."""
        row = self._store.row("SELECT value FROM box WHERE name = ?", (name,))
        return json.loads(row["value"]) if row else default

    def any(self, *names: str) -> bool:
        """Return whether at least one of these has a value."""
        marks = ", ".join("?" * len(names))
        return self._store.row(f"SELECT 1 FROM box WHERE name IN ({marks})", names) is not None  # noqa: S608

    def set(self, name: str, value: Any) -> None:
        """Store a value; None deletes it."""
        if value is None:
            self._store.execute("DELETE FROM box WHERE name = ?", (name,))
        else:
            self._store.execute("INSERT OR REPLACE INTO box VALUES (?, ?)", (name, json.dumps(value)))
