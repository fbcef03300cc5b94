"""People who were paired, their notification settings, and the pairing codes that are still valid."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from runner.api.chat import clock

if TYPE_CHECKING:
    from runner.api.chat import Store

PAIRING_S = 600.0
CODE_BYTES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """What is stored about a person; `role` is set only by pairing."""

    id: int
    role: str | None = None
    name: str = ""
    paired_by: str | None = None
    paired_at: str | None = None
    noise: str = "all"
    quiet: tuple[int, int] | tuple[()] | None = None  # minutes since midnight; () is never, None is the box's setting
    zone: str | None = None  # like Europe/Berlin; None is the box's


class People:
    """Everybody the chat has stored something about."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, person_id: int) -> Person:
        """Return what is stored about a person; defaults if nothing is."""
        row = self._store.row("SELECT * FROM people WHERE id = ?", (person_id,))
        return _person(row) if row else Person(id=person_id)

    def paired(self) -> list[Person]:
        """Return everybody with a role from pairing."""
        return [_person(row) for row in self._store.rows("SELECT * FROM people WHERE role IS NOT NULL ORDER BY id")]

    def note_name(self, person_id: int, name: str) -> None:
        """Store a person's current name. It is only shown, never used for rights."""
        self._store.execute(
            "INSERT INTO people (id, name) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name"
            " WHERE name IS NOT excluded.name",
            (person_id, name),
        )

    def set_noise(self, person_id: int, noise: str) -> None:
        """Set how many notices a person wants."""
        self._set(person_id, "noise", noise)

    def set_quiet(self, person_id: int, hours: tuple[int, int] | tuple[()] | None) -> None:
        """Set the hours in which a person gets messages without a sound."""
        self._set(person_id, "quiet", None if hours is None else json.dumps(hours))

    def set_zone(self, person_id: int, zone: str | None) -> None:
        """Set the time zone in which a person reads and types times."""
        self._set(person_id, "zone", zone)

    def _set(self, person_id: int, column: str, value: Any) -> None:
        self._store.execute(
            f"INSERT INTO people (id, {column}) VALUES (?, ?)"
            f" ON CONFLICT (id) DO UPDATE SET {column} = excluded.{column}",
            (person_id, value),
        )

    # -- pairing -----------------------------------------------------------------------------------

    def invite(self, role: str, made_by: str) -> str:
        """Return a code that gives this role to the first person who sends it in time. Only its digest is stored."""
        code = secrets.token_urlsafe(CODE_BYTES)
        expires = clock.text(clock.now() + timedelta(seconds=PAIRING_S))
        with self._store.transaction():
            self._store.execute("DELETE FROM pairings WHERE expires_at < ?", (clock.text(clock.now()),))
            self._store.execute("INSERT INTO pairings VALUES (?, ?, ?, ?)", (_digest(code), role, made_by, expires))
        return code

    def invitations(self) -> int:
        """Return how many codes are still valid."""
        row = self._store.row("SELECT count(*) FROM pairings WHERE expires_at > ?", (clock.text(clock.now()),))
        return int(row[0])

    def invitation(self, code: str) -> tuple[str, str] | None:
        """Return the role of a valid code and who made it; None if it is not valid."""
        # Looked up by digest, so that the time this takes reveals nothing about valid codes.
        row = self._store.row(
            "SELECT role, made_by FROM pairings WHERE digest = ? AND expires_at > ?",
            (_digest(code), clock.text(clock.now())),
        )
        return (row["role"], row["made_by"]) if row else None

    def accept(self, code: str, person_id: int, name: str) -> str | None:
        """Use up a code and return the role it gave; None if it is not valid."""
        with self._store.transaction():
            invitation = self.invitation(code)
            if invitation is None:
                return None
            role, made_by = invitation
            self._store.execute("DELETE FROM pairings WHERE digest = ?", (_digest(code),))
            self._store.execute(
                "INSERT INTO people (id, role, name, paired_by, paired_at) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET role = excluded.role, name = excluded.name,"
                " paired_by = excluded.paired_by, paired_at = excluded.paired_at",
                (person_id, role, name, made_by, clock.text(clock.now())),
            )
            return role

    def revoke(self, person_id: int) -> bool:
        """Remove a role given by pairing. Return False if there was none."""
        took = self._store.execute("UPDATE people SET role = NULL WHERE id = ? AND role IS NOT NULL", (person_id,))
        return bool(took.rowcount == 1)

    def forget_invitations(self) -> int:
        """Delete all codes. Return how many there were."""
        return int(self._store.execute("DELETE FROM pairings").rowcount)

    # -- groups with a new id ----------------------------------------------------------------------

    def note_successor(self, chat: int, became: int) -> None:
        """Store the new id of a group that has become a supergroup."""
        self._store.execute("INSERT OR REPLACE INTO successors VALUES (?, ?)", (chat, became))

    def successors(self) -> dict[int, int]:
        """Return the new id of each group that has one, by its old id."""
        return {row["chat"]: row["became"] for row in self._store.rows("SELECT chat, became FROM successors")}


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()


def _person(row: Any) -> Person:
    quiet = None if row["quiet"] is None else tuple(json.loads(row["quiet"]))
    return Person(
        id=row["id"], role=row["role"], name=row["name"], paired_by=row["paired_by"], paired_at=row["paired_at"],
        noise=row["noise"], quiet=quiet, zone=row["zone"],
    )  # fmt: skip
