"""Which jobs wait for which others to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.model import JobSpec
    from runner.store.connection import Store

OK, ENDED = "ok", "ended"  # what is waited for: success, or any end
_READY = "ready = (blockers = 0 AND held_by IS NULL AND begin_at IS NULL)"

AT_ONCE = 500  # that are asked about in one question


class Blocker(NamedTuple):
    """A job that has not ended, and what another one waits for it to do."""

    job_id: int
    kind: str


class Dependencies:
    """Open ones alone: each is removed when what it waits for has ended. Part of the caller's transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, job_id: int, spec: JobSpec) -> None:
        """Have a queued job wait for those its spec names, as far as they have not ended."""
        for kind, others in ((OK, spec.after_ok), (ENDED, spec.after)):
            for other in others:
                self._store.execute(
                    "INSERT OR IGNORE INTO dependencies SELECT id, ?, ? FROM jobs"
                    " WHERE id = ? AND state IN ('QUEUED', 'STARTING', 'RUNNING')",
                    (job_id, kind, other),
                )
        self.count(job_id)

    def replace(self, job_id: int, spec: JobSpec) -> None:
        """The same after the spec has changed."""
        self.forget(job_id)
        self.add(job_id, spec)

    def that_waits_for(self, job_id: int, others: Iterable[int]) -> int | None:
        """One of these others that is this job, or waits for it, at whatever remove; None if none does."""
        for other in others:
            found = self._store.row(
                "WITH RECURSIVE ahead(id) AS (SELECT ? UNION SELECT on_job FROM dependencies JOIN ahead"
                " ON dependencies.job_id = ahead.id) SELECT 1 FROM ahead WHERE id = ?",
                (other, job_id),
            )
            if found:
                return other
        return None

    def forget(self, job_id: int) -> None:
        """It waits for nothing any more."""
        self._store.execute("DELETE FROM dependencies WHERE job_id = ?", (job_id,))

    def settle(self, ended: int, *, succeeded: bool) -> list[int]:
        """A job has ended for good: let go those that waited for just that; the ones that can never run now."""
        rows = self._store.rows("SELECT job_id, kind FROM dependencies WHERE on_job = ?", (ended,))
        if not rows:
            return []
        self._store.execute("DELETE FROM dependencies WHERE on_job = ?", (ended,))
        doomed = {row["job_id"] for row in rows if row["kind"] == OK and not succeeded}
        for job_id in {row["job_id"] for row in rows} - doomed:
            self.count(job_id)
        return sorted(doomed)

    def of(self, job_ids: Iterable[int]) -> dict[int, list[Blocker]]:
        """What each of these still waits for."""
        found: dict[int, list[Blocker]] = {}
        wanted = list(job_ids)
        for first in range(0, len(wanted), AT_ONCE):
            some = wanted[first : first + AT_ONCE]
            marks = ", ".join("?" * len(some))
            sql = f"SELECT job_id, on_job, kind FROM dependencies WHERE job_id IN ({marks}) ORDER BY job_id, on_job"  # noqa: S608
            for job_id, *blocker in self._store.rows(sql, some):
                found.setdefault(job_id, []).append(Blocker(*blocker))
        return found

    def count(self, job_id: int) -> None:
        """Reckon anew how many it waits for, and whether it may start."""
        self._store.execute(
            "UPDATE jobs SET blockers = (SELECT count(*) FROM dependencies WHERE job_id = jobs.id) WHERE id = ?",
            (job_id,),
        )
        self._store.execute(f"UPDATE jobs SET {_READY} WHERE id = ? AND state = 'QUEUED'", (job_id,))  # noqa: S608
