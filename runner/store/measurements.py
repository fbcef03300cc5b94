"""What was measured: the GPU usage of attempts, and the memory that each kind of job needs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.store.connection import Table

if TYPE_CHECKING:
    from runner.supervisor.probe_records import RememberedMemory

KINDS = 1000  # remembered; the least recently stored are deleted
_OF_ATTEMPT = "SELECT gpus, usage FROM attempts WHERE job_id = ? AND number = ?"


class Used(Table):
    """One usage record for each attempt. `keep` updates it while the attempt runs."""

    def of(self, job_id: int, attempt: int) -> dict[str, Any] | None:
        """Return what an attempt used, so far or in total; None if nothing is stored."""
        return usage_of(self._store.row(_OF_ATTEMPT, (job_id, attempt)))

    def stored(self, job_id: int, attempt: int) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Return the GPUs of an attempt and its stored usage, including the sums that it is computed from."""
        row = self._store.row(_OF_ATTEMPT, (job_id, attempt))
        return tuple(json.loads(row["gpus"])), json.loads(row["usage"] or "{}")

    def keep(self, job_id: int, attempt: int, usage: str) -> None:
        """Store the usage so far of an attempt that has not ended."""
        self._store.execute(
            "UPDATE attempts SET usage = ? WHERE job_id = ? AND number = ? AND finished_at IS NULL",
            (usage, job_id, attempt),
        )


def usage_of(row: Any) -> dict[str, Any] | None:
    """Return the usage in an attempt's row, without the sums that it is computed from; None if there is none."""
    if not row or not row["usage"]:
        return None
    return {name: value for name, value in json.loads(row["usage"]).items() if name != "sums"}


class KnownBatches(Table):
    """The GPU memory of each kind of job, one row each."""

    def get(self, key: str | None) -> RememberedMemory | None:
        """Return what is known about a kind; None if nothing is known or the key is None."""
        body = self._store.value("SELECT body FROM known_batches WHERE key = ?", (key,))
        if body is None:
            return None
        from runner.supervisor.probe_records import RememberedMemory  # imported late: only probed jobs need it

        return RememberedMemory.from_json(json.loads(body))

    def put(self, key: str, gpu: str | None, memory: RememberedMemory) -> None:
        """Store what is known about a kind, in place of what was known before."""
        self._store.execute(
            "INSERT OR REPLACE INTO known_batches VALUES (?, ?, ?, ?)",
            (key, gpu, json.dumps(memory.to_json()), clock.text(clock.now())),
        )
        self._store.execute(
            "DELETE FROM known_batches WHERE key IN"
            " (SELECT key FROM known_batches ORDER BY used_at DESC LIMIT -1 OFFSET ?)",
            (KINDS,),
        )

    def drop(self, key: str | None) -> None:
        """Delete what is known about a kind."""
        self._store.execute("DELETE FROM known_batches WHERE key = ?", (key,))
