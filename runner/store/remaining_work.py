"""Whether any work is left, and which jobs ended since an event."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from runner.store.connection import Store


class Done(NamedTuple):
    """What has ended since an event."""

    states: dict[str, int]  # number of jobs by state
    attempts: int  # how many of them had an attempt
    last_event: int
    since: str | None  # when the first event of an attempt was; None if there was none


class Standstill:
    """Queries for every tick, answered from indexes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def any_to_do(self) -> bool:
        """Return whether any job is live, is ready, or only waits for its begin time."""
        found = self._store.row(
            "SELECT EXISTS (SELECT 1 FROM jobs WHERE state IN ('STARTING', 'RUNNING'))"
            " OR EXISTS (SELECT 1 FROM jobs WHERE state = 'QUEUED' AND ready = 1)"
            " OR EXISTS (SELECT 1 FROM jobs WHERE begin_at IS NOT NULL AND held_by IS NULL AND blockers = 0)"
        )
        return bool(found[0])

    def held(self) -> int:
        """Return how many queued jobs are not ready. If no work is left, they are held or wait for a held job."""
        found = self._store.row(
            "SELECT (SELECT count(*) FROM jobs INDEXED BY jobs_of_owner"
            " WHERE state IN ('QUEUED', 'STARTING', 'RUNNING') AND state = 'QUEUED')"
            " - (SELECT count(*) FROM jobs WHERE state = 'QUEUED' AND ready = 1)"
        )
        return int(found[0])

    def last_event(self) -> int:
        """Return the number of the newest event; 0 if there is none."""
        return int(self._store.row("SELECT coalesce(max(id), 0) FROM events")[0])

    def done_since(self, event: int) -> Done:
        """Return what ended after this event."""
        rows = self._store.rows(
            "SELECT json_extract(data, '$.state') AS state, count(*) AS n, count(attempt) AS attempts, max(id) AS last"
            " FROM events WHERE id > ? AND kind = 'ended' GROUP BY 1",
            (event,),
        )
        if not rows:
            return Done({}, 0, event, None)
        first = self._store.row("SELECT at FROM events WHERE id > ? AND attempt IS NOT NULL LIMIT 1", (event,))
        return Done(
            {row["state"]: row["n"] for row in rows},
            sum(row["attempts"] for row in rows),
            max(row["last"] for row in rows),
            first["at"] if first else None,
        )
