"""What the idle and hung watchdogs store about a job: its countdown, who kept it, and the evidence against it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.store.connection import Table, marks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Keep(NamedTuple):
    """A request to leave a job alone, until a moment of the monotonic clock or for good (`until` is None)."""

    by: str
    until: float | None
    until_at: str | None  # the same by the wall clock, for people and for after a reboot
    boot_id: str = ""  # the boot that `until` belongs to


class Watched(NamedTuple):
    """The watchdogs' row for one job."""

    attempt: int
    state: dict[str, Any]
    keep: Keep | None
    warning: int | None  # the notice that warned of the stop
    put_off_until: float | None  # by the monotonic clock, because the warning was not delivered
    evidence: dict[str, Any] | None


class Watches(Table):
    """One row for each job that was watched or kept."""

    def of(self, job_ids: Iterable[int]) -> dict[int, Watched]:
        """Return the rows of these jobs; jobs without one are left out."""
        wanted = list(job_ids)
        rows = self._store.rows(f"SELECT * FROM watches WHERE job_id IN ({marks(wanted)})", wanted)
        return {row["job_id"]: _watched(row) for row in rows}

    def begin(self, job_id: int, attempt: int, state: str) -> None:
        """Begin to watch a new attempt. A `keep` of the job stays in force."""
        self._store.execute(
            "INSERT INTO watches (job_id, attempt, state) VALUES (?, ?, ?) ON CONFLICT (job_id) DO UPDATE SET"
            " attempt = excluded.attempt, state = excluded.state, warning = NULL, put_off_until = NULL,"
            " evidence = NULL",
            (job_id, attempt, state),
        )

    def save(self, job_id: int, state: str) -> None:
        """Store how far the countdown is (JSON), for the next runner."""
        self._store.execute("UPDATE watches SET state = ? WHERE job_id = ?", (state, job_id))

    def warned(self, job_id: int, notice: int | None, evidence: Mapping[str, Any] | None) -> None:
        """Store the notice of a warning and its evidence; None for both clears them."""
        self._store.execute(
            "UPDATE watches SET warning = ?, put_off_until = NULL, evidence = ? WHERE job_id = ?",
            (notice, None if evidence is None else json.dumps(evidence), job_id),
        )

    def put_off(self, job_id: int, until: float) -> None:
        """Delay the stop until this moment of the monotonic clock."""
        self._store.execute("UPDATE watches SET put_off_until = ? WHERE job_id = ?", (until, job_id))

    def judged(self, job_id: int, evidence: Mapping[str, Any]) -> None:
        """Store the evidence on which a job is stopped."""
        self._store.execute("UPDATE watches SET evidence = ? WHERE job_id = ?", (json.dumps(evidence), job_id))

    def end(self, job_id: int) -> None:
        """Clear the countdown of an attempt that has ended; keep the evidence."""
        self._store.execute("UPDATE watches SET state = '{}' WHERE job_id = ?", (job_id,))

    def keep(self, job_id: int, keep: Keep) -> None:
        """Store a request to leave a job alone, and clear its warning and evidence."""
        self._store.execute(
            "INSERT INTO watches (job_id, attempt, keep) VALUES (?, 0, ?) ON CONFLICT (job_id) DO UPDATE SET"
            " keep = excluded.keep, warning = NULL, put_off_until = NULL, evidence = NULL",
            (job_id, json.dumps(keep)),
        )


def _watched(row: Any) -> Watched:
    keep = json.loads(row["keep"]) if row["keep"] else None
    return Watched(
        row["attempt"],
        json.loads(row["state"]),
        Keep(*keep) if keep else None,
        row["warning"],
        row["put_off_until"],
        json.loads(row["evidence"]) if row["evidence"] else None,
    )
