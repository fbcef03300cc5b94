"""What can be asked of a group of jobs, and done with it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner import clock, rundir
from runner.errors import UserError
from runner.model import State
from runner.store.groups import DONE, Group, Member, Template
from runner.store.reruns import parents_first
from runner.sweep.metrics import Metric, Reading, Readings
from runner.sweep.results import Results, as_csv, best_words, compared, count_words, plotted, ran_s, status_words
from runner.sweep.sweeps import Range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.api.queue import Queue
    from runner.model import Job
    from runner.sweep.sweeps import Values

SUGGESTED = 5


@dataclass(frozen=True, slots=True)
class Standing:
    """A group at one moment."""

    group: Group
    counts: Mapping[State, int]
    left_s: float | None
    in_vain: int = 0  # cancelled, because what they were to come after did not succeed

    @property
    def total(self) -> int:
        """How many jobs it has."""
        return sum(self.counts.values())

    @property
    def line(self) -> str:
        """`sweep-3: 4 of 9 done, 1 failed, 2 running, 2 waiting, about 2h left`."""
        limit = f"; at most {self.group.at_most} at once" if self.group.at_most and self.unfinished else ""
        return f"{self.group.name}: {status_words(self.counts, self.left_s, self.in_vain)}{limit}"

    @property
    def unfinished(self) -> bool:
        """Whether one of them waits or runs."""
        return any(count for state, count in self.counts.items() if not state.final)


def find(queue: Queue, name: str) -> Group:
    """The group of this name; UserError with those that there are if there is none."""
    found = queue.groups.get(name)
    if found is None:
        known = queue.groups.latest(SUGGESTED)
        there = f" The latest: {', '.join(known)}." if known else " There are none yet: --group NAME makes one."
        raise UserError(f"There is no group {name!r}.{there}")
    return found


def standing(queue: Queue, name: str) -> Standing:
    """How far it is."""
    group, counts = find(queue, name), queue.groups.counts(name)
    return Standing(group, counts, _left_s(queue, name, counts), queue.groups.in_vain(name))


def _left_s(queue: Queue, name: str, counts: Mapping[State, int]) -> float | None:
    """Until all are done, if they take as long as those that succeeded and as many run as now; None if unknown."""
    running = counts.get(State.STARTING, 0) + counts.get(State.RUNNING, 0)
    usual_s = queue.groups.usual_s(name) if running else None
    if usual_s is None:
        return None
    now, under_way = clock.now(), [job for job in queue.jobs.live() if job.spec.group == name]
    begun_s = sum(max(0.0, usual_s - (ran_s(job, now) or 0.0)) for job in under_way)
    return (begun_s + usual_s * counts.get(State.QUEUED, 0)) / running


def members(queue: Queue, name: str) -> list[Job]:
    """Its jobs, without those that failed and were run again."""
    find(queue, name)
    return [job for one in queue.groups.current(name) if (job := queue.jobs.get(one.id))]


def folders(queue: Queue, jobs: Sequence[Job]) -> dict[int, str]:
    """Where the output is of those that have any."""
    return {job.id: rundir.folder_of(queue.home, job.id, job.attempt) for job in jobs if job.attempt}


def change(queue: Queue, name: str, changes: Mapping[str, Any]) -> str:
    """Another limit (`at_most`), another `metric`; a sentence about it."""
    find(queue, name)
    said = []
    with queue.store.transaction():
        if "at_most" in changes:
            queue.groups.limit(name, changes["at_most"])
            said.append(f"at most {changes['at_most']} at once" if changes["at_most"] else "no limit")
        if metric := changes.get("metric"):
            queue.groups.change(name, {"metric": metric.to_json()})
            said.append(f"compared by {metric.name}, the {metric.best} is best")
        queue.audit.add(queue.actor, "group", {"group": name, "change": said})
    queue.ring()
    return f"{name}: {', '.join(said)}."


def rerun(
    queue: Queue, name: str, numbers: Sequence[int], owner: str | None = None, keys: Sequence[str] | None = None
) -> list[int]:
    """Queue these of its jobs again, all or none, each after what it came after; the new numbers."""
    key_of = dict(zip(numbers, keys, strict=True)) if keys else {}
    with queue.store.transaction():
        ordered = in_order(queue, numbers)
        made = [queue.rerun(number, key=key_of.get(number), owner=owner, in_order=True) for number in ordered]
        queue.audit.add(queue.actor, "rerun group", {"group": name, "jobs": made})
    return made


def in_order(queue: Queue, numbers: Sequence[int]) -> list[int]:
    """These jobs, each as often as it is named, behind those of them that it comes after."""
    jobs = {number: queue.jobs.get(number) for number in numbers}
    after = {number: (*job.spec.after, *job.spec.after_ok) if job else () for number, job in jobs.items()}
    times = Counter(numbers)
    return [number for number in parents_first(after) for _ in range(times[number])]


def kept_values(parameters: Mapping[str, Values]) -> dict[str, Any]:
    """The values of a sweep as they are kept: lists, and ranges as they are typed."""
    return {
        name: f"{'log' if values.logarithmic else 'lin'}:{values.low:g}..{values.high:g}"
        if isinstance(values, Range)
        else list(values)
        for name, values in parameters.items()
    }


__all__ = [
    "DONE",
    "Group",
    "Member",
    "Metric",
    "Reading",
    "Readings",
    "Results",
    "Standing",
    "Template",
    "as_csv",
    "best_words",
    "change",
    "compared",
    "count_words",
    "find",
    "folders",
    "in_order",
    "kept_values",
    "members",
    "plotted",
    "rerun",
    "standing",
    "status_words",
]
