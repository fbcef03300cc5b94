"""Parts of the queue for people to look at, found by index however long it is."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.model import FINAL_STATES, Job, State
from runner.store.box_limits import box_limits
from runner.store.jobs import Jobs, job_of
from runner.store.scheduling_queries import Line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from runner.store.connection import Store

NO_LIMIT = -1
UNFINISHED = (State.QUEUED, State.STARTING, State.RUNNING)


class Overview(NamedTuple):
    """How many jobs there are of each kind."""

    queued: int  # that may start
    not_yet: int  # queued as well, but held, or waiting for other jobs or for their time
    running: int
    ended: dict[State, int]


class Happened(NamedTuple):
    """An event of a job."""

    number: int
    job_id: int
    attempt: int | None
    kind: str
    data: str  # JSON


class Listing:
    """What has ended, what is under way, what comes next."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._jobs = Jobs(store)

    def finished(self, states: Collection[State] = FINAL_STATES, limit: int = NO_LIMIT) -> list[Job]:
        """The latest that ended so, the latest last."""
        marks = ", ".join("?" * len(states))
        rows = self._store.rows(
            f"SELECT * FROM jobs INDEXED BY jobs_finished WHERE finished_at IS NOT NULL AND state IN ({marks})"  # noqa: S608
            " ORDER BY finished_at DESC, id DESC LIMIT ?",
            (*(state.value for state in states), limit),
        )
        return [job_of(row) for row in reversed(rows)]

    def live(self) -> list[Job]:
        """Those under way, by when they began."""
        return sorted(self._jobs.live(), key=lambda job: (job.started_at or job.submitted_at, job.id))

    def queued(self, limit: int = NO_LIMIT, skip: int = 0) -> list[Job]:
        """Those that wait, in the order they are to start; so many of them, after so many."""
        if limit < 0:
            rows = self._store.rows("SELECT * FROM jobs WHERE state = 'QUEUED' ORDER BY ready DESC, rank, position")
            return [job_of(row) for row in rows[skip:]]
        until = skip + limit
        turns = [turn.id for turn in islice(Line(self._store).turns(box_limits(self._store), until), until)]
        first = [job for number in turns[skip:] if (job := self._jobs.get(number))]
        held = self._store.rows(
            "SELECT * FROM jobs WHERE state = 'QUEUED' AND ready = 0 ORDER BY rank, position LIMIT ? OFFSET ?",
            (until - max(skip, len(turns)), max(0, skip - len(turns))),
        )
        return first + [job_of(row) for row in held]

    def rows(self, states: Collection[State]) -> list[Any]:
        """The rows of all that are in one of these states, by number."""
        marks = ", ".join("?" * len(states))
        wanted = [state.value for state in states]
        return self._store.rows(f"SELECT * FROM jobs WHERE state IN ({marks}) ORDER BY id", wanted)  # noqa: S608

    def ahead_of(self, job_id: int) -> int:
        """How many waiting jobs come before this one."""
        found = self._store.row(
            "SELECT count(*) FROM jobs AS other, (SELECT rank, position FROM jobs WHERE id = ?) AS this"
            " WHERE other.state = 'QUEUED' AND other.ready = 1"
            " AND (other.rank, other.position) < (this.rank, this.position)",
            (job_id,),
        )
        return int(found[0])

    def unfinished(
        self, *, owner: str | None = None, group: str | None = None, states: Collection[State] = UNFINISHED
    ) -> list[int]:
        """The numbers of all that wait or are under way, or of those of one owner, one group, these states."""
        # the states are named as the index names them, or it would not be used; the planner would rather read all jobs
        wanted = [state.value for state in states]
        index = "jobs_of_owner" if group is None else "jobs_of_group"
        rows = self._store.rows(
            f"SELECT id FROM jobs INDEXED BY {index} WHERE state IN ('QUEUED', 'STARTING', 'RUNNING')"  # noqa: S608
            f" AND state IN ({', '.join('?' * len(wanted))}){' AND owner = ?' if owner is not None else ''}"
            f"{' AND group_name = ?' if group is not None else ''} ORDER BY id",
            (*wanted, *(name for name in (owner, group) if name is not None)),
        )
        return [row["id"] for row in rows]

    def held(self) -> list[int]:
        """The numbers of those that somebody keeps from starting."""
        rows = self._store.rows(
            "SELECT id FROM jobs INDEXED BY jobs_not_ready WHERE state = 'QUEUED' AND ready = 0 AND held_by IS NOT NULL"
        )
        return sorted(row["id"] for row in rows)

    def unfinished_of(self, owner: str) -> list[int]:
        """The same of one owner."""
        return self.unfinished(owner=owner)

    def queued_of(self, owner: str) -> int:
        """How many jobs of one owner wait."""
        found = self._store.row(
            # the states are named as the index names them, or it would not be used
            "SELECT count(*) FROM jobs WHERE owner = ? AND state IN ('QUEUED', 'STARTING', 'RUNNING')"
            " AND state = 'QUEUED'",
            (owner,),
        )
        return int(found[0])

    def overview(self, since: str) -> Overview:
        """How many jobs there are of each kind; of those that ended, only what ended since then."""
        unfinished = self._store.rows(
            # by name, since the planner would rather read every job there ever was
            "SELECT state, count(*) FROM jobs INDEXED BY jobs_of_owner"
            " WHERE state IN ('QUEUED', 'STARTING', 'RUNNING') GROUP BY state"
        )
        found = {State(state): int(count) for state, count in unfinished}
        ready = int(self._store.row("SELECT count(*) FROM jobs WHERE state = 'QUEUED' AND ready = 1")[0])
        ended = self._store.rows(
            "SELECT state, count(*) FROM jobs INDEXED BY jobs_ended"
            " WHERE state IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'LOST') AND finished_at > ? GROUP BY state",
            (since,),
        )
        return Overview(
            queued=ready,
            not_yet=found.get(State.QUEUED, 0) - ready,
            running=found.get(State.STARTING, 0) + found.get(State.RUNNING, 0),
            ended={State(state): int(count) for state, count in ended},
        )

    def last_event(self) -> int:
        """The number of the newest event there is; 0 without any."""
        return int(self._store.row("SELECT coalesce(max(id), 0) FROM events")[0])

    def events_after(self, number: int) -> list[Happened]:
        """What happened to jobs since that event, in order: its cost is that of the news, however long the queue."""
        rows = self._store.rows(
            "SELECT id, job_id, attempt, kind, data FROM events WHERE id > ? AND job_id IS NOT NULL ORDER BY id",
            (number,),
        )
        return [Happened(*row) for row in rows]

    def numbered(self, beginning: str, limit: int, *, unfinished: bool = False) -> list[Job]:
        """The newest whose numbers begin with these digits, or of them those that have not ended; the newest first."""
        if unfinished:
            numbers = [number for number in reversed(self.unfinished()) if str(number).startswith(beginning)]
            return [job for number in numbers[:limit] if (job := self._jobs.get(number))]
        found: list[Job] = []
        for ends in reversed(list(self._numbers_that_begin(beginning))):
            wanted = limit - len(found)
            rows = self._store.rows(
                "SELECT * FROM jobs WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?", (*ends, wanted)
            )
            found += [job_of(row) for row in rows]
        return found

    def _numbers_that_begin(self, digits: str) -> Iterator[tuple[int, int]]:
        """12 is 12, 120 to 129, 1200 to 1299 …, as far as there are jobs; nothing is 1 and all after it."""
        last = int(self._store.row("SELECT coalesce(max(id), 0) FROM jobs")[0])
        if not digits:
            yield 1, last
        if not re.fullmatch(r"[1-9][0-9]{0,18}", digits, re.ASCII):
            return
        first, count = int(digits), 1
        while first <= last:
            yield first, first + count - 1
            first, count = first * 10, count * 10
