"""Which queued jobs are unlike those that failed, and which are like them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.request import request_in
from runner.schedule import Waiting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from runner.store.connection import Store


class Trials:
    """Jobs are alike that run the same program with the same options, in the same folder."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def shapes(self, job_ids: Iterable[int]) -> list[str]:
        """What kinds of jobs these are, one for each of them."""
        wanted = list(job_ids)
        marks = ", ".join("?" * len(wanted))
        rows = self._store.rows(f"SELECT shape FROM jobs WHERE id IN ({marks}) AND shape IS NOT NULL", wanted)  # noqa: S608
        return [row["shape"] for row in rows]

    def candidates(self, unlike: Collection[str] = ()) -> list[Waiting]:
        """The first job of every lane that could start, of other kinds than these."""
        marks = ", ".join("?" * len(unlike))
        rows = self._store.rows(
            "SELECT id, lane, min(position) AS position FROM jobs"  # noqa: S608
            f" WHERE state = 'QUEUED' AND ready = 1 AND coalesce(shape, '') NOT IN ({marks}) GROUP BY lane",
            list(unlike),
        )
        return [Waiting(row["id"], request_in(row["lane"]), row["position"]) for row in rows]

    def hold(self, shapes: Collection[str], by: str) -> list[int]:
        """Keep all that wait of these kinds from starting; which those are."""
        marks = ", ".join("?" * len(shapes))
        alike = f"state = 'QUEUED' AND held_by IS NULL AND shape IN ({marks})"
        rows = self._store.rows(f"SELECT id FROM jobs WHERE {alike} ORDER BY id", list(shapes))  # noqa: S608
        self._store.execute(f"UPDATE jobs SET held_by = ?, ready = 0 WHERE {alike}", [by, *shapes])  # noqa: S608
        return [row["id"] for row in rows]
