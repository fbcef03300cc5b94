"""Reruns: which job was run again as which, and which jobs a rerun has to wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from runner.model import Reason, State
from runner.store.connection import marks

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from runner.model import JobSpec
    from runner.store.connection import Store

_MOST_NAMED = 500  # in one statement


class Awaited(NamedTuple):
    """The jobs that a rerun depends on."""

    after: tuple[int, ...] = ()
    after_ok: tuple[int, ...] = ()
    in_vain: tuple[int, ...] = ()  # ended without the success that it depends on


class Reruns:
    """Queries about reruns, within the caller's transaction."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def awaited(self, spec: JobSpec) -> Awaited:
        """Return its dependencies that have not ended or did not succeed. A job counts as its latest rerun."""
        latest = self._latest({*spec.after, *spec.after_ok})
        states = self._states(latest.values())
        unfinished = {number for number, state in states.items() if not state.final}
        failed = {number for number, state in states.items() if state.final and state is not State.SUCCEEDED}
        after, after_ok = (tuple(dict.fromkeys(latest[one] for one in named)) for named in (spec.after, spec.after_ok))
        return Awaited(
            tuple(number for number in after if number in unfinished),
            tuple(number for number in after_ok if number in unfinished),
            tuple(number for number in after_ok if number in failed),
        )

    def _latest(self, numbers: Collection[int]) -> dict[int, int]:
        """Map each of these jobs to its latest rerun, or to itself."""
        found, look_at = {number: number for number in numbers}, set(numbers)
        while look_at:
            again: dict[int, int] = {}
            for some in _parts(sorted(look_at)):
                rows = self._store.rows(
                    "SELECT json_extract(spec, '$.again_of') AS was, max(id) AS is_now FROM jobs"
                    f" WHERE id > ? AND json_extract(spec, '$.again_of') IN ({', '.join('?' * len(some))})"
                    " GROUP BY was",
                    (some[0], *some),
                )
                again |= {row["was"]: row["is_now"] for row in rows}
            found = {number: again.get(now, now) for number, now in found.items()}
            look_at = set(again.values())
        return found

    def _states(self, numbers: Collection[int]) -> dict[int, State]:
        found: dict[int, State] = {}
        for some in _parts(sorted(set(numbers))):
            rows = self._store.rows(f"SELECT id, state FROM jobs WHERE id IN ({marks(some)})", some)
            found |= {row["id"]: State(row["state"]) for row in rows}
        return found

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
            waits_for = [
                other for other in waits_for if other not in path
            ]  # there are no cycles; if there were one, ignore it
            if waits_for:
                path.append(waits_for[0])
            else:
                placed[path.pop()] = None
    return list(placed)


def _parts(numbers: Sequence[int]) -> list[Sequence[int]]:
    return [numbers[at : at + _MOST_NAMED] for at in range(0, len(numbers), _MOST_NAMED)]
