"""Workspaces, and the environment each was last seen to have."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from runner.config.environment import fingerprint
from runner.config.workspace import Workspace, environment_of, stamp
from runner.errors import UserError

if TYPE_CHECKING:
    from runner.store.connection import Store


class Workspaces:
    """Named places to run jobs in."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self) -> list[Workspace]:
        """By name."""
        rows = self._store.rows("SELECT body FROM workspaces ORDER BY name")
        return [Workspace(**json.loads(row["body"])) for row in rows]

    def get(self, name: str) -> Workspace:
        """One of them; UserError names those there are."""
        row = self._store.row("SELECT body FROM workspaces WHERE name = ?", (name,))
        if row is None:
            known = ", ".join(workspace.name for workspace in self.all()) or "none yet"
            raise UserError(f"There is no workspace {name!r} (there is: {known}); `nightshift ws add` makes one.")
        return Workspace(**json.loads(row["body"]))

    def default(self) -> Workspace | None:
        """The one a chat job gets that names none."""
        return next((workspace for workspace in self.all() if workspace.default), None)

    def put(self, workspace: Workspace) -> None:
        """Add or replace one; the first, or one marked so, is the default."""
        with self._store.transaction():
            others = [other for other in self.all() if other.name != workspace.name]
            only = Workspace(**{**asdict(workspace), "default": workspace.default or not others})
            if only.default:
                for other in others:
                    self._write(Workspace(**{**asdict(other), "default": False}))
            self._write(only)

    def remove(self, name: str) -> None:
        """Forget one; its jobs keep what they were submitted with."""
        self.get(name)
        self._store.execute("DELETE FROM workspaces WHERE name = ?", (name,))

    def environment(self, workspace: Workspace) -> tuple[str, dict[str, str]]:
        """Key and variables of its environment: captured once, and again when something it depends on changed."""
        now = stamp(workspace)
        return self.known_environment(workspace, now) or self.keep_environment(
            workspace, now, environment_of(workspace)
        )

    def known_environment(self, workspace: Workspace, now: str) -> tuple[str, dict[str, str]] | None:
        """Key and variables as captured before, if nothing has changed by this stamp."""
        row = self._store.row("SELECT stamp, environment FROM workspaces WHERE name = ?", (workspace.name,))
        if not row or row["stamp"] != now or not row["environment"]:
            return None
        kept = self._store.row("SELECT variables FROM environments WHERE key = ?", (row["environment"],))
        return (row["environment"], json.loads(kept["variables"])) if kept else None

    def keep_environment(self, workspace: Workspace, now: str, variables: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Remember what was captured under this stamp; its key and itself."""
        key = fingerprint(variables)
        with self._store.transaction():
            self._store.execute("INSERT OR IGNORE INTO environments VALUES (?, ?)", (key, json.dumps(variables)))
            self._store.execute(
                "UPDATE workspaces SET stamp = ?, environment = ? WHERE name = ?", (now, key, workspace.name)
            )
        return key, variables

    def _write(self, workspace: Workspace) -> None:
        self._store.execute(
            "INSERT INTO workspaces (name, body) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET body = excluded.body, stamp = NULL, environment = NULL",
            (workspace.name, json.dumps(asdict(workspace))),
        )
