"""Updates from the chat, stored before they are handled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from runner.api.chat import Box, BoxKey, clock

if TYPE_CHECKING:
    from runner.api.chat import Store


class Inbox:
    """Stores each update once, by its id. An update is marked as handled in the transaction of its effect."""

    def __init__(self, store: Store) -> None:
        self._store, self._box = store, Box(store)

    def keep(self, update_id: int, body: dict[str, Any]) -> bool:
        """Store an update. Return False if it is already stored."""
        stored = self._store.execute(
            "INSERT OR IGNORE INTO inbox (update_id, body, received_at) VALUES (?, ?, ?)",
            (update_id, json.dumps(body), clock.text(clock.now())),
        )
        return bool(stored.rowcount == 1)

    def open(self) -> list[tuple[int, dict[str, Any]]]:
        """Return updates that are not handled yet, in order."""
        rows = self._store.rows("SELECT update_id, body FROM inbox WHERE handled_at IS NULL ORDER BY update_id")
        return [(row["update_id"], json.loads(row["body"])) for row in rows]

    def is_open(self, update_id: int) -> bool:
        """Return whether an update is not handled yet."""
        row = self._store.row("SELECT 1 FROM inbox WHERE update_id = ? AND handled_at IS NULL", (update_id,))
        return row is not None

    def forget_all(self) -> None:
        """Delete all updates: another bot numbers its updates differently."""
        self._store.execute("DELETE FROM inbox")
        self._box.set(BoxKey.UPDATES_TRIED_AGAIN, None)

    def try_again(self, update_id: int) -> int:
        """Count one more try at an update that an earlier bot process left open. Return the count."""
        counts = self._box.get(BoxKey.UPDATES_TRIED_AGAIN, {})
        tries = int(counts.get(str(update_id), 0)) + 1
        still_open = {key: count for key, count in counts.items() if self.is_open(int(key))}
        self._box.set(BoxKey.UPDATES_TRIED_AGAIN, {**still_open, str(update_id): tries})
        return tries

    def handled(self, update_id: int) -> None:
        """Mark an update as handled, in the same transaction as its effect."""
        self._store.execute("UPDATE inbox SET handled_at = ? WHERE update_id = ?", (clock.text(clock.now()), update_id))
