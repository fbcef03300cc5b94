"""A night of nightshift's on simulated GPUs, event by event, in virtual time.

What decides is its own code: the scheduler, the idle rule, the rule for hung jobs, the breaker, the reading of "out of
memory" from the output, and the plan that finds a batch. The oracle is the same without the delays.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field, replace

from benchmarks.night import CRASH, GPUS, IDLES, OK, OOM, SPINS, TOTAL_MIB, Job, Night
from benchmarks.night_rules import found_batch, hung_s, idle_stop_s, progress_at
from runner.batch import BatchPlan, OutOfMemory, Run, oom
from runner.idle import hung_rule
from runner.idle.stall_rule import Standstill, standstill
from runner.model import Exit, State
from runner.schedule.choice import Running, Waiting, choose
from runner.schedule.request import Request
from runner.schedule.room import BoxLimits, Room
from runner.watchdogs import failure_streak

NEXT_S = 1.0  # after a job, until a reading shows that its memory is back
GRACE_S = 10.0
FREE = "free, between jobs or kept for one that waits for more"
PROBES = "probes"
CAUSES = {
    SPINS: "jobs hung at 100 %",
    IDLES: "jobs that did nothing",
    OOM: "jobs out of memory",
    CRASH: "jobs that crashed",
    "host": "work lost with the host",
    "limit": "jobs beyond their limit",
}
OOM_SAID = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@dataclass(frozen=True)
class Way:
    """How nightshift is set up. These are the defaults."""

    hung: hung_rule.HungPolicy = hung_rule.DEFAULT
    breaker: int = 3
    breaker_within_s: float = 10.0
    breaker_again_s: float = 300.0
    retry_host: bool = False
    at_once: bool = False  # what goes wrong is known when it does, nothing takes time
    probes: bool = True  # batches are looked for, which takes time; else they are known
    foresight: bool = False  # what goes wrong is known before it does


SHIPPED, ORACLE, PROBING_ORACLE = Way(), Way(at_once=True, probes=False), Way(at_once=True)
FORESIGHT = replace(ORACLE, foresight=True)


# -- nightshift, and the oracle ------------------------------------------------------------------------------------


@dataclass
class Live:
    """An attempt under way."""

    job: Job
    gpus: tuple[int, ...]
    began_s: float
    had_s: float  # of its work, from a checkpoint
    ends_s: float
    how: str
    lead_s: float = 0.0  # before its work begins: probes
    waited_s: float = 0.0
    stopping: bool = False

    def done_s(self, now_s: float) -> float:
        """Of its work so far, in this attempt; what hangs does none."""
        done_s = max(0.0, now_s - self.began_s - self.lead_s)
        return min(done_s, self.job.fault_s - self.had_s) if self.how in (IDLES, SPINS) else done_s


@dataclass
class Ours:
    """One night of nightshift's, event by event."""

    night: Night
    way: Way
    now_s: float = 0.0
    counted_s: float = 0.0  # GPU seconds
    waiting: dict[int, tuple[Job, float, float]] = field(default_factory=dict)  # job, work it has, since when
    live: dict[int, Live] = field(default_factory=dict)
    plans: dict[int, BatchPlan] = field(default_factory=dict)
    healed: set[int] = field(default_factory=set)  # their fault does not come again
    tried: set[int] = field(default_factory=set)  # had their retry
    streak: failure_streak.Streak = field(default_factory=failure_streak.Streak)
    paused: bool = False
    failed: list[int] = field(default_factory=list)  # what the breaker holds against the box
    tries: int = 0
    trial: int | None = None  # the job that shows whether it is the box
    up: bool = True
    came: bool = True  # somebody new may preempt others, though no GPU is free
    wasted: dict[str, float] = field(default_factory=dict)
    _events: list[tuple[float, int, str, int]] = field(default_factory=list)
    _free_from: dict[int, float] = field(default_factory=dict)

    def share(self) -> float:
        for job in self.night.jobs:
            self._at(job.at_s, "comes", job.id)
        for _, start, end, _ in self.night.neighbours:
            self._at(start, "neighbour", 0)
            self._at(end, "neighbour", 0)
        self._at(self.night.reboot_s, "reboot", 0)
        self._at(self.night.reboot_s + self.night.boot_s, "boot", 0)
        while self._events and self._events[0][0] < self.night.length_s:
            self._pass_time(self._events[0][0])
            while self._events and self._events[0][0] <= self.now_s:
                _, _, what, number = heapq.heappop(self._events)
                getattr(self, f"_{what}")(number)
            if self.up and (not self.paused or self.trial == 0):
                self._schedule()
        self._pass_time(self.night.length_s)
        for one in self.live.values():
            self._morning(one)
        return self.counted_s / (GPUS * self.night.length_s)

    def _at(self, when_s: float, what: str, number: int) -> None:
        heapq.heappush(self._events, (when_s, len(self._events) + number, what, number))

    def _pass_time(self, until_s: float) -> None:
        """Write down why GPUs without a job of ours had none."""
        taken = {gpu for one in self.live.values() for gpu in one.gpus}
        for gpu in set(range(GPUS)) - taken:
            why = "the host is down" if not self.up else "the breaker has paused the queue" if self.paused else None
            why = why or ("a neighbour" if self.night.foreign_mib(gpu, self.now_s) >= TOTAL_MIB / 10 else FREE)
            self._lose(why, until_s - self.now_s)
        self.now_s = until_s

    def _lose(self, why: str, gpu_s: float) -> None:
        self.wasted[why] = self.wasted.get(why, 0.0) + gpu_s

    # -- what happens --

    def _comes(self, number: int) -> None:
        job = self.night.jobs[number - 1]
        hopeless = (job.fault == IDLES and not job.fault_s) or (job.fault == OOM and not job.probes)
        if not (self.way.foresight and hopeless):
            self.came = True
            self.waiting[number] = job, 0.0, self.now_s

    def _neighbour(self, _: int) -> None:
        """Somebody's process comes or goes; jobs there run out of memory if it is too much."""
        for one in list(self.live.values()):
            if any(self.night.foreign_mib(gpu, self.now_s) + one.job.mib > TOTAL_MIB for gpu in one.gpus):
                self._over(one, OOM)

    def _reboot(self, _: int) -> None:
        self.up = False
        for one in list(self.live.values()):
            self._over(one, "host")

    def _boot(self, _: int) -> None:
        self.up = True

    def _look(self, _: int) -> None:
        """There may be something to start."""

    def _try(self, _: int) -> None:
        """A paused queue may be tried with one job."""
        self.trial = 0

    def _tried(self, number: int) -> None:
        """It has run for long enough to say that the box is well; those like the failed ones are held."""
        if self.trial == number and number in self.live:
            kinds = failure_streak.broken(self._kind(number) for number in self.failed)
            self.waiting = {n: row for n, row in self.waiting.items() if self._kind(n) not in kinds}
            self._go_on()

    def _go_on(self) -> None:
        self.paused, self.trial, self.failed, self.tries = False, None, [], 0

    def _kind(self, number: int) -> str:
        return str(self.night.jobs[number - 1].kind or -number)

    def _ends(self, number: int) -> None:
        one = self.live.get(number)
        if one is None or one.ends_s > self.now_s:
            return
        if (
            one.how == SPINS
            and self.way.hung.action is hung_rule.HungAction.YIELD
            and not self.waiting
            and not self.way.at_once
        ):
            one.ends_s += NEXT_S * 10  # nobody needs its GPUs: it is let be
            self._at(one.ends_s, "ends", number)
        else:
            self._over(one, one.how)

    def _over(self, one: Live, how: str) -> None:
        """An attempt has ended: count what counts, and queue it again where that is so."""
        job, done_s = one.job, one.done_s(self.now_s)
        del self.live[job.id]
        if one.how in (IDLES, SPINS) and job.fault_s:
            self.healed.add(job.id)
        for gpu in one.gpus:
            self._free_from[gpu] = self.now_s + (0.0 if self.way.at_once else NEXT_S)
        self._at(self.now_s + NEXT_S, "look", 0)
        if how in (OK, "preempted"):
            self._lose(PROBES, one.lead_s * job.gpus)
        if how == OK:
            self._count(job, done_s)
        elif how == "preempted":
            self._count(job, done_s)  # it saves when it is told to stop
            self.waiting[job.id] = job, one.had_s + done_s, self.now_s
        elif self._goes_on(one, how):
            saves_s = job.saves_every_s
            kept_s = (one.had_s + done_s) // saves_s * saves_s - one.had_s if saves_s else 0.0
            kept_s = max(0.0, kept_s)
            self._count(job, kept_s)
            self._waste(how, one, kept_s)
            self.waiting[job.id] = job, one.had_s + kept_s, self.now_s
        else:
            # what it had saved before counts no more, since nobody goes on with it
            self._count(job, -one.had_s)
            self._waste(how, one, 0.0)
        if how in (CRASH, OK, OOM) and not self.way.at_once:
            self._see_streak(one, how)

    def _goes_on(self, one: Live, how: str) -> bool:
        job = one.job
        if how == CRASH:
            return False
        if how == OOM:
            if self.way.foresight or (job.probes and self._steps_back(one)):
                self.healed.add(job.id)
                return True
            return False
        if how == "host":
            asked = job.retries and job.id not in self.tried
            self.tried.add(job.id)
            return self.way.foresight or self.way.retry_host or asked or job.filler
        if self.way.foresight:
            self.healed.add(job.id)
            return True
        return False

    def _steps_back(self, one: Live) -> bool:
        found = oom.recognise(OOM_SAID, exit_code=1)
        plan = self.plans.get(one.job.id)
        if found is None or plan is None:
            return False
        self.plans[one.job.id] = plan.after(OutOfMemory(TOTAL_MIB, seconds=one.done_s(self.now_s)))
        return isinstance(self.plans[one.job.id].step, Run)

    def _see_streak(self, one: Live, how: str) -> None:
        if self.paused:
            self._see_trial(one, how)
            return
        state = State.SUCCEEDED if how == OK else State.FAILED
        code = 0 if how == OK else one.job.exit_code if how == CRASH else 1
        end = Exit(exit_code=code, started_at="", finished_at="", duration_s=self.now_s - one.began_s)
        self.streak = failure_streak.after(self.streak, one.job.id, state, end, self.way.breaker_within_s)
        if self.way.breaker and len(self.streak.jobs) >= self.way.breaker:
            self.failed, self.streak, self.paused = list(self.streak.jobs), failure_streak.Streak(), True
            self._try_when(0.0 if self._unlike() else failure_streak.wait_s(0, self.way.breaker_again_s))

    def _see_trial(self, one: Live, how: str) -> None:
        if one.job.id != self.trial:
            return
        if how != OK and self.now_s - one.began_s <= self.way.breaker_within_s:
            self.failed.append(one.job.id)
            self._try_when(failure_streak.wait_s(self.tries, self.way.breaker_again_s))
            self.tries += 1
        else:
            self._go_on()

    def _unlike(self) -> list[int]:
        """Those who wait and are no relatives of those that failed."""
        kinds = {self._kind(number) for number in self.failed}
        return [number for number in self.waiting if self._kind(number) not in kinds]

    def _try_when(self, in_s: float) -> None:
        self.trial = None
        self._at(self.now_s + in_s, "try", 0)

    def _count(self, job: Job, work_s: float) -> None:
        self.counted_s += work_s * job.gpus

    def _waste(self, how: str, one: Live, kept_s: float) -> None:
        how = one.how if one.how in (IDLES, SPINS) else how  # a reboot ends what hangs as well
        self._lose(CAUSES[how], (self.now_s - one.began_s - kept_s) * one.job.gpus)

    def _morning(self, one: Live) -> None:
        """Still running, and it will come to its end."""
        if one.how in (OK, "preempted"):
            self._count(one.job, one.done_s(self.night.length_s))
        else:
            self._count(one.job, -one.had_s)
            self._waste(one.how, one, 0.0)

    # -- a pass --

    def _schedule(self) -> None:
        queued = [
            Waiting(job.id, self._request(job, had_s), job.id, self.now_s - since_s)
            for job, had_s, since_s in self.waiting.values()
        ]
        busy = {gpu for one in self.live.values() for gpu in one.gpus}
        if not queued or (len(busy) == GPUS and not self.came):
            return
        self.came = False
        if self.paused and (unlike := self._unlike()):
            queued = [one for one in queued if one.id in unlike]
        queued = _first_of_each_kind(queued)
        running, rooms = [self._running(one) for one in self.live.values()], [self._room(gpu) for gpu in range(GPUS)]
        plan = choose(queued, rooms, (), running, BoxLimits(use=self._use()), explain=False)
        for preemption in plan.preemptions if not self.paused else ():
            one = self.live[preemption.job_id]
            one.stopping, one.how = True, "preempted"
            one.ends_s = min(one.ends_s, self.now_s + (0.0 if self.way.at_once else GRACE_S))
            self._at(one.ends_s, "ends", one.job.id)
        for start in plan.starts if not self.paused else plan.starts[:1]:
            self._start(start.job_id, tuple(int(uuid) for uuid, _ in start.slots))
            if self.paused:
                self.trial = start.job_id
                self._at(self.now_s + self.way.breaker_within_s, "tried", start.job_id)

    def _request(self, job: Job, had_s: float) -> Request:
        limit_s = job.limit_s
        if self.way.foresight and not job.filler:
            limit_s = math.ceil((job.work_s - had_s) / 300) * 300.0
        mib = job.mib if self.way.foresight else None
        return Request(
            owner=job.owner, gpus=job.gpus, rank=job.rank, preemptible=job.filler, limit_s=limit_s, gpu_mem_mib=mib
        )

    def _running(self, one: Live) -> Running:
        request = self._request(one.job, one.had_s)
        ran_s = self.now_s - one.began_s
        ends_in_s = None if request.limit_s is None else max(0.0, request.limit_s - ran_s)
        return Running(
            one.job.id, request, tuple(map(str, one.gpus)), ends_in_s, one.waited_s, one.stopping, ran_s=ran_s
        )

    def _room(self, gpu: int) -> Room:
        taken = any(gpu in one.gpus for one in self.live.values())
        foreign_mib, why_not, sick = self.night.foreign_mib(gpu, self.now_s), None, False
        if not taken and foreign_mib >= TOTAL_MIB / 10 and not self.way.foresight:
            why_not, sick = "is held by somebody else", True
        elif self.now_s < self._free_from.get(gpu, 0.0):
            why_not = "is being read"
        ours_mib = sum(
            one.job.mib if self.way.foresight else TOTAL_MIB for one in self.live.values() if gpu in one.gpus
        )
        left_mib = max(0, TOTAL_MIB - foreign_mib - ours_mib)
        return Room(
            index=gpu, uuid=str(gpu), slots=1, free_slots=() if taken else (0,), memory_mib=left_mib,
            share_mib=TOTAL_MIB, why_not=why_not, sick=sick,
        )  # fmt: skip

    def _use(self) -> dict[str, float]:
        used: dict[str, float] = {}
        for one in self.live.values():
            used[one.job.owner] = used.get(one.job.owner, 0.0) + (self.now_s - one.began_s) * len(one.gpus)
        return used

    def _start(self, number: int, gpus: tuple[int, ...]) -> None:
        job, had_s, since_s = self.waiting.pop(number)
        lead_s = 0.0
        if job.probes and number not in self.plans:
            self.plans[number], took_s = found_batch(job)
            lead_s = took_s if self.way.probes else 0.0
        takes_s, how = self._fate(job, had_s, lead_s)
        one = Live(job, gpus, self.now_s, had_s, self.now_s + takes_s, how, lead_s, self.now_s - since_s)
        self.live[number] = one
        if one.ends_s < self.night.length_s:
            self._at(one.ends_s, "ends", number)

    def _fate(self, job: Job, had_s: float, lead_s: float) -> tuple[float, str]:
        """How long it holds its GPUs from now on, and how that ends."""
        takes_s, how = lead_s + job.work_s - had_s, OK
        left_s = lead_s + job.fault_s - had_s
        if job.fault != OK and job.id not in self.healed and left_s >= 0:
            how = job.fault
            if self.way.at_once or how in (CRASH, OOM):
                takes_s = left_s
            elif how == IDLES:
                takes_s = idle_stop_s(left_s, self._counter(job, had_s, left_s)) + GRACE_S
            else:
                takes_s = self._hangs_s(left_s, self._counter(job, had_s, left_s))
        if job.limit_s is not None and not self.way.foresight and takes_s > job.limit_s:
            return job.limit_s + GRACE_S, how if how != OK else "limit"
        return takes_s, how

    def _counter(self, job: Job, had_s: float, busy_s: float) -> Standstill | None:
        return standstill(progress_at(job, job.fault_s - had_s, busy_s))

    def _hangs_s(self, busy_s: float, counter: Standstill | None) -> float:
        return hung_s(busy_s, self.way.hung, counter) + GRACE_S if self.way.hung.stops else math.inf


def _first_of_each_kind(queued: list[Waiting]) -> list[Waiting]:
    """As the runner does: those behind them that ask for the same cannot start before them."""
    kinds: dict[Request, list[Waiting]] = {}
    for job in sorted(queued, key=lambda job: job.position):
        kinds.setdefault(job.request, []).append(job)
    return [job for jobs in kinds.values() for job in jobs[:GPUS]]
