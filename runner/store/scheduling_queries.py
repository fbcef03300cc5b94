"""What the runner reads at every tick: queued jobs, live jobs, leases, and whether any work is left."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from runner import clock
from runner.clock import seconds_since
from runner.model import Reason
from runner.schedule.backoff import LONGEST_S
from runner.schedule.choice import Running, Waiting
from runner.schedule.order import START_USE_S, in_order, priority_of
from runner.schedule.request import request_in
from runner.schedule.room import CpuSlot
from runner.store.connection import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.schedule.order import ByPriority
    from runner.schedule.request import Request
    from runner.schedule.room import BoxLimits

CPU = "cpu"  # what a job without GPUs holds a lease on; on another node: cpu@node
# the time that earlier attempts ran does not count as waiting
_RAN_S = (
    "CASE attempt WHEN 0 THEN 0 ELSE (SELECT total(julianday(a.finished_at) - julianday(a.started_at)) * 86400"
    " FROM attempts AS a WHERE a.job_id = jobs.id) END AS ran_s"
)
_NEXT_BEGIN = "SELECT min(begin_at) FROM jobs WHERE begin_at IS NOT NULL"
_READY = "FROM jobs WHERE state = 'QUEUED' AND ready = 1 AND lane = ? ORDER BY rank, position LIMIT ?"


class Lease(NamedTuple):
    """A slot of a GPU, or a CPU slot of a node, held by an attempt."""

    resource: str
    slot: int
    job_id: int
    attempt: int
    memory_mib: int | None = None  # reserved for it on that GPU; None: its slot's share

    @property
    def is_cpu(self) -> bool:
        """Return whether it is a CPU slot."""
        return is_cpu(self.resource)

    @property
    def cpu_slot(self) -> CpuSlot:
        """Return which CPU slot it is. The node is None for this host."""
        return CpuSlot(self.slot, self.resource.partition("@")[2] or None)


class UnderWay(NamedTuple):
    """A live job as the runner's loop sees it."""

    id: int
    attempt: int
    stop_reason: str | None
    probing: bool = False
    limit_s: float | None = None
    started_at: str | None = None
    time_warning: str | None = None  # the limit and attempt of the last time-limit warning
    run_id: str = ""
    untried: bool = False  # this attempt is only a trial


class NotReady(NamedTuple):
    """A queued job that may not start yet, even if there is room."""

    job: Waiting
    held: bool
    begins_in_s: float


class Done(NamedTuple):
    """What has ended since an event."""

    states: dict[str, int]  # number of jobs by state
    attempts: int  # how many of them had an attempt
    last_event: int
    since: str | None  # when the first event of an attempt was; None if there was none


class ReadyJob(NamedTuple):
    """A ready job, as listed in start order."""

    id: int
    request: Request


def cpu_of(node: str | None) -> str:
    """Return the resource that a job without GPUs leases on this node; None: on this host."""
    return f"{CPU}@{node}" if node else CPU


def is_cpu(resource: str) -> bool:
    """Return whether a lease on this resource is one of a CPU slot."""
    return resource.partition("@")[0] == CPU


