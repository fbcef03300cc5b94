"""Presets: jobs that a person saved under a name, to queue them again."""

from __future__ import annotations

import json
from typing import NamedTuple

from runner import clock
from runner.model import JobSpec
from runner.store.connection import Table


class Preset(NamedTuple):
    """A spec under a name."""

    owner: str
    name: str
    spec: JobSpec


class Presets(Table):
    """The presets of everybody. A person's own win over those of others with the same name."""

    def put(self, owner: str, name: str, spec: JobSpec) -> None:
        """Save a spec under this name, in place of an earlier one of the same owner."""
        body = json.dumps(spec.to_json())
        self._store.execute(
            "INSERT OR REPLACE INTO presets VALUES (?, ?, ?, ?)", (owner, name, body, clock.text(clock.now()))
        )

    def get(self, owner: str, name: str) -> Preset | None:
        """Return the owner's preset of this name, else the one that somebody else saved last; None if there is none."""
        row = self._store.row(
            "SELECT * FROM presets WHERE name = ? ORDER BY owner = ? DESC, saved_at DESC LIMIT 1", (name, owner)
        )
        return _preset(row) if row else None

    def all(self) -> list[Preset]:
        """Return all presets, the latest first."""
        return [_preset(row) for row in self._store.rows("SELECT * FROM presets ORDER BY saved_at DESC, name")]

    def remove(self, owner: str, name: str) -> bool:
        """Delete a preset. Return False if the owner has none of this name."""
        return bool(self._store.execute("DELETE FROM presets WHERE owner = ? AND name = ?", (owner, name)).rowcount)


def _preset(row: dict[str, str]) -> Preset:
    return Preset(row["owner"], row["name"], JobSpec.from_json(json.loads(row["spec"])))
