"""What each button under a message means. The button itself carries only a random token."""

from __future__ import annotations

import json
import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.api.chat import clock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from runner.api.chat import Store

NONCE_BYTES = 16
TYPED = "typed"
_OPEN = f"action = '{TYPED}' AND person = ? AND json_extract(data, '$.chat') = ?"


class Button(NamedTuple):
    """One button: who may press it, and what it does."""

    person: int
    action: str
    job_id: int | None
    data: dict[str, Any]
    expired: bool
    used: bool
    pressed_at: datetime | None  # when it was last pressed with effect


class Buttons:
    """All buttons, until they are deleted by age."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def make(
        self, person: int, action: str, job_id: int | None = None, data: Mapping[str, Any] | None = None,
        *, lasts_s: float | None = None, once: bool = False,
    ) -> str:  # fmt: skip
        """Create a button. Return its token, to put into the keyboard."""
        nonce, now = secrets.token_urlsafe(NONCE_BYTES), clock.now()
        expires = None if lasts_s is None else clock.text(now + timedelta(seconds=lasts_s))
        self._store.execute(
            "INSERT INTO buttons VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            (nonce, person, action, job_id, json.dumps(data or {}), clock.text(now), expires, once),
        )
        return nonce

    def find(self, nonce: str) -> Button | None:
        """Return the button with this token, even if expired or used; None if there is none."""
        row = self._store.row("SELECT * FROM buttons WHERE nonce = ?", (nonce,))
        if row is None:
            return None
        expired = row["expires_at"] is not None and row["expires_at"] < clock.text(clock.now())
        used = bool(row["once"] and row["used_at"])
        pressed_at = clock.moment(row["used_at"])
        return Button(row["person"], row["action"], row["job_id"], json.loads(row["data"]), expired, used, pressed_at)

    # -- questions that are answered by typing -------------------------------------------------------

    def ask(self, person: int, chat: int, data: Mapping[str, Any], lasts_s: float) -> None:
        """Store a question: what to do with the next text of this person in this chat. It replaces an open one."""
        self.close(person, chat)
        self.make(person, TYPED, None, {**data, "chat": chat}, lasts_s=lasts_s, once=True)

    def asked(self, person: int, chat: int) -> dict[str, Any] | None:
        """Return what to do with the next text of this person in this chat; None if nothing was asked."""
        row = self._store.row(
            f"SELECT data FROM buttons INDEXED BY buttons_typed WHERE {_OPEN} AND expires_at >= ?",
            (person, chat, clock.text(clock.now())),
        )
        return json.loads(row["data"]) if row else None

    def close(self, person: int, chat: int) -> None:
        """Close the open question to this person in this chat, if there is one."""
        self._store.execute(f"DELETE FROM buttons WHERE {_OPEN}", (person, chat))

    def use(self, nonce: str) -> None:
        """Record that a button was pressed with effect."""
        self._store.execute("UPDATE buttons SET used_at = ? WHERE nonce = ?", (clock.text(clock.now()), nonce))
