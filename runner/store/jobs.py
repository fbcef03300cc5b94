"""Jobs, attempts, leases and events. Every change of a job's state goes through `change_state`."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.commands.job_kinds import kinds_of
from runner.lifecycle import REASONS, TRANSITIONS
from runner.model import Job, JobSpec, Memory, Phase, Reason, State, Stop
from runner.schedule.request import lane_of, request_in, request_of
from runner.store.box import Shares
from runner.store.connection import Table, marks
from runner.store.dependencies import Dependencies
from runner.store.notices import Notices

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runner.model import Exit, Ref
    from runner.rundir import ProgressRecord
    from runner.schedule.backoff import Retry
    from runner.schedule.request import Request
    from runner.store.connection import Store
    from runner.store.groups import Groups
    from runner.store.scheduling_queries import UnderWay
    from runner.supervisor.probe_records import ProbeReport

KEPT_ENVIRONMENTS = 16


class Jobs(Table):
    """The table of jobs. Each change is one transaction, or part of the caller's."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._notices, self._dependencies, self._shares = Notices(store), Dependencies(store), Shares(store)
        self._environments: dict[str, Mapping[str, str]] = {}

    # -- adding ------------------------------------------------------------------------------------

    def add(self, spec: JobSpec, key: str | None = None) -> int:
        """Queue a job and return its number. If the key was used before, return that job and change nothing."""
        with self._store.transaction():
            if (earlier := self.of_key(key)) is not None:
                return earlier
            body, at = json.dumps(spec.to_json()), clock.text(clock.now())
            job_id = self._store.execute(
                "INSERT INTO jobs (spec, state, run_id, lane, rank, position, ready, begin_at, retries_left,"
                " submitted_at, key, kind, shape) VALUES (?, 'QUEUED', ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?)",
                (
                    body, os.urandom(4).hex(), lane_of(request_of(spec)), -spec.priority.rank,
                    spec.begin_at is None, spec.begin_at, spec.retries, at, key, *kinds_of(spec),
                ),
            ).lastrowid  # fmt: skip
            self._store.execute("UPDATE jobs SET position = id WHERE id = ?", (job_id,))
            if spec.after or spec.after_ok:
                self._dependencies.add(int(job_id), spec)
            if spec.group:
                self._groups().join(spec.group, spec.owner, at)
            self.note(job_id, None, "submitted", {"by": spec.owner}, at=at)
            return int(job_id)

    def of_key(self, key: str | None) -> int | None:
        """Return the number of the job that was queued with this key, or None."""
        job_id: int | None = self._store.value("SELECT id FROM jobs WHERE key = ?", (key,))
        return job_id

    def keep_environment(self, key: str, variables: Mapping[str, str]) -> None:
        """Store a captured environment, once for all jobs that share it."""
        self._store.execute("INSERT OR IGNORE INTO environments VALUES (?, ?)", (key, json.dumps(variables)))

    def environment(self, key: str) -> Mapping[str, str]:
        """Return the captured environment with this key; empty if there is none. A key stands for its content."""
        if key not in self._environments:
            stored = self._store.value("SELECT variables FROM environments WHERE key = ?", (key,))
            if stored is None:
                return {}
            if len(self._environments) >= KEPT_ENVIRONMENTS:
                self._environments.clear()
            self._environments[key] = json.loads(stored)
        return self._environments[key]

    # -- reading -----------------------------------------------------------------------------------

    def get(self, job_id: int) -> Job | None:
        """Return one job, or None."""
        row = self._store.row("SELECT * FROM jobs WHERE id = ?", (job_id,))
        return job_of(row) if row else None

    def find(self) -> list[Job]:
        """Return all jobs, ordered by id."""
        return [job_of(row) for row in self._store.rows("SELECT * FROM jobs ORDER BY id")]

    def count(self, *states: State) -> int:
        """Return how many jobs are in these states."""
        wanted = [state.value for state in states]
        return int(self._store.value(f"SELECT count(*) FROM jobs WHERE state IN ({marks(wanted)})", wanted))

    def live(self) -> list[Job]:
        """Return the STARTING and RUNNING jobs."""
        return [job_of(r) for r in self._store.rows("SELECT * FROM jobs WHERE state IN ('STARTING', 'RUNNING')")]

    def under_way(self) -> list[UnderWay]:
        """Return the same jobs, with only the fields that the runner needs at every tick."""
        from runner.store.scheduling_queries import UnderWay  # imported late: only the runner needs it

        rows = self._store.rows(
            "SELECT id, attempt, stop_reason, phase IS 'probing', lane, started_at, time_warning, run_id FROM jobs"
            " WHERE state IN ('STARTING', 'RUNNING')"
        )
        return [
            UnderWay._make((*row[:3], bool(row[3]), (asked := request_in(row[4])).limit_s, *row[5:], asked.untried))
            for row in rows
        ]

    def events(self, job_id: int) -> list[dict[str, Any]]:
        """Return the events of a job, oldest first."""
        rows = self._store.rows("SELECT * FROM events WHERE job_id = ? ORDER BY id", (job_id,))
        return [{**dict(row), "data": json.loads(row["data"])} for row in rows]

    def attempts(self, job_id: int) -> list[dict[str, Any]]:
        """Return the attempts of a job, oldest first."""
        rows = self._store.rows("SELECT * FROM attempts WHERE job_id = ? ORDER BY number", (job_id,))
        return [dict(row) for row in rows]

    # -- changing state ----------------------------------------------------------------------------

    def claim(
        self, job_id: int, leases: Sequence[tuple[str, int]], boot_id: str, usage: str | None = None,
        memory_mib: int | None = None, asked: Request | None = None,
    ) -> int | None:  # fmt: skip
        """Move a job from QUEUED to STARTING, take its leases, and return the attempt number.

        Return None if the job has left the queue, is not ready, or now asks for other resources than `asked`.
        """
        from runner.store.scheduling_queries import is_cpu

        with self._store.transaction():
            sql = "SELECT attempt, lane FROM jobs WHERE id = ? AND state = 'QUEUED' AND ready = 1"
            row = self._store.row(sql, (job_id,))
            if row is None or (asked is not None and request_in(row["lane"]) != asked):
                return None
            attempt, at = row["attempt"] + 1, clock.text(clock.now())
            gpus = json.dumps([resource for resource, _ in leases if not is_cpu(resource)])
            self._transition(job_id, State.QUEUED, State.STARTING, attempt=attempt, gpus=gpus)
            self._store.execute(
                "INSERT INTO attempts (job_id, number, gpus, boot_id, claimed_at, usage) VALUES (?, ?, ?, ?, ?, ?)",
                (job_id, attempt, gpus, boot_id, at, usage),
            )
            for resource, slot in leases:
                self._store.execute(
                    "INSERT INTO leases VALUES (?, ?, ?, ?, ?)", (resource, slot, job_id, attempt, memory_mib)
                )
            return int(attempt)

    def take_place(self, job: Job, node: str, gpus: tuple[str, ...]) -> None:
        """Record where a job runs that waited in the queue of an engine: it leases that instead of its place there."""
        from runner.store.scheduling_queries import cpu_of

        listed = json.dumps(gpus)
        self._store.execute("UPDATE jobs SET gpus = ?, node = ? WHERE id = ?", (listed, node or None, job.id))
        self._store.execute(
            "UPDATE attempts SET gpus = ? WHERE job_id = ? AND number = ?", (listed, job.id, job.attempt)
        )
        self._store.execute("DELETE FROM leases WHERE job_id = ? AND attempt = ?", (job.id, job.attempt))
        for resource in gpus or (cpu_of(node),):
            # slots of hosts are the engine's business; the job's number is one that nobody else has
            self._store.execute("INSERT INTO leases VALUES (?, ?, ?, ?, NULL)", (resource, job.id, job.id, job.attempt))

    def started(self, job: Job, at: str, phase: Phase = Phase.RUNNING, *, has_ended: bool = False) -> None:
        """Move a job from STARTING to RUNNING: it has executed its first instruction or is about to.

        Write the notice unless the batch is probed first (`probed` writes it then), or this is a delayed retry.
        `has_ended`: only write event and notice, because the same transaction goes on to write its end.
        """
        with self._store.transaction():
            if not has_ended:
                self._transition(job.id, State.STARTING, State.RUNNING, phase=phase.value, started_at=at)
                self._store.execute(
                    "UPDATE attempts SET started_at = ? WHERE job_id = ? AND number = ?",
                    (at, job.id, job.attempt),
                )
            self.note(job.id, job.attempt, "started", {"gpus": list(job.gpus)})
            if phase is Phase.RUNNING:
                self._tell_started(job)

    def probed(self, job: Job, report: ProbeReport, batch: int, said: str) -> None:
        """Record that the real run begins with this batch; `said` is the summary of the probe, for people."""
        with self._store.transaction():
            self._store.execute(
                "UPDATE jobs SET batch_size = ?, phase = CASE phase WHEN 'stopping' THEN phase ELSE 'running' END"
                " WHERE id = ? AND state = 'RUNNING'",
                (batch, job.id),
            )
            self.keep_probe(job, report)
            self.note(job.id, job.attempt, "batch chosen", {"batch": batch, "said": said})
            self._tell_started(job, batch, said)

    def _tell_started(self, job: Job, batch: int | None = None, probe: str | None = None) -> None:
        from runner.notices import Started  # not at the top of the file: only the runner needs it, and it takes 10 ms

        if not self.pause_before_s(job):
            self._notices.add(Started(attempt=job.attempt, gpus=job.gpus, batch=batch, probe=probe), job.id)

    def is_told(self, job: Job) -> bool:
        """Return whether `probed` has recorded that the real run of this attempt began."""
        sql = "SELECT 1 FROM events WHERE job_id = ? AND attempt = ? AND kind = 'batch chosen'"
        return self._store.row(sql, (job.id, job.attempt)) is not None

    def keep_probe(self, job: Job, report: ProbeReport) -> None:
        """Store how the batch of an attempt was found, or how far the probing is."""
        self._store.execute(
            "UPDATE attempts SET probe = ? WHERE job_id = ? AND number = ?",
            (json.dumps(report.to_json()), job.id, job.attempt),
        )

    def probe(self, job_id: int, attempt: int) -> ProbeReport | None:
        """Return how the batch of an attempt was found; None if it was not probed."""
        stored = self._store.value("SELECT probe FROM attempts WHERE job_id = ? AND number = ?", (job_id, attempt))
        if not stored:
            return None
        from runner.supervisor.probe_records import ProbeReport  # imported late: few commands need it

        return ProbeReport.from_json(json.loads(stored))

    def progress(self, ref: Ref) -> ProgressRecord | None:
        """Return what was stored of how far an attempt came; None if nothing was."""
        from runner.rundir import ProgressRecord  # imported late: only the runner needs it

        stored = self._store.value("SELECT progress FROM jobs WHERE id = ? AND attempt = ?", ref[:2])
        record = ProgressRecord.from_json(json.loads(stored)) if stored else None
        return record if record and record.attempt == ref.attempt else None

    def save_progress(self, ref: Ref, record: ProgressRecord) -> None:
        """Store how far the job's latest attempt came."""
        self._store.execute(
            "UPDATE jobs SET progress = ? WHERE id = ? AND attempt = ?", (json.dumps(record.to_json()), *ref[:2])
        )

    def stopping(self, job_id: int) -> None:
        """Record that the supervisor has received the request to stop."""
        self._store.execute("UPDATE jobs SET phase = 'stopping' WHERE id = ? AND state = 'RUNNING'", (job_id,))

    def ended(
        self, job: Job, state: State, reason: Reason, end: Exit | None, usage: Mapping[str, Any] | None = None,
        said: str | None = None,
    ) -> None:  # fmt: skip
        """Record how a job ended, with event and notice; free its leases; update its dependents and its group.

        `said`: what its engine says about it.
        """
        assert reason in REASONS[state], (state, reason)
        at = end.finished_at if end else clock.text(clock.now())
        told = end if state is not State.LOST else None  # the exit code of a lost job is not the program's own
        started_at = end.started_at if end else clock.text(job.started_at) if job.started_at else None
        with self._store.transaction():
            self._transition(
                job.id, job.state, state, reason=reason.value, phase=None, started_at=started_at, finished_at=at,
                exit_code=told.exit_code if told else None, signal=told.signal if told else None,
                memory=told.memory if told else None,
            )  # fmt: skip
            self._attempt_ended(job, at, started_at, (state, reason), end, usage)
            told_of = {"state": state.value, "reason": reason.value, **_told_of(job, state, end, usage)}
            self._tell_ended(job.id, job.attempt, told_of | ({"why": said} if said else {}), at=None)
            self._let_go(job.id, state, grouped=job.spec.group is not None)

    def _tell_ended(self, job_id: int, attempt: int | None, data: Mapping[str, Any], at: str | None) -> None:
        from runner.notices import Ended

        self.note(job_id, attempt, "ended", data, at=at)
        self._notices.add(Ended.from_json(data), job_id)

    def _let_go(self, job_id: int, state: State, *, grouped: bool = True) -> None:
        """Update the jobs that wait for this one: unblock them, or cancel them if they needed its success.

        Cancelled jobs are handled in the same way. Write a notice for each group that is now done.
        """
        ended, gone = [(job_id, state is State.SUCCEEDED)], []
        while ended:
            number, succeeded = ended.pop()
            gone.append(number)
            doomed = self._dependencies.settle(number, succeeded=succeeded)
            ended += [(other, False) for other in doomed if self._cancel(other, Reason.DEPENDENCY, f"#{number}")]
        if grouped or len(gone) > 1:
            self._groups().settle(gone)

    def _groups(self) -> Groups:
        from runner.store.groups import Groups  # imported late: few jobs that are submitted have a group

        return Groups(self._store)

    def _attempt_ended(
        self, job: Job, at: str, started_at: str | None, how: tuple[State, Reason] | None, end: Exit | None,
        usage: Mapping[str, Any] | None,
    ) -> None:  # fmt: skip
        self._store.execute(
            "UPDATE attempts SET started_at = ?, finished_at = ?, state = ?, reason = ?, exit = ?,"
            " usage = coalesce(?, usage) WHERE job_id = ? AND number = ?",
            (
                started_at, at, *((part.value for part in how) if how else (None, None)),
                json.dumps(end.to_json()) if end else None, json.dumps(usage) if usage else None, job.id, job.attempt,
            ),
        )  # fmt: skip
        self._store.execute("DELETE FROM leases WHERE job_id = ? AND attempt = ?", (job.id, job.attempt))
        if job.gpus and started_at:
            ran_s = (clock.now() - datetime.fromisoformat(started_at)).total_seconds()
            self._shares.add(job.spec.owner, max(0.0, ran_s) * len(job.gpus))

    def back_to_queue(
        self, job: Job, why: str, after: tuple[State, Reason] | None = None, usage: Mapping[str, Any] | None = None,
        end: Exit | None = None, retry: Retry | None = None, held_by: str | None = None,
    ) -> None:  # fmt: skip
        """Queue the job again for a new attempt, in its old position; a retry may have to wait first.

        `after` is how the last attempt ended. None means that it never ran or was a trial that passed; then, and in a
        series of retries, there is no notice. `held_by` is what holds a job whose trial failed.
        """
        begin_at = clock.text(clock.now() + timedelta(seconds=retry.wait_s)) if retry and retry.wait_s else None
        with self._store.transaction():
            self._transition(
                job.id, job.state, State.QUEUED, phase=None, gpus="[]", reason=None, exit_code=None, signal=None,
                memory=None, node=None, started_at=None, finished_at=None, stop_reason=None, stop_by=None, stop_at=None,
                begin_at=begin_at, ready=begin_at is None and held_by is None, held_by=held_by,
            )  # fmt: skip
            started_at = clock.text(job.started_at) if job.started_at else None
            self._attempt_ended(job, clock.text(clock.now()), started_at, after, end, usage)
            state, reason = (part.value for part in after) if after else (None, None)
            said = {**_told_of(job, after[0] if after else None, end, usage), "why": why}
            said |= {"state": state, "reason": reason} | ({"wait_s": retry.wait_s} if retry else {})
            self.note(job.id, job.attempt, "requeued", said)
            if after and (retry is None or retry.is_news):
                from runner.notices import Requeued, TrialFailed

                self._notices.add((TrialFailed if held_by else Requeued).from_json(said), job.id)

    def passed(self, job: Job, why: str, usage: Mapping[str, Any] | None, end: Exit) -> None:
        """Queue a job again whose trial passed, in its old position. Its next attempt is the real run."""
        with self._store.transaction():
            self.back_to_queue(job, why, None, usage, end)
            lane = lane_of(request_of(job.spec, untried=False))
            self._store.execute("UPDATE jobs SET lane = ? WHERE id = ?", (lane, job.id))

    def boot_id(self, job: Job) -> str:
        """Return the id of the boot in which the job's latest attempt was claimed."""
        sql = "SELECT boot_id FROM attempts WHERE job_id = ? AND number = ?"
        return str(self._store.value(sql, (job.id, job.attempt)))

    def use_retry(self, job: Job) -> bool:
        """Use one of the job's retries. Return False if none is left."""
        took = self._store.execute(
            "UPDATE jobs SET retries_left = retries_left - 1 WHERE id = ? AND retries_left > 0", (job.id,)
        )
        return bool(took.rowcount == 1)

    def pause_before_s(self, job: Job) -> float | None:
        """Return how many seconds the latest attempt had to wait before it could start; None if it is not a retry."""
        if job.attempt < 2:
            return None
        sql = "SELECT json_extract(data, '$.wait_s') FROM events WHERE job_id = ? AND attempt = ? AND kind = 'requeued'"
        wait_s = self._store.value(f"{sql} ORDER BY id DESC", (job.id, job.attempt - 1))
        return None if wait_s is None else float(wait_s)

    def cancel_waiting(self, job: Job, reason: Reason, by: str) -> bool:
        """Move a job from QUEUED to CANCELLED. Return False if it has left the queue meanwhile."""
        with self._store.transaction():
            cancelled = self._cancel(job.id, reason, by)
            if cancelled:
                self._let_go(job.id, State.CANCELLED)
            return cancelled

    def _cancel(self, job_id: int, reason: Reason, by: str) -> bool:
        at = clock.text(clock.now())
        changed = change_state(
            self._store.execute, job_id, State.QUEUED, State.CANCELLED, reason=reason.value, finished_at=at,
            stop_reason=reason.value, stop_by=by, stop_at=at, held_by=None, begin_at=None,
        )  # fmt: skip
        if changed:
            self._dependencies.forget(job_id)
            said = {"state": State.CANCELLED.value, "reason": reason.value, "by": by, "stop_reason": reason.value}
            self._tell_ended(job_id, None, said, at)
        return changed

    def ask_to_stop(self, job: Job, reason: Reason, by: str) -> bool:
        """Record a request to stop a live job; the runner passes it on. Return False if nothing was recorded.

        A second request counts only if it is a person's and the first is not: a preempted job would be queued again.
        """
        with self._store.transaction():
            changed = self._store.execute(
                "UPDATE jobs SET stop_reason = ?, stop_by = ?, stop_at = ?"
                " WHERE id = ? AND state IN ('STARTING', 'RUNNING')"
                " AND (stop_reason IS NULL OR stop_reason <> 'USER' AND ? = 'USER')",
                (reason.value, by, clock.text(clock.now()), job.id, reason.value),
            ).rowcount
            if changed:
                self.note(job.id, job.attempt, "stop asked", {"reason": reason.value, "by": by})
            return bool(changed)

    def was_preempted(self, job: Job) -> bool:
        """Return whether the scheduler has preempted the latest attempt, even if a person has stopped it since."""
        asked = self._store.row(
            "SELECT 1 FROM events WHERE job_id = ? AND attempt = ? AND kind = 'stop asked'"
            " AND json_extract(data, '$.reason') = 'PREEMPTED'",
            (job.id, job.attempt),
        )
        return asked is not None

    def note(
        self, job_id: int | None, attempt: int | None, kind: str, data: Mapping[str, Any], at: str | None = None
    ) -> None:
        """Add an event."""
        self._store.execute(
            "INSERT INTO events (job_id, attempt, at, kind, data) VALUES (?, ?, ?, ?, ?)",
            (job_id, attempt, at or clock.text(clock.now()), kind, json.dumps(data)),
        )

    def _transition(self, job_id: int, old: State, new: State, **columns: Any) -> None:
        changed = change_state(self._store.execute, job_id, old, new, **columns)
        assert changed, f"job {job_id} is no longer {old.value}"


