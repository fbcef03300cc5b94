"""Jobs, attempts, leases and events. Every change of state goes through one door, `_transition`."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from runner import clock
from runner.lifecycle import REASONS, may_become
from runner.model import Job, JobSpec, Phase, Reason, State, Stop
from runner.store.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runner.model import Exit
    from runner.store.connection import Store

CPU = "cpu"  # the resource a job without GPUs holds a lease on


class Lease(NamedTuple):
    """A slot of a GPU, or of the CPU, held by an attempt."""

    resource: str
    slot: int
    job_id: int
    attempt: int


class Waiting(NamedTuple):
    """A queued job as the scheduler sees it."""

    id: int
    gpus: int
    on: tuple[str, ...]
    order: tuple[int, int]


class UnderWay(NamedTuple):
    """A live job as the runner's loop sees it."""

    id: int
    attempt: int
    stop_reason: str | None


class Jobs:
    """The queue's table of jobs. Callers group calls into transactions; each call alone is one too."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._outbox = Outbox(store)

    # -- coming in ---------------------------------------------------------------------------------

    def add(self, spec: JobSpec, key: str | None = None) -> int:
        """Queue a job; the same key again gives the same job and changes nothing."""
        with self._store.transaction():
            if key is not None and (known := self._store.row("SELECT id FROM jobs WHERE key = ?", (key,))):
                return int(known["id"])
            body, at = json.dumps(spec.to_json()), clock.text(clock.now())
            job_id = self._store.execute(
                "INSERT INTO jobs (spec, state, run_id, lane, rank, position, retries_left, submitted_at, key)"
                " VALUES (?, 'QUEUED', ?, ?, ?, 0, ?, ?, ?)",
                (body, secrets.token_hex(4), lane_of(spec), -spec.priority.rank, spec.retries, at, key),
            ).lastrowid
            self._store.execute("UPDATE jobs SET position = id WHERE id = ?", (job_id,))
            self.note(job_id, None, "submitted", {"by": spec.owner}, at=at)
            return int(job_id)

    def keep_environment(self, key: str, variables: Mapping[str, str]) -> None:
        """Keep a captured environment once, however many jobs share it."""
        self._store.execute("INSERT OR IGNORE INTO environments VALUES (?, ?)", (key, json.dumps(variables)))

    def environment(self, key: str) -> dict[str, str]:
        """The captured environment kept under this key."""
        found = self._store.row("SELECT variables FROM environments WHERE key = ?", (key,))
        return dict(json.loads(found["variables"])) if found else {}

    # -- looking -----------------------------------------------------------------------------------

    def get(self, job_id: int) -> Job | None:
        """One job, or None."""
        row = self._store.row("SELECT * FROM jobs WHERE id = ?", (job_id,))
        return job_of(row) if row else None

    def find(self, states: Iterable[State] = (), limit: int = -1, *, newest_first: bool = False) -> list[Job]:
        """Jobs in these states (all if none are named), by id."""
        wanted = [state.value for state in states]
        where = f"WHERE state IN ({', '.join('?' * len(wanted))})" if wanted else ""
        order = "DESC" if newest_first else "ASC"
        rows = self._store.rows(f"SELECT * FROM jobs {where} ORDER BY id {order} LIMIT ?", (*wanted, limit))  # noqa: S608
        return [job_of(row) for row in rows]

    def count(self, *states: State) -> int:
        """How many jobs are in these states."""
        wanted = [state.value for state in states]
        marks = ", ".join("?" * len(wanted))
        return int(self._store.row(f"SELECT count(*) FROM jobs WHERE state IN ({marks})", wanted)[0])  # noqa: S608

    def live(self) -> list[Job]:
        """Jobs that an attempt is under way for."""
        return [job_of(r) for r in self._store.rows("SELECT * FROM jobs WHERE state IN ('STARTING', 'RUNNING')")]

    def under_way(self) -> list[UnderWay]:
        """The same, as little of each as the runner needs at every tick."""
        rows = self._store.rows("SELECT id, attempt, stop_reason FROM jobs WHERE state IN ('STARTING', 'RUNNING')")
        return [UnderWay(*row) for row in rows]

    def waiting(self, per_lane: int) -> list[Waiting]:
        """The first queued jobs of every lane, in the order they are to start.

        Jobs of one lane ask for the same, so where the first cannot start the later ones cannot either:
        this is all the scheduler needs to see of a queue of any length.
        """
        found = [
            Waiting(row["id"], *_request(lane), (row["rank"], row["position"]))
            for lane in self._lanes()
            for row in self._store.rows(
                "SELECT id, rank, position FROM jobs WHERE state = 'QUEUED' AND ready = 1 AND lane = ?"
                " ORDER BY rank, position LIMIT ?",
                (lane, per_lane),
            )
        ]
        return sorted(found, key=lambda waiting: waiting.order)

    def _lanes(self) -> list[str]:
        """The distinct lanes of queued jobs, by one index seek each."""
        first = "SELECT min(lane) FROM jobs WHERE state = 'QUEUED' AND ready = 1"
        rows = self._store.rows(
            f"WITH RECURSIVE found(lane) AS ({first} UNION ALL SELECT ({first} AND lane > found.lane) FROM found"  # noqa: S608
            " WHERE found.lane IS NOT NULL) SELECT lane FROM found WHERE lane IS NOT NULL"
        )
        return [row["lane"] for row in rows]

    def leases(self) -> list[Lease]:
        """Who holds what."""
        return [Lease(*row) for row in self._store.rows("SELECT resource, slot, job_id, attempt FROM leases")]

    def events(self, job_id: int) -> list[dict[str, Any]]:
        """What happened to a job, oldest first."""
        rows = self._store.rows("SELECT * FROM events WHERE job_id = ? ORDER BY id", (job_id,))
        return [{**dict(row), "data": json.loads(row["data"])} for row in rows]

    def attempts(self, job_id: int) -> list[dict[str, Any]]:
        """All tries at a job, first to last."""
        rows = self._store.rows("SELECT * FROM attempts WHERE job_id = ? ORDER BY number", (job_id,))
        return [dict(row) for row in rows]

    # -- the way through ---------------------------------------------------------------------------

    def claim(self, job_id: int, leases: Sequence[tuple[str, int]], boot_id: str) -> int | None:
        """QUEUED → STARTING with its leases; the attempt's number, or None if it is no longer waiting."""
        with self._store.transaction():
            row = self._store.row("SELECT attempt FROM jobs WHERE id = ? AND state = 'QUEUED'", (job_id,))
            if row is None:
                return None
            attempt, at = row["attempt"] + 1, clock.text(clock.now())
            gpus = json.dumps([resource for resource, _ in leases if resource != CPU])
            self._transition(job_id, State.QUEUED, State.STARTING, attempt=attempt, gpus=gpus)
            self._store.execute(
                "INSERT INTO attempts (job_id, number, gpus, boot_id, claimed_at) VALUES (?, ?, ?, ?, ?)",
                (job_id, attempt, gpus, boot_id, at),
            )
            for resource, slot in leases:
                self._store.execute("INSERT INTO leases VALUES (?, ?, ?, ?)", (resource, slot, job_id, attempt))
            return int(attempt)

    def started(self, job: Job, at: str) -> None:
        """STARTING → RUNNING: the job has executed its first instruction or is about to."""
        with self._store.transaction():
            self._transition(job.id, State.STARTING, State.RUNNING, phase=Phase.RUNNING.value, started_at=at)
            self._store.execute(
                "UPDATE attempts SET started_at = ? WHERE job_id = ? AND number = ?",
                (at, job.id, job.attempt),
            )
            self.note(job.id, job.attempt, "started", {"gpus": list(job.gpus)})
            self._outbox.add("started", {"attempt": job.attempt, "gpus": list(job.gpus)}, job.id)

    def stopping(self, job_id: int) -> None:
        """The stop asked for has been passed on to the supervisor."""
        self._store.execute("UPDATE jobs SET phase = 'stopping' WHERE id = ? AND state = 'RUNNING'", (job_id,))

    def ended(self, job: Job, state: State, reason: Reason, end: Exit | None) -> None:
        """An attempt is over: outcome, event, leases freed."""
        assert reason in REASONS[state], (state, reason)
        at = end.finished_at if end else clock.text(clock.now())
        told = end if state is not State.LOST else None  # a code that was not the program's own says nothing
        record = json.dumps(end.to_json()) if end else None
        started_at = end.started_at if end else job.started_at and clock.text(job.started_at)
        with self._store.transaction():
            self._transition(
                job.id, job.state, state, reason=reason.value, phase=None, started_at=started_at, finished_at=at,
                exit_code=told.exit_code if told else None, signal=told.signal if told else None,
            )  # fmt: skip
            self._store.execute(
                "UPDATE attempts SET started_at = ?, finished_at = ?, state = ?, reason = ?, exit = ?"
                " WHERE job_id = ? AND number = ?",
                (started_at, at, state.value, reason.value, record, job.id, job.attempt),
            )
            self._free(job)
            said: dict[str, Any] = {
                "state": state.value,
                "reason": reason.value,
                "attempt": job.attempt,
                "gpus": list(job.gpus),
            }
            if told:
                said |= {"exit_code": told.exit_code, "signal": told.signal, "duration_s": told.duration_s}
            self.note(job.id, job.attempt, "ended", said)
            self._outbox.add("ended", said, job.id)

    def back_to_queue(self, job: Job, why: str, after: tuple[State, Reason] | None = None) -> None:
        """A new attempt is to be made, at the place in the queue the job had.

        `after` tells how the last attempt ended; without it, it was never executed and nobody need be told.
        """
        with self._store.transaction():
            self._transition(
                job.id, job.state, State.QUEUED, phase=None, gpus="[]", reason=None, exit_code=None, signal=None,
                started_at=None, finished_at=None,
            )  # fmt: skip
            state, reason = (part.value for part in after) if after else (None, None)
            self._store.execute(
                "UPDATE attempts SET finished_at = ?, state = ?, reason = ? WHERE job_id = ? AND number = ?",
                (clock.text(clock.now()), state, reason, job.id, job.attempt),
            )
            self._free(job)
            said = {"why": why, "attempt": job.attempt, "state": state, "reason": reason}
            self.note(job.id, job.attempt, "requeued", said)
            if after:
                self._outbox.add("requeued", said, job.id)

    def boot_id(self, job: Job) -> str:
        """Of the boot in which the job's latest attempt was claimed."""
        sql = "SELECT boot_id FROM attempts WHERE job_id = ? AND number = ?"
        return str(self._store.row(sql, (job.id, job.attempt))["boot_id"])

    def use_retry(self, job: Job) -> bool:
        """Take one of the retries the job was given; False if there is none left."""
        took = self._store.execute(
            "UPDATE jobs SET retries_left = retries_left - 1 WHERE id = ? AND retries_left > 0", (job.id,)
        )
        return bool(took.rowcount == 1)

    def cancel_waiting(self, job: Job, reason: Reason, by: str) -> bool:
        """QUEUED → CANCELLED; False if it has left the queue meanwhile."""
        with self._store.transaction():
            at = clock.text(clock.now())
            changed = self._store.execute(
                "UPDATE jobs SET state = 'CANCELLED', reason = ?, finished_at = ?, stop_reason = ?, stop_by = ?,"
                " stop_at = ? WHERE id = ? AND state = 'QUEUED'",
                (reason.value, at, reason.value, by, at, job.id),
            ).rowcount
            if changed:
                said = {"state": State.CANCELLED.value, "reason": reason.value, "by": by}
                self.note(job.id, None, "ended", said, at=at)
                self._outbox.add("ended", said, job.id)
            return bool(changed)

    def ask_to_stop(self, job: Job, reason: Reason, by: str) -> bool:
        """Write the stop on a live job; the runner passes it on. False if one is on it already or it has ended."""
        with self._store.transaction():
            changed = self._store.execute(
                "UPDATE jobs SET stop_reason = ?, stop_by = ?, stop_at = ?"
                " WHERE id = ? AND state IN ('STARTING', 'RUNNING') AND stop_reason IS NULL",
                (reason.value, by, clock.text(clock.now()), job.id),
            ).rowcount
            if changed:
                self.note(job.id, job.attempt, "stop asked", {"reason": reason.value, "by": by})
            return bool(changed)

    def note(
        self,
        job_id: int | None,
        attempt: int | None,
        kind: str,
        data: Mapping[str, Any],
        at: str | None = None,
    ) -> None:
        """Write down a fact."""
        self._store.execute(
            "INSERT INTO events (job_id, attempt, at, kind, data) VALUES (?, ?, ?, ?, ?)",
            (job_id, attempt, at or clock.text(clock.now()), kind, json.dumps(data)),
        )

    def _free(self, job: Job) -> None:
        self._store.execute("DELETE FROM leases WHERE job_id = ? AND attempt = ?", (job.id, job.attempt))

    def _transition(self, job_id: int, old: State, new: State, **columns: Any) -> None:
        assert may_become(old, new), (old, new)
        assignments = ", ".join(f"{name} = ?" for name in ("state", *columns))
        changed = self._store.execute(
            f"UPDATE jobs SET {assignments} WHERE id = ? AND state = ?",  # noqa: S608
            (new.value, *columns.values(), job_id, old.value),
        ).rowcount
        assert changed == 1, f"job {job_id} is no longer {old.value}"


