"""Workspaces, and the last captured environment of each."""

from __future__ import annotations

import json
from dataclasses import asdict

from runner.config.job_environment import fingerprint
from runner.config.workspace import Workspace, environment_of, stamp
from runner.errors import UserError
from runner.store.connection import Table


class Workspaces(Table):
    """Named folders and environments to run jobs in."""

    def all(self) -> list[Workspace]:
        """Return all workspaces, ordered by name."""
        rows = self._store.rows("SELECT body FROM workspaces ORDER BY name")
        return [Workspace(**json.loads(row["body"])) for row in rows]

    def get(self, name: str) -> Workspace:
        """Return a workspace. Raise UserError, with the names there are, if it does not exist."""
        row = self._store.row("SELECT body FROM workspaces WHERE name = ?", (name,))
        if row is None:
            known = ", ".join(workspace.name for workspace in self.all()) or "none yet"
            raise UserError(f"There is no workspace {name!r} (there is: {known}); `nightshift ws add` makes one.")
        return Workspace(**json.loads(row["body"]))

    def default(self) -> Workspace | None:
        """Return the workspace for chat jobs that name none; None if there is no default."""
        return next((workspace for workspace in self.all() if workspace.default), None)

    def put(self, workspace: Workspace) -> None:
        """Add or replace a workspace. It becomes the default if it is marked so or is the only one."""
        with self._store.transaction():
            others = [other for other in self.all() if other.name != workspace.name]
            only = Workspace(**{**asdict(workspace), "default": workspace.default or not others})
            if only.default:
                for other in others:
                    self._write(Workspace(**{**asdict(other), "default": False}))
            self._write(only)

    def remove(self, name: str) -> None:
        """Delete a workspace. Its jobs keep the environment they were submitted with."""
        self.get(name)
        self._store.execute("DELETE FROM workspaces WHERE name = ?", (name,))

    def environment(self, workspace: Workspace) -> tuple[str, dict[str, str]]:
        """Return key and variables of its environment. Capture it if something it depends on has changed."""
        now = stamp(workspace)
        return self.known_environment(workspace, now) or self.keep_environment(
            workspace, now, environment_of(workspace)
        )

    def known_environment(self, workspace: Workspace, now: str) -> tuple[str, dict[str, str]] | None:
        """Return key and variables as captured before; None if the stamp has changed or nothing was captured."""
        row = self._store.row("SELECT stamp, environment FROM workspaces WHERE name = ?", (workspace.name,))
        if not row or row["stamp"] != now or not row["environment"]:
            return None
        kept = self._store.row("SELECT variables FROM environments WHERE key = ?", (row["environment"],))
        return (row["environment"], json.loads(kept["variables"])) if kept else None

    def keep_environment(self, workspace: Workspace, now: str, variables: dict[str, str]) -> tuple[str, dict[str, str]]:
        """Store the captured variables with this stamp. Return their key and the variables."""
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
