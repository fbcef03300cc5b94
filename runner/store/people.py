"""Who was let in by pairing, how each wants to be told, and the codes that are still good."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from runner import clock

if TYPE_CHECKING:
    from runner.store.connection import Store

PAIRING_S = 600.0
CODE_BYTES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """What is remembered of somebody; a role only if it came by pairing."""

    id: int
    role: str | None = None
    name: str = ""
    paired_by: str | None = None
    paired_at: str | None = None
    noise: str = "all"
    quiet: tuple[int, int] | tuple[()] | None = None  # minutes since midnight; () is never, None the box's own


class People:
    """Everybody the chat has met and let in."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, person_id: int) -> Person:
        """What is known of them; nothing of a person never met."""
        row = self._store.row("SELECT * FROM people WHERE id = ?", (person_id,))
        return _person(row) if row else Person(id=person_id)

    def paired(self) -> list[Person]:
        """Those who have a role by pairing."""
        return [_person(row) for row in self._store.rows("SELECT * FROM people WHERE role IS NOT NULL ORDER BY id")]

    def note_name(self, person_id: int, name: str) -> None:
        """How they call themselves now: for reading, never for rights."""
        self._store.execute(
            "INSERT INTO people (id, name) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name"
            " WHERE name IS NOT excluded.name",
            (person_id, name),
        )

    def set_noise(self, person_id: int, noise: str) -> None:
        """How much they want to hear."""
        self._set(person_id, "noise", noise)

    def set_quiet(self, person_id: int, hours: tuple[int, int] | tuple[()] | None) -> None:
        """When they want to hear it without a sound."""
        self._set(person_id, "quiet", None if hours is None else json.dumps(hours))

    def _set(self, person_id: int, column: str, value: Any) -> None:
        self._store.execute(
            f"INSERT INTO people (id, {column}) VALUES (?, ?)"  # noqa: S608
            f" ON CONFLICT (id) DO UPDATE SET {column} = excluded.{column}",
            (person_id, value),
        )

    # -- pairing -----------------------------------------------------------------------------------

    def invite(self, role: str, made_by: str) -> str:
        """A code that gives this role once, to whoever sends it in time. Only its digest is kept."""
        code = secrets.token_urlsafe(CODE_BYTES)
        expires = clock.text(clock.now() + timedelta(seconds=PAIRING_S))
        with self._store.transaction():
            self._store.execute("DELETE FROM pairings WHERE expires_at < ?", (clock.text(clock.now()),))
            self._store.execute("INSERT INTO pairings VALUES (?, ?, ?, ?)", (_digest(code), role, made_by, expires))
        return code

    def invitations(self) -> int:
        """How many codes are still good."""
        row = self._store.row("SELECT count(*) FROM pairings WHERE expires_at > ?", (clock.text(clock.now()),))
        return int(row[0])

    def invitation(self, code: str) -> tuple[str, str] | None:
        """Role and maker of a code that is still good."""
        # Found by digest: how long the search takes tells nothing about a code.
        row = self._store.row(
            "SELECT role, made_by FROM pairings WHERE digest = ? AND expires_at > ?",
            (_digest(code), clock.text(clock.now())),
        )
        return (row["role"], row["made_by"]) if row else None

    def accept(self, code: str, person_id: int, name: str) -> str | None:
        """Use up a code; the role it gave, or None."""
        with self._store.transaction():
            found = self.invitation(code)
            if found is None:
                return None
            self._store.execute("DELETE FROM pairings WHERE digest = ?", (_digest(code),))
            self._store.execute(
                "INSERT INTO people (id, role, name, paired_by, paired_at) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET role = excluded.role, name = excluded.name,"
                " paired_by = excluded.paired_by, paired_at = excluded.paired_at",
                (person_id, found[0], name, found[1], clock.text(clock.now())),
            )
            return found[0]

    def revoke(self, person_id: int) -> bool:
        """Take back a role given by pairing; False if there was none."""
        took = self._store.execute("UPDATE people SET role = NULL WHERE id = ? AND role IS NOT NULL", (person_id,))
        return bool(took.rowcount == 1)

    def forget_invitations(self) -> int:
        """Make every code still out there useless; how many there were."""
        return int(self._store.execute("DELETE FROM pairings").rowcount)

    # -- groups that grew --------------------------------------------------------------------------

    def note_successor(self, chat: int, became: int) -> None:
        """A group has a new id since it became a supergroup."""
        self._store.execute("INSERT OR REPLACE INTO successors VALUES (?, ?)", (chat, became))

    def successors(self) -> dict[int, int]:
        """The new id of each group that has one."""
        return {row["chat"]: row["became"] for row in self._store.rows("SELECT chat, became FROM successors")}


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()


def _person(row: Any) -> Person:
    quiet = None if row["quiet"] is None else tuple(json.loads(row["quiet"]))
    return Person(
        id=row["id"], role=row["role"], name=row["name"], paired_by=row["paired_by"], paired_at=row["paired_at"],
        noise=row["noise"], quiet=quiet,
    )  # fmt: skip
