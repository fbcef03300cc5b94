"""Groups of jobs: a sweep, or jobs submitted with the same `--group`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from runner import clock
from runner.model import Record, State
from runner.store.box import Box, BoxKey
from runner.store.connection import Table
from runner.store.dependencies import Reruns
from runner.store.notices import Notices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from runner.sweep.metrics import Metric

_UNFINISHED = "state IN ('QUEUED', 'STARTING', 'RUNNING')"
# a job that failed and was run again: only the new job counts
_REPLACED = (
    "(state IN ('FAILED', 'CANCELLED', 'LOST') AND id IN (SELECT json_extract(spec, '$.again_of') FROM jobs"
    " WHERE group_name = :name AND json_extract(spec, '$.again_of') IS NOT NULL))"
)
_FAILED = "(state IN ('FAILED', 'LOST') OR state = 'CANCELLED' AND reason <> 'USER')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A sweep: its command, the values, how many jobs may run at once, and the metric to compare them by.

    A batch has only lines, and its name says that it is one.
    """

    group: str | None = None  # None: it gets a new name
    prefix: str = "sweep"  # of the new name: sweep or batch
    command: str | None = None
    parameters: Mapping[str, Any] | None = None
    at_most: int | None = None
    metric: Metric | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Record):
    """A group as it is stored."""

    name: str
    owner: str | None = None
    at_most: int | None = None
    command: str | None = None
    parameters: Mapping[str, Any] | None = None
    metric: Mapping[str, Any] | None = None  # as runner.sweep.metrics keeps it


class Member(NamedTuple):
    """The fields of a job that are needed to act on it."""

    id: int
    owner: str


