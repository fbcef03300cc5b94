"""Lists and counts of jobs for people, found by index so that the length of the queue does not matter."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.model import FINAL_STATES, Job, State
from runner.store.box import box_limits
from runner.store.connection import Table, marks
from runner.store.jobs import Jobs, job_of
from runner.store.scheduling_queries import Line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from runner.store.connection import Store

NO_LIMIT = -1
UNFINISHED = (State.QUEUED, State.STARTING, State.RUNNING)


class Overview(NamedTuple):
    """How many jobs there are of each kind."""

    queued: int  # ready to start
    not_yet: int  # queued too, but held, or waiting for other jobs or for their begin time
    running: int
    ended: dict[State, int]


class Happened(NamedTuple):
    """An event of a job."""

    number: int
    job_id: int
    attempt: int | None
    kind: str
    data: str  # JSON


class Listing(Table):
    """Ended, live and queued jobs, and events."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._jobs = Jobs(store)

    def finished(self, states: Collection[State] = FINAL_STATES, limit: int = NO_LIMIT) -> list[Job]:
        """Return the jobs that ended last in one of these states, the newest last."""
        rows = self._store.rows(
            f"SELECT * FROM jobs INDEXED BY jobs_finished WHERE finished_at IS NOT NULL AND state IN ({marks(states)})"
            " ORDER BY finished_at DESC, id DESC LIMIT ?",
            (*(state.value for state in states), limit),
        )
        return [job_of(row) for row in reversed(rows)]

    def live(self) -> list[Job]:
        """Return the live jobs, ordered by when they started."""
        return sorted(self._jobs.live(), key=lambda job: (job.started_at or job.submitted_at, job.id))

    def queued(self, limit: int = NO_LIMIT, skip: int = 0) -> list[Job]:
        """Return `limit` queued jobs after the first `skip`: ready ones in start order, then the others.

        Without a limit, the ready ones are ordered by priority and position only.
        """
        if limit < 0:
            rows = self._store.rows("SELECT * FROM jobs WHERE state = 'QUEUED' ORDER BY ready DESC, rank, position")
            return [job_of(row) for row in rows[skip:]]
        until = skip + limit
        ready = [job.id for job in islice(Line(self._store).start_order(box_limits(self._store), until), until)]
        first = [job for number in ready[skip:] if (job := self._jobs.get(number))]
        held = self._store.rows(
            "SELECT * FROM jobs WHERE state = 'QUEUED' AND ready = 0 ORDER BY rank, position LIMIT ? OFFSET ?",
            (until - max(skip, len(ready)), max(0, skip - len(ready))),
        )
        return first + [job_of(row) for row in held]

    def named(self, name: str, limit: int) -> list[Job]:
        """Return the latest jobs with this name, the newest first."""
        sql = "SELECT * FROM jobs INDEXED BY jobs_of_name WHERE name = ? ORDER BY id DESC LIMIT ?"
        return [job_of(row) for row in self._store.rows(sql, (name, limit))]

    def latest_of(self, owner: str, limit: int) -> list[Job]:
        """Return the latest jobs of one owner, the newest first, from among the last few hundred of all."""
        sql = "SELECT * FROM (SELECT * FROM jobs ORDER BY id DESC LIMIT ?) WHERE owner = ? LIMIT ?"
        return [job_of(row) for row in self._store.rows(sql, (5 * limit, owner, limit))]

    def rows(self, states: Collection[State]) -> list[Any]:
        """Return the rows of all jobs in these states, ordered by number."""
        wanted = [state.value for state in states]
        return self._store.rows(f"SELECT * FROM jobs WHERE state IN ({marks(states)}) ORDER BY id", wanted)

    def rows_of(self, job_ids: Sequence[int]) -> list[Any]:
        """Return the rows of these jobs, ordered by number."""
        sql = "SELECT * FROM jobs WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"
        return self._store.rows(sql, (json.dumps(job_ids),))

    def ahead_of(self, job_id: int) -> int:
        """Return how many ready jobs are before this one by priority and position, of all owners."""
        ahead = self._store.value(
            "SELECT count(*) FROM jobs AS other, (SELECT rank, position FROM jobs WHERE id = ?) AS this"
            " WHERE other.state = 'QUEUED' AND other.ready = 1"
            " AND (other.rank, other.position) < (this.rank, this.position)",
            (job_id,),
        )
        return int(ahead)

    def unfinished(
        self, *, owner: str | None = None, group: str | None = None, states: Collection[State] = UNFINISHED
    ) -> list[int]:
        """Return the numbers of queued and live jobs: all, or those of one owner, one group or these states."""
        # The states must be written as in the index, or SQLite cannot use it. Left alone, the planner reads all jobs.
        wanted = [state.value for state in states]
        index = "jobs_of_owner" if group is None else "jobs_of_group"
        rows = self._store.rows(
            f"SELECT id FROM jobs INDEXED BY {index} WHERE state IN ('QUEUED', 'STARTING', 'RUNNING')"
            f" AND state IN ({marks(wanted)}){' AND owner = ?' if owner is not None else ''}"
            f"{' AND group_name = ?' if group is not None else ''} ORDER BY id",
            (*wanted, *(name for name in (owner, group) if name is not None)),
        )
        return [row["id"] for row in rows]

    def held(self) -> list[int]:
        """Return the numbers of held jobs."""
        rows = self._store.rows(
            "SELECT id FROM jobs INDEXED BY jobs_not_ready WHERE state = 'QUEUED' AND ready = 0 AND held_by IS NOT NULL"
        )
        return sorted(row["id"] for row in rows)

    def overview(self, since: str) -> Overview:
        """Count the jobs of each kind; of the ended ones, only those that ended since then."""
        unfinished = self._store.rows(
            # the index is named because the planner would read all jobs
            "SELECT state, count(*) FROM jobs INDEXED BY jobs_of_owner"
            " WHERE state IN ('QUEUED', 'STARTING', 'RUNNING') GROUP BY state"
        )
        counts = {State(state): int(count) for state, count in unfinished}
        ready = int(self._store.value("SELECT count(*) FROM jobs WHERE state = 'QUEUED' AND ready = 1"))
        ended = self._store.rows(
            "SELECT state, count(*) FROM jobs INDEXED BY jobs_ended"
            " WHERE state IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'LOST') AND finished_at > ? GROUP BY state",
            (since,),
        )
        return Overview(
            queued=ready,
            not_yet=counts.get(State.QUEUED, 0) - ready,
            running=counts.get(State.STARTING, 0) + counts.get(State.RUNNING, 0),
            ended={State(state): int(count) for state, count in ended},
        )

    def events_after(self, number: int) -> list[Happened]:
        """Return the events of jobs after this event, in order. The cost depends on these only, not on the queue."""
        rows = self._store.rows(
            "SELECT id, job_id, attempt, kind, data FROM events WHERE id > ? AND job_id IS NOT NULL ORDER BY id",
            (number,),
        )
        return [Happened(*row) for row in rows]

    def numbered(self, beginning: str, limit: int, *, unfinished: bool = False) -> list[Job]:
        """Return the newest jobs whose numbers begin with these digits, newest first; perhaps only unfinished ones."""
        if unfinished:
            numbers = [number for number in reversed(self.unfinished()) if str(number).startswith(beginning)]
            return [job for number in numbers[:limit] if (job := self._jobs.get(number))]
        jobs: list[Job] = []
        for ends in reversed(list(self._numbers_that_begin(beginning))):
            sql = "SELECT * FROM jobs WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?"
            jobs += [job_of(row) for row in self._store.rows(sql, (*ends, limit - len(jobs)))]
        return jobs

    def _numbers_that_begin(self, digits: str) -> Iterator[tuple[int, int]]:
        """Yield ranges of numbers: for 12, 12 to 12, 120 to 129, 1200 to 1299 …, up to the newest job; for "", all."""
        last = int(self._store.value("SELECT coalesce(max(id), 0) FROM jobs"))
        if not digits:
            yield 1, last
        if not re.fullmatch(r"[1-9][0-9]{0,18}", digits, re.ASCII):
            return
        first, count = int(digits), 1
        while first <= last:
            yield first, first + count - 1
            first, count = first * 10, count * 10
