"""What a button under a message means. The button itself carries a number that says nothing."""

from __future__ import annotations

import json
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from runner import clock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from runner.store.connection import Store

NONCE_BYTES = 16


class Button(NamedTuple):
    """One button: who may press it, and what for."""

    person: int
    action: str
    job_id: int | None
    data: dict[str, Any]
    expired: bool
    used: bool
    pressed_at: datetime | None  # when something was last done by it


class Buttons:
    """Every button that can still be pressed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def make(
        self, person: int, action: str, job_id: int | None = None, data: Mapping[str, Any] | None = None,
        *, lasts_s: float | None = None, once: bool = False,
    ) -> str:  # fmt: skip
        """A new one; what to put into the keyboard."""
        nonce, now = secrets.token_urlsafe(NONCE_BYTES), clock.now()
        expires = None if lasts_s is None else clock.text(now + timedelta(seconds=lasts_s))
        self._store.execute(
            "INSERT INTO buttons VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            (nonce, person, action, job_id, json.dumps(data or {}), clock.text(now), expires, once),
        )
        return nonce

    def find(self, nonce: str) -> Button | None:
        """What was pressed; None for something that was never a button of ours."""
        row = self._store.row("SELECT * FROM buttons WHERE nonce = ?", (nonce,))
        if row is None:
            return None
        expired = row["expires_at"] is not None and row["expires_at"] < clock.text(clock.now())
        used = bool(row["once"] and row["used_at"])
        pressed_at = clock.moment(row["used_at"])
        return Button(row["person"], row["action"], row["job_id"], json.loads(row["data"]), expired, used, pressed_at)

    def use(self, nonce: str) -> None:
        """It was pressed, and done."""
        self._store.execute("UPDATE buttons SET used_at = ? WHERE nonce = ?", (clock.text(clock.now()), nonce))

    def forget(self, before: str) -> int:
        """Drop those made before this time."""
        return int(self._store.execute("DELETE FROM buttons WHERE created_at < ?", (before,)).rowcount)