class Groups(Table):
    """Works within the caller's transaction. Finds jobs by the index on the group's name."""

    # -- changing ----------------------------------------------------------------------------------

    def join(self, name: str, owner: str, at: str) -> None:
        """Create the group, if this is its first job."""
        self._store.execute(
            "INSERT OR IGNORE INTO groups (name, body, created_at) VALUES (?, ?, ?)",
            (name, json.dumps({"owner": owner}), at),
        )

    def start(self, sweep: Template, owner: str) -> str:
        """Create the group of a sweep, or use the one that it names. Return its name."""
        name = sweep.group or self._new_name(sweep.prefix)
        self.join(name, owner, clock.text(clock.now()))
        metric = {} if sweep.metric is None else {"metric": sweep.metric.to_json()}
        self.change(name, {"command": sweep.command, "parameters": sweep.parameters, **metric})
        if sweep.at_most is not None:
            self.limit(name, sweep.at_most)
        return name

    def _new_name(self, prefix: str) -> str:
        box, number, key = Box(self._store), 0, BoxKey.SWEEPS if prefix == "sweep" else BoxKey.BATCHES
        while number == 0 or self.get(f"{prefix}-{number}") is not None:
            number = int(box.get(key, 0)) + 1
            box.set(key, number)
        return f"{prefix}-{number}"

    def change(self, name: str, fields: Mapping[str, Any]) -> None:
        """Set these fields of a group and keep its others."""
        stored = self._store.value("SELECT body FROM groups WHERE name = ?", (name,))
        if stored is not None:
            body = json.dumps({**json.loads(stored), **fields})
            self._store.execute("UPDATE groups SET body = ? WHERE name = ?", (body, name))

    def limit(self, name: str, at_most: int | None) -> None:
        """Set how many of its jobs may run at once; None for no limit."""
        self._store.execute("UPDATE groups SET at_most = ? WHERE name = ?", (at_most, name))

    # -- reading -----------------------------------------------------------------------------------

    def get(self, name: str) -> Group | None:
        """Return a group, or None."""
        row = self._store.row("SELECT at_most, body FROM groups WHERE name = ?", (name,))
        return Group.from_json({**json.loads(row["body"]), "name": name, "at_most": row["at_most"]}) if row else None

    def latest(self, limit: int) -> list[str]:
        """Return the names of the groups with the newest jobs, the newest first."""
        rows = self._store.rows(
            "SELECT group_name, max(id) AS newest FROM jobs WHERE group_name IS NOT NULL GROUP BY group_name"
            " ORDER BY newest DESC LIMIT ?",
            (limit,),
        )
        return [row["group_name"] for row in rows]

    def counts(self, name: str, after: int = 0) -> dict[State, int]:
        """Return how many of its jobs numbered above `after` are in each state."""
        rows = self._store.rows(
            "SELECT state, count(*) AS jobs FROM jobs WHERE group_name = :name AND id > :after"
            f" AND NOT {_REPLACED} GROUP BY state",
            {"name": name, "after": after},
        )
        return {State(row["state"]): row["jobs"] for row in rows}

    def in_vain(self, name: str) -> int:
        """Return how many of its jobs were cancelled because a job they depend on did not succeed."""
        return len(self._members(f"state = 'CANCELLED' AND reason = 'DEPENDENCY' AND NOT {_REPLACED}", name))

    def current(self, name: str) -> list[Member]:
        """Return its jobs, without those that did not succeed and were run again."""
        return self._members(f"NOT {_REPLACED}", name)

    def unfinished(self, name: str) -> list[Member]:
        """Return its queued and live jobs."""
        return self._members(_UNFINISHED, name)

    def failed(self, name: str) -> list[Member]:
        """Return its jobs that did not succeed and were not run again.

        A job that a person stopped does not count as failed, nor do the jobs that depend on it.
        """
        reruns = Reruns(self._store)
        failed = self._members(f"{_FAILED} AND NOT {_REPLACED}", name)
        return [member for member in failed if not reruns.was_stopped(member.id)]

    def ended(self, name: str) -> list[Member]:
        """Return its jobs that have ended and were not run again."""
        again = "SELECT coalesce(json_extract(spec, '$.again_of'), 0) FROM jobs WHERE group_name = :name"
        return self._members(f"NOT {_UNFINISHED} AND id NOT IN ({again})", name)

    def _members(self, which: str, name: str) -> list[Member]:
        sql = f"SELECT id, owner FROM jobs WHERE group_name = :name AND {which} ORDER BY id"
        return [Member(*row) for row in self._store.rows(sql, {"name": name})]

    def usual_s(self, name: str) -> float | None:
        """Return the average duration of its successful jobs in seconds; None if there are none."""
        average: float | None = self._store.value(
            "SELECT avg(julianday(finished_at) - julianday(started_at)) * 86400 FROM jobs"
            " WHERE group_name = ? AND state = 'SUCCEEDED' AND started_at IS NOT NULL",
            (name,),
        )
        return average

    # -- the end -----------------------------------------------------------------------------------

    def settle(self, ended: Iterable[int]) -> None:
        """Write one notice for each group that is done now that these jobs have ended."""
        names = {self._store.value("SELECT group_name FROM jobs WHERE id = ?", (job_id,)) for job_id in ended}
        for name in sorted(names - {None}):
            self._settle(name)

    def moved(self, job_id: int, old: str | None, new: str | None) -> None:
        """Update both groups after a queued job was moved: the old one may be done now. None means no group."""
        if new is not None and job_id <= self._told_through(new):
            self.change(new, {"told_through": None})  # its number looks reported already: report all of the group again
        if old is not None:
            self._settle(old)

    def _settle(self, name: str) -> None:
        unfinished = f"SELECT 1 FROM jobs WHERE group_name = ? AND {_UNFINISHED} LIMIT 1"
        if self._store.value(unfinished, (name,)) is None:
            self._tell(name)

    def _told_through(self, name: str) -> int:
        """Return the number of the last job that a notice about the group has covered; 0 if there was no notice."""
        sql = "SELECT json_extract(body, '$.told_through') FROM groups WHERE name = ?"
        return self._store.value(sql, (name,)) or 0

    def _tell(self, name: str) -> None:
        """Write the notice that a group is done. Jobs of an earlier notice count only in the totals."""
        from runner.notices import GroupDone  # not at the top of the file: only the runner needs it

        after = self._told_through(name)
        row = self._store.row(
            "SELECT max(id) AS last, min(started_at) AS since, max(finished_at) AS until FROM jobs"
            " WHERE group_name = ? AND id > ?",
            (name, after),
        )
        if row["last"] is None:  # all of it was reported
            return
        counts = {state.value: count for state, count in self.counts(name, after).items()}
        in_all = {state.value: count for state, count in self.counts(name).items()}
        done = GroupDone(group=name, counts=counts, in_all=in_all, after=after, **dict(row))
        Notices(self._store).add(done)
        self.change(name, {"told_through": row["last"]})
