"""The forecast: when each queued job starts, and when the queue is empty."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.forecast.estimates import NOBODY_KNOWS, Behind, Forecast, forecast, starts_behind
from runner.forecast.simulation import UNKNOWN, HeldSlot, Later, Length, Rest, Scene
from runner.schedule.order import start_order
from runner.store.box import box_limits
from runner.store.dependencies import Dependencies
from runner.store.durations import Durations
from runner.store.scheduling_queries import Line
from runner.text.words import coming_time
from runner.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from runner.forecast.estimates import Estimate
    from runner.schedule.room import BoxLimits, Room
    from runner.store.connection import Store
    from runner.store.scheduling_queries import Lease

EXACTLY = 30  # jobs that are simulated one by one; those behind them are summed up
ROUGHLY = 3_000  # jobs that get a rough estimate of their own, on request
SOON_S = 60.0
NEAREST_S = 30.0  # added before seconds are cut off, so that 23:58:59 becomes 23:59
FURTHEST_S = 1000 * 365 * 86400.0
KEPT_S = 5.0  # changes without an event show after at most this time


@dataclass(frozen=True, slots=True)
class Outlook:
    """A forecast and when it was made."""

    at: datetime
    forecast: Forecast
    queued: int = 0  # jobs in the forecast
    held: int = 0  # not in the forecast: nobody knows when they are released
    stands_still: bool = False  # no job starts at all
    behind: Callable[[], Mapping[int, Estimate]] = field(default=dict, compare=False)  # slow, so only on request

    def start(self, job_id: int) -> Estimate:
        """Return when a job starts."""
        estimate = self.forecast.starts.get(job_id)
        return estimate if estimate is not None else self.behind().get(job_id, NOBODY_KNOWS)

    def described(self) -> dict[int, dict[str, str | None]]:
        """Return the start times of all jobs in the forecast, for the JSON output."""
        return {
            job_id: {
                "estimated_start": self._text(start.about_s),
                "estimated_start_not_before": self._text(start.earliest_s),
                "estimated_start_not_after": self._text(start.latest_s),
            }
            for job_id, start in {**self.behind(), **self.forecast.starts}.items()
        }

    def start_words(self, job_id: int) -> str:
        """Return when a job starts, in words; empty if unknown."""
        start = self.start(job_id)
        if start.about_s is not None:
            return f"about {self._clock(start.about_s, NEAREST_S)}" if start.about_s else "any moment"
        if start.latest_s is not None:
            return f"by about {self._clock(start.latest_s, NEAREST_S)}"
        return f"not before {self._clock(start.earliest_s)}" if (start.earliest_s or 0.0) >= SOON_S else ""

    def done_words(self) -> str:
        """Return when the queue is empty, in words; "" if nothing waits or nothing starts."""
        if self.stands_still or not self.queued:
            return ""
        done, doubt = self.forecast.done, self._doubt()
        if done.about_s is not None:
            words = f"empty at about {self._when(done.about_s, NEAREST_S)}, if nothing takes longer than usual"
        elif done.latest_s is not None:
            words = f"empty by about {self._when(done.latest_s, NEAREST_S)}: {doubt}"
        elif (done.earliest_s or 0.0) >= SOON_S:
            words = f"not empty before {self._when(done.earliest_s or 0.0)}: {doubt}"
        else:
            words = f"end unknown: {doubt}"
        return f"{words}; {self.held:,} held" if self.held else words

    def _doubt(self) -> str:
        if self.forecast.unknown:
            return f"{_jobs(self.forecast.unknown)} of unknown length"
        if self.forecast.bounded:
            return f"{_jobs(self.forecast.bounded)} known by the time limit only"
        return "not all can be foreseen"

    def _when(self, after_s: float, up_s: float = 0.0) -> str:
        return f"{self._clock(after_s, up_s)}, in {format_duration(after_s)}"

    def _clock(self, after_s: float | None, up_s: float = 0.0) -> str:
        """Return a future time by the wall clock, as short as is clear. Seconds are cut off after adding `up_s`."""
        assert after_s is not None
        return coming_time(self._moment(after_s + up_s), self.at)

    def _text(self, after_s: float | None) -> str | None:
        return None if after_s is None else clock.text(self._moment(after_s))

    def _moment(self, after_s: float) -> datetime:
        """Return the moment in `after_s` seconds, with a cap: huge time limits would overflow datetime."""
        return self.at + timedelta(seconds=min(after_s, FURTHEST_S))


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"


class Foresight:
    """Caches the outlook for one process, for a few seconds or until something that it depends on changes."""

    def __init__(self) -> None:
        self._facts: tuple[Any, ...] = ()
        self._cached: Outlook | None = None

    def outlook(
        self, store: Store, rooms: Sequence[Room], cpu_slots: int, leases: Sequence[Lease], *, stands_still: bool,
        read_left: Callable[[], Mapping[int, Length]] = dict,
    ) -> Outlook:  # fmt: skip
        """Return the outlook from the current state of the queue, or the cached one.

        `read_left` returns how long running jobs still take, as far as their output says that.
        """
        limits = box_limits(store)
        facts = (
            Line(store).last_event(), rooms, cpu_slots, leases, stands_still,
            limits.groups, limits.gpus_each, limits.gpus_each_low, limits.cpus, limits.ram_mib, limits.age_s,
        )  # fmt: skip
        cached = self._cached
        if cached and facts == self._facts and timedelta() <= clock.now() - cached.at < timedelta(seconds=KEPT_S):
            return cached
        left = {} if stands_still else read_left()
        fresh = outlook(store, rooms, cpu_slots, leases, limits, stands_still=stands_still, left=left)
        if not store.connection.in_transaction:  # uncommitted changes may be rolled back
            self._facts, self._cached = facts, fresh
        return fresh


def outlook(
    store: Store, rooms: Sequence[Room], cpu_slots: int, leases: Sequence[Lease], limits: BoxLimits, *,
    stands_still: bool = False, left: Mapping[int, Length] | None = None,
) -> Outlook:  # fmt: skip
    """Compute the outlook from the current state of the queue."""
    at, line = clock.now(), Line(store)
    if stands_still:
        return Outlook(at, Forecast(), stands_still=True)
    queued = list(islice(start_order(line.waiting(EXACTLY), limits), EXACTLY))
    not_ready, running = line.not_ready(EXACTLY + 1), line.running()
    unheld = [entry for entry in not_ready[:EXACTLY] if not entry.held]
    after = Dependencies(store).of(entry.job.id for entry in unheld)
    later = [
        Later(entry.job, frozenset(blocker.job_id for blocker in after.get(entry.job.id, ())), entry.begins_in_s)
        for entry in unheld
    ]
    durations = Durations(store)
    numbers = [job.id for job in queued] + [job.id for job in running] + [entry.job.id for entry in later]
    lengths = {number: duration.length for number, duration in durations.of(numbers).items()}
    lengths |= left or {}
    lengths |= {job.id: Length(0.0, 0.0) for job in running if job.stopping and not job.comes_back}  # within its grace
    rest = durations.of_the_rest([job.id for job in queued])
    if len(not_ready) > EXACTLY:  # the dependencies of those behind are not read
        rest.append(Rest(line.count_not_ready() - EXACTLY, 0, UNKNOWN))
    scene = Scene(
        queued=queued, later=later, running=running, rooms=rooms, cpu_slots={None: cpu_slots}, limits=limits,
        lengths=lengths, held=[_held(lease) for lease in leases], rest=rest,
    )  # fmt: skip
    count = len(queued) + len(later) + sum(jobs.count for jobs in rest)
    prediction, exactly = forecast(scene), {job.id for job in queued}

    @cache
    def behind() -> Mapping[int, Estimate]:
        return _behind(store, limits, prediction, exactly) if count > len(exactly) else {}

    return Outlook(at, prediction, count, sum(entry.held for entry in not_ready[:EXACTLY]), behind=behind)


def _behind(store: Store, limits: BoxLimits, prediction: Forecast, exactly: Collection[int]) -> dict[int, Estimate]:
    """Estimate when the jobs start that were only summed up."""
    ready = islice(Line(store).start_order(limits, ROUGHLY), ROUGHLY)
    rest = [job for job in ready if job.id not in exactly]
    durations = Durations(store).of([job.id for job in rest])
    jobs = [Behind(job.id, job.request.gpus, durations[job.id].length) for job in rest if job.id in durations]
    return starts_behind(jobs, prediction.sooner, prediction.later)


def _held(lease: Lease) -> HeldSlot:
    if lease.is_cpu:
        return HeldSlot("", lease.slot, lease.job_id, lease.memory_mib, lease.cpu_slot.node)
    return HeldSlot(lease.resource, lease.slot, lease.job_id, lease.memory_mib)
