"""GPU usage of attempts, as it is stored."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.store.connection import Store

_OF_ATTEMPT = "SELECT gpus, usage FROM attempts WHERE job_id = ? AND number = ?"


class Used:
    """One usage record for each attempt. `keep` updates it while the attempt runs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, job_id: int, attempt: int) -> dict[str, Any] | None:
        """Return what an attempt used, so far or in total; None if nothing is stored."""
        return usage_of(self._store.row(_OF_ATTEMPT, (job_id, attempt)))

    def kept(self, job_id: int, attempt: int) -> tuple[tuple[str, ...], dict[str, Any]]:
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