def change_state(execute: Callable[..., Any], job_id: int, old: State, new: State, **columns: Any) -> bool:
    """Change the state of a job, and other columns with it. Return False if it is no longer in the old state."""
    assert new in TRANSITIONS[old], (old, new)
    assignments = ", ".join(f"{name} = ?" for name in ("state", *columns))
    sql = f"UPDATE jobs SET {assignments} WHERE id = ? AND state = ?"
    return bool(execute(sql, (new.value, *columns.values(), job_id, old.value)).rowcount)


def _told_of(job: Job, state: State | None, end: Exit | None, usage: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what the event and the notice of an ended attempt say: who stopped it, how long it ran, what it used."""
    said: dict[str, Any] = {"attempt": job.attempt, "gpus": list(job.gpus), "usage": usage}
    if job.stop:
        said |= {"by": job.stop.by, "stop_reason": job.stop.reason.value}
    if end:
        said |= {"duration_s": end.duration_s} | ({"why": end.spawn_error} if end.spawn_error else {})
        if state is not State.LOST:  # the exit code of a lost job is not the program's own
            said |= {"exit_code": end.exit_code, "signal": end.signal} | ({"memory": end.memory} if end.memory else {})
    elif job.started_at:  # its end was not recorded: count until now
        said |= {"duration_s": (clock.now() - job.started_at).total_seconds(), "duration_about": True}
    return said


@lru_cache(maxsize=256)
def _spec_of(stored: str) -> JobSpec:
    """Parse a spec. Cached, because the runner reads each job several times."""
    return JobSpec.from_json(json.loads(stored))


def job_of(row: Any) -> Job:
    """Make a job from its row."""
    stop = None
    if row["stop_reason"]:
        at = datetime.fromisoformat(row["stop_at"])
        stop = Stop(reason=Reason(row["stop_reason"]), by=row["stop_by"], at=at)
    return Job(
        id=row["id"],
        spec=_spec_of(row["spec"]),
        state=State(row["state"]),
        reason=Reason(row["reason"]) if row["reason"] else None,
        phase=Phase(row["phase"]) if row["phase"] else None,
        exit_code=row["exit_code"],
        signal=row["signal"],
        attempt=row["attempt"],
        gpus=tuple(json.loads(row["gpus"])),
        batch_size=row["batch_size"],
        run_id=row["run_id"],
        submitted_at=datetime.fromisoformat(row["submitted_at"]),
        started_at=clock.moment(row["started_at"]),
        finished_at=clock.moment(row["finished_at"]),
        stop=stop,
        position=row["position"],
        held_by=row["held_by"],
        begin_at=clock.moment(row["begin_at"]),
        retries_left=row["retries_left"],
        memory=Memory(row["memory"]) if row["memory"] else None,
        # the lane of a job that ended in an old version may be no JSON
        untried=not State(row["state"]).final and request_in(row["lane"]).untried,
    )
