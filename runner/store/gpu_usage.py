"""What attempts used of their GPUs, as it is written down."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.store.connection import Store

_OF_ATTEMPT = "SELECT gpus, usage FROM attempts WHERE job_id = ? AND number = ?"


class Used:
    """One record for each attempt with GPUs, kept while it runs and left alone after."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, job_id: int, attempt: int) -> dict[str, Any] | None:
        """What it used, so far or in all; None if nothing was written down."""
        return usage_of(self._store.row(_OF_ATTEMPT, (job_id, attempt)))

    def kept(self, job_id: int, attempt: int) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Its GPUs, and what was last written down of their use, with the sums behind it."""
        row = self._store.row(_OF_ATTEMPT, (job_id, attempt))
        return tuple(json.loads(row["gpus"])), json.loads(row["usage"] or "{}")

    def keep(self, job_id: int, attempt: int, usage: str) -> None:
        """Write down the use so far of an attempt under way."""
        self._store.execute(
            "UPDATE attempts SET usage = ? WHERE job_id = ? AND number = ? AND finished_at IS NULL",
            (usage, job_id, attempt),
        )


def usage_of(row: Any) -> dict[str, Any] | None:
    """What an attempt's row tells of its use of GPUs, without the sums behind it."""
    if not row or not row["usage"]:
        return None
    return {name: value for name, value in json.loads(row["usage"]).items() if name != "sums"}
