"""Whole schedules on a box that exists only in memory: jobs arrive, run, end and are preempted, in virtual time.

What the scheduler answers at each pass is held against `tests.schedule_truth`, which knows the rules but not the code.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from random import Random

from runner.schedule.choice import Running, Waiting, choose
from runner.schedule.feasibility import never_fits
from runner.schedule.request import Request
from runner.schedule.room import BoxLimits, CpuSlot, Room, free_slots
from tests.schedule_truth import Pass, check

NAMES = ("NVIDIA RTX A5000", "Tesla T4", "NVIDIA H100 80GB HBM3")
SIZES_MIB = {"NVIDIA RTX A5000": 24_000, "Tesla T4": 15_000, "NVIDIA H100 80GB HBM3": 80_000}
TYPES = ("a5000", "t4", "h100")
OWNERS = ("ada", "bo", "cy")
GROUPS = ("night", "sweep")
GRACE_S, SETTLE_S, AGE_S = 10.0, 3.0, 3600.0
MOST_PREEMPTIONS = 3  # of one job for one other; more is preempting to and fro


@dataclass
class Card:
    """A GPU."""

    index: int
    name: str
    slots: int
    well: bool = True
    settles_at: float = -1.0
    held: dict[int, tuple[int, int | None]] = field(default_factory=dict)  # job -> slot, memory named

    @property
    def uuid(self) -> str:
        return f"GPU-{self.index}"

    @property
    def total_mib(self) -> int:
        return SIZES_MIB[self.name]

    def room(self, now: float) -> Room:
        share = self.total_mib // self.slots
        promised = sum(share if mib is None else mib for _, mib in self.held.values())
        free = free_slots(self.slots, {slot for slot, _ in self.held.values()})
        why_not = "is lost" if not self.well else "settles" if self.slots > 1 and now < self.settles_at else None
        return Room(
            index=self.index, uuid=self.uuid, name=self.name, slots=self.slots, free_slots=free,
            memory_mib=self.total_mib - promised, share_mib=share, why_not=why_not if free else None,
            sick=not self.well,
        )  # fmt: skip


@dataclass
class Task:
    """A job, and what the scheduler cannot know: how long it takes."""

    id: int
    request: Request
    left_s: float
    queued_at: float = 0.0
    waited_s: float = 0.0  # before it was queued for the last time
    began_at: float | None = None
    gpus: tuple[str, ...] = ()
    turn: int = 0  # counts its attempts: events of earlier ones are void
    stopping: bool = False
    started_once: bool = False


class Schedule:
    """One box and its jobs, from the first arrival until nothing is left to do."""

    def __init__(self, seed: int, *, stream: bool = False) -> None:
        self.chance = Random(seed)
        self._age_s = AGE_S / 4 if stream else AGE_S
        self.now, self.passes, self.preemptions = 0.0, 0, dict[tuple[int, int], int]()
        self.cards = self._cards()
        self.cpu_slots = self.chance.randint(1, 3)
        self.limits = self._limits()
        self.use: dict[str, float] = {}
        self.waiting_later: dict[int, Task] = {}
        self.waiting: dict[int, Task] = {}
        self.running: dict[int, Task] = {}
        self.cpu_held: dict[int, int] = {}
        self.unstarted: set[int] = set()
        self._events: list[tuple[float, int, str, int, int]] = []
        self._ids, self._order = 0, 0
        for _ in range(self.chance.randint(4, 22)):
            self._arrive(self.chance.choice((0.0, self.chance.uniform(0, 2000))), self._request())
        for card in self.cards:
            if self.chance.random() < 0.2:
                card.well = False
                self._at(self.chance.uniform(100, 3000), "well", card.index)
            elif self.chance.random() < 0.2:
                falls_at = self.chance.uniform(100, 2000)
                self._at(falls_at, "lost", card.index)
                self._at(falls_at + self.chance.uniform(10, 2000), "well", card.index)
        self._stream_until = 40 * self._age_s if stream else 0.0
        if stream:
            self._at(0.0, "stream", 0)

    # -- what there is -----------------------------------------------------------------------------

    def _cards(self) -> list[Card]:
        slots = self.chance.choice((1, 1, 2, 3))
        names = [self.chance.choice(NAMES)] * 8 if self.chance.random() < 0.5 else self.chance.choices(NAMES, k=8)
        return [Card(index, names[index], slots) for index in range(self.chance.randint(1, 8))]

    def _limits(self) -> BoxLimits:
        maybe = lambda low, high: self.chance.choice((None, self.chance.randint(low, high)))  # noqa: E731
        groups = {name: self.chance.randint(1, 3) for name in GROUPS if self.chance.random() < 0.7}
        return BoxLimits(
            cpus=maybe(4, 16), ram_mib=maybe(8_000, 64_000), gpus_each=maybe(1, 6), gpus_each_low=maybe(2, 8),
            groups=groups, age_s=self._age_s,
        )  # fmt: skip

    def _request(self) -> Request:
        """Something this box could give if it were empty and well."""
        chance = self.chance
        empty = [Card(card.index, card.name, card.slots).room(0.0) for card in self.cards]
        while True:
            on = ()
            if chance.random() < 0.2:
                named = chance.sample(self.cards, chance.randint(1, len(self.cards)))
                on = tuple(chance.choice((str(card.index), card.uuid)) for card in named)
            request = Request(
                owner=chance.choice(OWNERS),
                gpus=chance.choice((0, 1, 1, 1, 1, 2, 2, 3, 4, 8)),
                on=on,
                gpu_type=chance.choice(TYPES) if chance.random() < 0.15 else None,
                gpu_mem_mib=chance.randrange(1_000, 80_000, 1_000) if chance.random() < 0.35 else None,
                cpus=chance.randint(1, 12) if chance.random() < 0.25 else 0,
                ram_mib=chance.randrange(1_000, 60_000, 1_000) if chance.random() < 0.2 else 0,
                rank=chance.choice((-1, 0, 0, 1)),
                preemptible=chance.random() < 0.25,
                limit_s=chance.choice((60.0, 300.0, 900.0)) if chance.random() < 0.5 else None,
                group=chance.choice(GROUPS) if chance.random() < 0.3 else None,
            )
            if never_fits(request, empty, {None: self.cpu_slots}, self.limits) is None:
                return request

    # -- what happens ------------------------------------------------------------------------------

    def _at(self, when: float, what: str, number: int, turn: int = 0) -> None:
        self._order += 1
        heapq.heappush(self._events, (when, self._order, what, number, turn))

    def _arrive(self, when: float, request: Request) -> None:
        self._ids += 1
        # the limit bounds how long it takes
        left_s = self.chance.uniform(5, request.limit_s or 1200.0)
        self.waiting_later[self._ids] = Task(self._ids, request, left_s)
        self.unstarted.add(self._ids)
        self._at(when, "arrives", self._ids)

    def run(self) -> None:
        """Until all is done; AssertionError where a rule is broken or somebody waits for ever."""
        while self._events:
            self.now = self._events[0][0]
            while self._events and self._events[0][0] <= self.now:
                _, _, what, number, turn = heapq.heappop(self._events)
                getattr(self, f"_{what}")(number, turn)
            self._pass()
            assert self.passes < 5_000, "preemptions its jobs to and fro"
            if self._stream_until and not self.unstarted:
                self._stream_until = 0.0
        assert not self.waiting, f"for ever waiting: {self.last}"
        assert not self.unstarted

    def _arrives(self, number: int, _: int) -> None:
        task = self.waiting_later.pop(number)
        task.queued_at = self.now
        self.waiting[number] = task

    def _stream(self, _: int, __: int) -> None:
        """High priority without end, for as long as it takes everybody to grow as important."""
        if self._stream_until == 0.0:
            return
        assert self.now < self._stream_until, f"starved by a stream of high priority: {sorted(self.unstarted)}"
        while sum(task.request.owner == "stream" for task in self.waiting.values()) < 3:
            self._ids += 1
            self.waiting_later[self._ids] = Task(self._ids, Request(owner="stream", rank=1), 300.0)
            self._arrives(self._ids, 0)
        self._at(self.now + 60.0, "stream", 0)

    def _ends(self, number: int, turn: int) -> None:
        task = self.running.get(number)
        if task is not None and task.turn == turn:
            self._let_go(task)

    def _gone(self, number: int, turn: int) -> None:
        """Pushed aside: it goes on later where it was."""
        task = self.running.get(number)
        if task is not None and task.turn == turn:
            assert task.began_at is not None
            task.left_s = max(1.0, task.left_s - (self.now - task.began_at))
            self._let_go(task)
            task.stopping, task.began_at, task.gpus, task.queued_at = False, None, (), self.now
            self.waiting[number] = task

    def _let_go(self, task: Task) -> None:
        del self.running[task.id]
        self.cpu_held.pop(task.id, None)
        for card in self.cards:
            card.held.pop(task.id, None)
        assert task.began_at is not None
        owner = task.request.owner
        self.use[owner] = self.use.get(owner, 0.0) + (self.now - task.began_at) * len(task.gpus)

    def _lost(self, index: int, _: int) -> None:
        self.cards[index].well = False

    def _well(self, index: int, _: int) -> None:
        self.cards[index].well = True

    def _look(self, _: int, __: int) -> None:
        """A GPU's newest job has come to rest."""

    # -- a pass of the scheduler -------------------------------------------------------------------

    def _pass(self) -> None:
        if not self.waiting:
            return
        self.passes += 1
        queued = [
            Waiting(task.id, task.request, task.id, task.waited_s + self.now - task.queued_at)
            for task in self.waiting.values()
        ]
        running = [self._as_running(task) for task in self.running.values()]
        rooms = [card.room(self.now) for card in self.cards]
        cpu_slots = [CpuSlot(slot) for slot in range(self.cpu_slots) if slot not in self.cpu_held.values()]
        limits = BoxLimits(
            **{name: getattr(self.limits, name) for name in BoxLimits.__slots__ if name != "use"}, use=self._used()
        )
        plan = choose(queued, rooms, cpu_slots, running, limits)
        brief = choose(queued, rooms, cpu_slots, running, limits, explain=False)
        same = (brief.starts, brief.preemptions) == (plan.starts, plan.preemptions)
        assert same, "without reasons, it would choose otherwise"
        self.last = plan.waiting
        check(Pass(queued, rooms, cpu_slots, running, limits), plan)
        for preemption in plan.preemptions:
            pair = preemption.job_id, preemption.for_id
            self.preemptions[pair] = self.preemptions.get(pair, 0) + 1
            assert self.preemptions[pair] <= MOST_PREEMPTIONS, f"preempted to and fro: {pair}"
            task = self.running[preemption.job_id]
            task.stopping = True
            self._at(self.now + self.chance.uniform(0, GRACE_S), "gone", task.id, task.turn)
        for start in plan.starts:
            self._begin(self.waiting.pop(start.job_id), start.slots, start.memory_mib)

    def _as_running(self, task: Task) -> Running:
        assert task.began_at is not None
        limit_s = task.request.limit_s
        ran_s = self.now - task.began_at
        ends_in_s = None if limit_s is None else max(0.0, limit_s - ran_s)
        return Running(task.id, task.request, task.gpus, ends_in_s, task.waited_s, task.stopping, ran_s=ran_s)

    def _used(self) -> dict[str, float]:
        used = dict(self.use)
        for task in self.running.values():
            assert task.began_at is not None
            gpu_s = (self.now - task.began_at) * len(task.gpus)
            used[task.request.owner] = used.get(task.request.owner, 0.0) + gpu_s
        return used

    def _begin(self, task: Task, slots: tuple[tuple[str, int], ...], memory_mib: int | None) -> None:
        task.waited_s += self.now - task.queued_at
        task.began_at, task.turn = self.now, task.turn + 1
        task.gpus = tuple(uuid for uuid, _ in slots if uuid)
        self.running[task.id] = task
        self.unstarted.discard(task.id)
        for uuid, slot in slots:
            if not uuid:
                self.cpu_held[task.id] = slot
                continue
            card = next(card for card in self.cards if card.uuid == uuid)
            card.held[task.id] = slot, memory_mib
            card.settles_at = self.now + SETTLE_S
        self._at(self.now + task.left_s, "ends", task.id, task.turn)
        if self.cards[0].slots > 1:
            self._at(self.now + SETTLE_S, "look", 0)