class Line(Table):
    """Queries that read only what a pass of the scheduler needs."""

    def waiting(self, per_lane: int) -> list[Waiting]:
        """Return the first ready jobs of every lane.

        Jobs of one lane ask for the same resources: if the first cannot start, the later ones cannot either.
        So the scheduler needs no more than this, however long the queue is.
        """
        now = clock.now()
        return [
            Waiting(number, request_in(lane), position, seconds_since(submitted_at, now) - ran_s)
            for lane in self.lanes()
            for number, position, submitted_at, ran_s in self._store.tuples(
                f"SELECT id, position, submitted_at, {_RAN_S} {_READY}", (lane, per_lane)
            )
        ]

    def start_order(self, limits: BoxLimits, per_lane: int) -> Iterator[ReadyJob]:
        """Yield ready jobs, up to `per_lane` of each lane, in start order. Reads few columns: the queue may be long."""
        now = clock.now()
        younger = clock.text(now - timedelta(seconds=limits.age_s)) if limits.age_s else ""
        jobs: ByPriority[ReadyJob] = defaultdict(lambda: defaultdict(list))
        sql = f"SELECT id, position, submitted_at, attempt {_READY}"
        for lane in self.lanes():
            request = request_in(lane)
            for number, position, submitted_at, attempt in self._store.tuples(sql, (lane, per_lane)):
                priority = request.priority
                if submitted_at <= younger:
                    waited_s = seconds_since(submitted_at, now) - (self._ran_s(number) if attempt else 0.0)
                    priority = priority_of(Waiting(number, request, position, waited_s), limits.age_s)
                jobs[priority][request.owner].append((position, number, ReadyJob(number, request)))
        use = defaultdict(float, limits.use)
        for following in in_order(jobs, use):
            use[following.request.owner] += START_USE_S * following.request.gpus
            yield following

    def _ran_s(self, job_id: int) -> float:
        return float(self._store.value(f"SELECT {_RAN_S} FROM jobs WHERE id = ?", (job_id,)))

    def not_ready(self, limit: int) -> list[NotReady]:
        """Return the first jobs that may not start yet: held, or waiting for other jobs or for their begin time."""
        now = clock.now()
        rows = self._store.rows(
            "SELECT id, lane, position, submitted_at, held_by, begin_at FROM jobs INDEXED BY jobs_not_ready"
            " WHERE state = 'QUEUED' AND ready = 0 ORDER BY rank, position LIMIT ?",
            (limit,),
        )
        return [
            NotReady(
                Waiting(row["id"], request_in(row["lane"]), row["position"], seconds_since(row["submitted_at"], now)),
                row["held_by"] is not None,
                max(0.0, -seconds_since(row["begin_at"], now)) if row["begin_at"] else 0.0,
            )
            for row in rows
        ]

    def count_not_ready(self) -> int:
        """Return how many queued jobs may not start yet. If no work is left, they are held or wait for a held job."""
        sql = "SELECT count(*) FROM jobs INDEXED BY jobs_not_ready WHERE state = 'QUEUED' AND ready = 0"
        return int(self._store.value(sql))

    def lanes(self) -> list[str]:
        """Return the distinct lanes of ready jobs, by one index seek each."""
        first = "SELECT min(lane) FROM jobs WHERE state = 'QUEUED' AND ready = 1"
        rows = self._store.rows(
            f"WITH RECURSIVE lanes(lane) AS ({first} UNION ALL SELECT ({first} AND lane > lanes.lane) FROM lanes"
            " WHERE lanes.lane IS NOT NULL) SELECT lane FROM lanes WHERE lane IS NOT NULL"
        )
        return [row["lane"] for row in rows]

    def running(self) -> list[Running]:
        """Return the STARTING and RUNNING jobs."""
        now = clock.now()
        rows = self._store.rows(
            f"SELECT id, lane, gpus, phase, stop_reason, submitted_at, started_at, {_RAN_S} FROM jobs"
            " WHERE state IN ('STARTING', 'RUNNING')"
        )
        running = []
        for row in rows:
            request = request_in(row["lane"])
            ran_s = seconds_since(row["started_at"], now) if row["started_at"] else 0.0
            ends_in_s = None if request.limit_s is None else max(0.0, request.limit_s - ran_s)
            gpus, waited_s = (
                tuple(json.loads(row["gpus"])),
                seconds_since(row["submitted_at"], now) - ran_s - row["ran_s"],
            )
            stopping, comes_back = row["stop_reason"] is not None, row["stop_reason"] == Reason.PREEMPTED.value
            running.append(Running(row["id"], request, gpus, ends_in_s, waited_s, stopping, comes_back, ran_s))
        return running

    def leases(self) -> list[Lease]:
        """Return all leases."""
        rows = self._store.rows("SELECT resource, slot, job_id, attempt, memory_mib FROM leases")
        return [Lease(*row) for row in rows]

    def let_begin(self) -> float | None:
        """Unblock jobs whose begin time has come. Return the seconds until the next begin time, or None."""
        if self._store.value(_NEXT_BEGIN) is None:
            return None
        now = clock.now()
        self._store.execute(  # if the clock was set back, a retry must not wait longer than LONGEST_S
            "UPDATE jobs SET begin_at = ? WHERE begin_at > ? AND attempt > 0"
            " AND begin_at IS NOT json_extract(spec, '$.begin_at')",
            [clock.text(now + timedelta(seconds=LONGEST_S))] * 2,
        )
        self._store.execute(
            "UPDATE jobs SET begin_at = NULL, ready = (blockers = 0 AND held_by IS NULL) WHERE begin_at <= ?",
            (clock.text(now),),
        )
        following = self._store.value(_NEXT_BEGIN)
        return None if following is None else max(0.0, -seconds_since(following, now))

    # -- whether any work is left, and what has ended ----------------------------------------------

    def any_to_do(self) -> bool:
        """Return whether any job is live, is ready, or only waits for its begin time."""
        any_to_do = self._store.value(
            "SELECT EXISTS (SELECT 1 FROM jobs WHERE state IN ('STARTING', 'RUNNING'))"
            " OR EXISTS (SELECT 1 FROM jobs WHERE state = 'QUEUED' AND ready = 1)"
            " OR EXISTS (SELECT 1 FROM jobs WHERE begin_at IS NOT NULL AND held_by IS NULL AND blockers = 0)"
        )
        return bool(any_to_do)

    def last_event(self) -> int:
        """Return the number of the newest event; 0 if there is none."""
        return int(self._store.value("SELECT coalesce(max(id), 0) FROM events"))

    def done_since(self, event: int) -> Done:
        """Return what ended after this event."""
        rows = self._store.rows(
            "SELECT json_extract(data, '$.state') AS state, count(*) AS n, count(attempt) AS attempts, max(id) AS last"
            " FROM events WHERE id > ? AND kind = 'ended' GROUP BY 1",
            (event,),
        )
        if not rows:
            return Done({}, 0, event, None)
        return Done(
            {row["state"]: row["n"] for row in rows},
            sum(row["attempts"] for row in rows),
            max(row["last"] for row in rows),
            self._store.value("SELECT at FROM events WHERE id > ? AND attempt IS NOT NULL LIMIT 1", (event,)),
        )