def lane_of(spec: JobSpec) -> str:
    """Jobs with the same lane ask for the same resources."""
    return f"{spec.gpus}:{','.join(spec.on)}"


def _request(lane: str) -> tuple[int, tuple[str, ...]]:
    gpus, _, on = lane.partition(":")
    return int(gpus), tuple(on.split(",")) if on else ()


def job_of(row: Any) -> Job:
    """A job from its row."""
    stop = None
    if row["stop_reason"]:
        at = clock.moment(row["stop_at"])
        assert at is not None
        stop = Stop(reason=Reason(row["stop_reason"]), by=row["stop_by"], at=at)
    submitted_at = clock.moment(row["submitted_at"])
    assert submitted_at is not None
    return Job(
        id=row["id"],
        spec=JobSpec.from_json(json.loads(row["spec"])),
        state=State(row["state"]),
        reason=Reason(row["reason"]) if row["reason"] else None,
        phase=Phase(row["phase"]) if row["phase"] else None,
        exit_code=row["exit_code"],
        signal=row["signal"],
        attempt=row["attempt"],
        gpus=tuple(json.loads(row["gpus"])),
        batch_size=row["batch_size"],
        run_id=row["run_id"],
        submitted_at=submitted_at,
        started_at=clock.moment(row["started_at"]),
        finished_at=clock.moment(row["finished_at"]),
        stop=stop,
    )
