"""Status, results, changes and reruns of a group of jobs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner import clock, rundir
from runner.errors import UserError
from runner.model import LIVE_STATES, State
from runner.store.dependencies import parents_first
from runner.store.groups import Member, Template
from runner.sweep.metrics import Metric, MetricValue, MetricValues
from runner.sweep.results import Results, as_csv, best_words, compared, count_words, plotted, ran_s, status_words
from runner.sweep.sweeps import Range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.api.queue import Queue
    from runner.model import Job
    from runner.store.groups import Group
    from runner.sweep.sweeps import Values

SUGGESTED = 5


@dataclass(frozen=True, slots=True)
class Standing:
    """The status of a group at one moment."""

    group: Group
    counts: Mapping[State, int]
    left_s: float | None
    in_vain: int = 0  # cancelled, because a job they depend on did not succeed

    @property
    def total(self) -> int:
        """Return how many jobs it has."""
        return sum(self.counts.values())

    @property
    def line(self) -> str:
        """Return one line, like `sweep-3: 4 of 9 done, 1 failed, 2 running, 2 waiting, about 2h left`."""
        limit = f"; at most {self.group.at_most} at once" if self.group.at_most and self.unfinished else ""
        return f"{self.group.name}: {status_words(self.counts, self.left_s, self.in_vain)}{limit}"

    @property
    def unfinished(self) -> bool:
        """Return whether any of its jobs is queued or live."""
        return any(count for state, count in self.counts.items() if not state.final)


def find(queue: Queue, name: str) -> Group:
    """Return the group of this name. Raise UserError, with the latest groups, if there is none."""
    group = queue.groups.get(name)
    if group is None:
        latest = ", ".join(queue.groups.latest(SUGGESTED))
        hint = f"The latest: {latest}." if latest else "There are none yet: --group NAME makes one."
        raise UserError(f"There is no group {name!r}. {hint}")
    return group


def standing(queue: Queue, name: str) -> Standing:
    """Return the status of a group."""
    group, counts = find(queue, name), queue.groups.counts(name)
    return Standing(group, counts, _left_s(queue, name, counts), queue.groups.in_vain(name))


def _left_s(queue: Queue, name: str, counts: Mapping[State, int]) -> float | None:
    """Return the seconds until all are done, from the average duration and how many run now; None if unknown."""
    running = sum(counts.get(state, 0) for state in LIVE_STATES)
    usual_s = queue.groups.usual_s(name) if running else None
    if usual_s is None:
        return None
    now, under_way = clock.now(), [job for job in queue.jobs.live() if job.spec.group == name]
    begun_s = sum(max(0.0, usual_s - (ran_s(job, now) or 0.0)) for job in under_way)
    return (begun_s + usual_s * counts.get(State.QUEUED, 0)) / running


def members(queue: Queue, name: str) -> list[Job]:
    """Return its jobs, without those that did not succeed and were run again."""
    find(queue, name)
    return [job for member in queue.groups.current(name) if (job := queue.jobs.get(member.id))]


def folders(queue: Queue, jobs: Sequence[Job]) -> dict[int, str]:
    """Return the run directory of the latest attempt of each job that has one."""
    return {job.id: rundir.folder_of(queue.home, job.id, job.attempt) for job in jobs if job.attempt}


def change(queue: Queue, name: str, changes: Mapping[str, Any]) -> str:
    """Change the limit (`at_most`) or the `metric` of a group. Return a sentence about it."""
    find(queue, name)
    words = []
    with queue.store.transaction():
        if "at_most" in changes:
            queue.groups.limit(name, changes["at_most"])
            words.append(f"at most {changes['at_most']} at once" if changes["at_most"] else "no limit")
        if metric := changes.get("metric"):
            queue.groups.change(name, {"metric": metric.to_json()})
            words.append(f"compared by {metric.name}, the {metric.best} is best")
        queue.audit.add(queue.actor, "group", {"group": name, "change": words})
    queue.ring()
    return f"{name}: {', '.join(words)}."


def rerun(
    queue: Queue, name: str, numbers: Sequence[int], owner: str | None = None, keys: Sequence[str] | None = None
) -> list[int]:
    """Queue these jobs of a group again, all or none, each after those it depends on. Return the new numbers."""
    key_of = dict(zip(numbers, keys, strict=True)) if keys else {}
    with queue.store.transaction():
        ordered = in_order(queue, numbers)
        made = [queue.rerun(number, key=key_of.get(number), owner=owner, in_order=True) for number in ordered]
        queue.audit.add(queue.actor, "rerun group", {"group": name, "jobs": made})
    return made


def in_order(queue: Queue, numbers: Sequence[int]) -> list[int]:
    """Return these jobs, each behind those it depends on; repeated numbers stay repeated."""
    jobs = {number: queue.jobs.get(number) for number in numbers}
    after = {number: (*job.spec.after, *job.spec.after_ok) if job else () for number, job in jobs.items()}
    times = Counter(numbers)
    return [number for number in parents_first(after) for _ in range(times[number])]


def kept_values(parameters: Mapping[str, Values]) -> dict[str, Any]:
    """Return the values of a sweep as they are stored: lists, and ranges as one would type them."""
    return {
        name: f"{'log' if values.logarithmic else 'lin'}:{values.low:g}..{values.high:g}"
        if isinstance(values, Range)
        else list(values)
        for name, values in parameters.items()
    }
