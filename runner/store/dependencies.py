"""Which jobs wait for which others to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from runner.store.connection import marks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.model import JobSpec
    from runner.store.connection import Store

OK, ENDED = "ok", "ended"  # the end that a job waits for: success, or any
_READY = "ready = (blockers = 0 AND held_by IS NULL AND begin_at IS NULL)"

AT_ONCE = 500  # jobs per query


class Blocker(NamedTuple):
    """An unfinished job that another one waits for, and for which end: success (OK) or any (ENDED)."""

    job_id: int
    kind: str


class Dependencies:
    """Open dependencies only: each is deleted when its job has ended. Works within the caller's transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, job_id: int, spec: JobSpec) -> None:
        """Make a queued job wait for the jobs that its spec names, except those that have ended."""
        for kind, others in ((OK, spec.after_ok), (ENDED, spec.after)):
            for other in others:
                self._store.execute(
                    "INSERT OR IGNORE INTO dependencies SELECT id, ?, ? FROM jobs"
                    " WHERE id = ? AND state IN ('QUEUED', 'STARTING', 'RUNNING')",
                    (job_id, kind, other),
                )
        self.count(job_id)

    def replace(self, job_id: int, spec: JobSpec) -> None:
        """Replace the dependencies of a job whose spec has changed."""
        self.forget(job_id)
        self.add(job_id, spec)

    def that_waits_for(self, job_id: int, others: Iterable[int]) -> int | None:
        """Return one of `others` that is this job or waits for it, directly or through others; None if none does."""
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
        """Delete the dependencies of a job."""
        self._store.execute("DELETE FROM dependencies WHERE job_id = ?", (job_id,))

    def settle(self, ended: int, *, succeeded: bool) -> list[int]:
        """Delete the dependencies on an ended job and unblock its dependents. Return those that can never run now."""
        rows = self._store.rows("SELECT job_id, kind FROM dependencies WHERE on_job = ?", (ended,))
        if not rows:
            return []
        self._store.execute("DELETE FROM dependencies WHERE on_job = ?", (ended,))
        doomed = {row["job_id"] for row in rows if row["kind"] == OK and not succeeded}
        for job_id in {row["job_id"] for row in rows} - doomed:
            self.count(job_id)
        return sorted(doomed)

    def of(self, job_ids: Iterable[int]) -> dict[int, list[Blocker]]:
        """Return which jobs each of these still waits for; jobs that wait for none are left out."""
        found: dict[int, list[Blocker]] = {}
        wanted = list(job_ids)
        for first in range(0, len(wanted), AT_ONCE):
            some = wanted[first : first + AT_ONCE]
            sql = f"SELECT job_id, on_job, kind FROM dependencies WHERE job_id IN ({marks(some)})"
            for job_id, *blocker in self._store.rows(f"{sql} ORDER BY job_id, on_job", some):
                found.setdefault(job_id, []).append(Blocker(*blocker))
        return found

    def count(self, job_id: int) -> None:
        """Recompute how many jobs it waits for, and whether it is ready."""
        self._store.execute(
            "UPDATE jobs SET blockers = (SELECT count(*) FROM dependencies WHERE job_id = jobs.id) WHERE id = ?",
            (job_id,),
        )
        self._store.execute(f"UPDATE jobs SET {_READY} WHERE id = ? AND state = 'QUEUED'", (job_id,))
