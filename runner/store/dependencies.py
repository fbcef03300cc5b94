"""Which jobs wait for which others to end, and which job was run again as which."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from runner.model import Reason, State
from runner.store.connection import Table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from runner.model import JobSpec

OK, ENDED = "ok", "ended"  # the end that a job waits for: success, or any
_READY = "ready = (blockers = 0 AND held_by IS NULL AND begin_at IS NULL)"
_THESE = "(SELECT value FROM json_each(?))"  # a list of numbers as JSON, however long it is


class Blocker(NamedTuple):
    """An unfinished job that another one waits for, and for which end: success (OK) or any (ENDED)."""

    job_id: int
    kind: str


class Awaited(NamedTuple):
    """The jobs that a rerun depends on."""

    after: tuple[int, ...] = ()
    after_ok: tuple[int, ...] = ()
    in_vain: tuple[int, ...] = ()  # ended without the success that it depends on


class Dependencies(Table):
    """Open dependencies only: each is deleted when its job has ended. Works within the caller's transaction."""

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
            waits = self._store.value(
                "WITH RECURSIVE ahead(id) AS (SELECT ? UNION SELECT on_job FROM dependencies JOIN ahead"
                " ON dependencies.job_id = ahead.id) SELECT 1 FROM ahead WHERE id = ?",
                (other, job_id),
            )
            if waits:
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
        blockers: dict[int, list[Blocker]] = {}
        sql = f"SELECT job_id, on_job, kind FROM dependencies WHERE job_id IN {_THESE} ORDER BY job_id, on_job"
        for job_id, *blocker in self._store.rows(sql, (json.dumps(list(job_ids)),)):
            blockers.setdefault(job_id, []).append(Blocker(*blocker))
        return blockers

    def count(self, job_id: int) -> None:
        """Recompute how many jobs it waits for, and whether it is ready."""
        self._store.execute(
            "UPDATE jobs SET blockers = (SELECT count(*) FROM dependencies WHERE job_id = jobs.id) WHERE id = ?",
            (job_id,),
        )
        self._store.execute(f"UPDATE jobs SET {_READY} WHERE id = ? AND state = 'QUEUED'", (job_id,))


class Reruns(Table):
    """Queries about reruns, within the caller's transaction."""

    def awaited(self, spec: JobSpec) -> Awaited:
        """Return its dependencies that have not ended or did not succeed. A job counts as its latest rerun."""
        latest = self._latest({*spec.after, *spec.after_ok})
        rows = self._store.rows(f"SELECT id, state FROM jobs WHERE id IN {_THESE}", (json.dumps([*latest.values()]),))
        states = {row["id"]: State(row["state"]) for row in rows}
        unfinished = {number for number, state in states.items() if not state.final}
        failed = {number for number, state in states.items() if state.final and state is not State.SUCCEEDED}
        after, after_ok = (
            tuple(dict.fromkeys(latest[number] for number in named)) for named in (spec.after, spec.after_ok)
        )
        return Awaited(
            tuple(number for number in after if number in unfinished),
            tuple(number for number in after_ok if number in unfinished),
            tuple(number for number in after_ok if number in failed),
        )

    def _latest(self, numbers: Collection[int]) -> dict[int, int]:
        """Map each of these jobs to its latest rerun, or to itself."""
        latest, look_at = {number: number for number in numbers}, set(numbers)
        while look_at:
            rows = self._store.rows(
                "SELECT json_extract(spec, '$.again_of') AS was, max(id) AS is_now FROM jobs"
                f" WHERE id > ? AND was IN {_THESE} GROUP BY was",
                (min(look_at), json.dumps(list(look_at))),
            )
            again = {row["was"]: row["is_now"] for row in rows}
            latest = {number: again.get(now, now) for number, now in latest.items()}
            look_at = set(again.values())
        return latest

    def was_stopped(self, job_id: int) -> bool:
        """Return whether a person stopped this job, or a job that it depended on, directly or through others."""
        seen = set()
        while job_id not in seen:
            seen.add(job_id)
            row = self._store.row("SELECT reason, stop_by FROM jobs WHERE id = ?", (job_id,))
            if row is None or row["reason"] != Reason.DEPENDENCY.value:
                return row is not None and row["reason"] == Reason.USER.value
            job_id = int(str(row["stop_by"]).lstrip("#"))
        return False


def parents_first(after: Mapping[int, Collection[int]]) -> list[int]:
    """Return these jobs, each behind those it depends on; otherwise in the given order."""
    placed: dict[int, None] = {}
    for number in after:
        path = [number]
        while path:
            waits_for = [other for other in after[path[-1]] if other in after and other not in placed]
            waits_for = [other for other in waits_for if other not in path]  # should there be a cycle, ignore it
            if waits_for:
                path.append(waits_for[0])
            else:
                placed[path.pop()] = None
    return list(placed)
