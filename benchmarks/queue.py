"""A pass of the scheduler with 100 … 100,000 jobs queued: it should grow with what changed, not with the queue.

`python -m benchmarks.queue` prints the curve. No GPUs and no processes: only what the database and the choice cost.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from random import Random
from statistics import median

from runner import clock
from runner.model import Exit, Job, JobSpec, Priority, Reason, State
from runner.schedule.choice import Plan, choose
from runner.schedule.room import Room, free_cpu_slots
from runner.store.box import box_limits
from runner.store.connection import Store, open_store
from runner.store.jobs import Jobs
from runner.store.scheduling_queries import CPU, Lease, Line

SIZES = (100, 1_000, 10_000, 100_000)
GPUS, CPU_SLOTS, ROUNDS = 8, 4, 60
OWNERS = ("ada", "bo", "cy", "di", "eve")
PRIORITIES = tuple(Priority)
FLAT = 1.5


class QueueOf:
    """A queue of so many jobs of several people, a fifth of them after others, on a box of eight GPUs."""

    def __init__(self, store: Store, size: int) -> None:
        self.store, self.jobs, self.line = store, Jobs(store), Line(store)
        chance = Random(size)
        with store.transaction():
            for number in range(size):
                self.jobs.add(_spec(chance, number))

    def decide(self) -> Plan:
        """What a tick of the runner asks before it starts anything."""
        self.line.let_begin()
        queued = self.line.waiting(per_lane=GPUS + CPU_SLOTS)
        leases = self.line.leases()
        cpu_slots = free_cpu_slots({None: CPU_SLOTS}, [lease.cpu_slot for lease in leases if lease.is_cpu])
        return choose(queued, _rooms(leases), cpu_slots, self.line.running(), box_limits(self.store))

    def begin(self, plan: Plan) -> list[Job]:
        """Claim what is to start."""
        begun = []
        for start in plan.starts:
            slots = [(uuid or CPU, slot) for uuid, slot in start.slots]
            assert self.jobs.claim(start.job_id, slots, "boot", None, start.memory_mib) is not None
            job = self.jobs.get(start.job_id)
            assert job is not None
            begun.append(job)
        return begun

    def run(self, job: Job) -> None:
        self.jobs.started(job, clock.text(clock.now()))

    def end(self, job_id: int) -> None:
        """It has succeeded: those that waited for it may start."""
        job = self.jobs.get(job_id)
        assert job is not None
        at = clock.text(clock.now())
        self.jobs.ended(
            job, State.SUCCEEDED, Reason.EXIT, Exit(exit_code=0, started_at=at, finished_at=at, duration_s=1)
        )


def _spec(chance: Random, number: int) -> JobSpec:
    """Its neighbours are of many lanes, and one in five waits for up to three before it."""
    earlier = range(max(1, number - 500), number + 1)
    after = tuple(chance.sample(earlier, min(3, len(earlier)))) if chance.random() < 0.2 and number else ()
    return JobSpec(
        command="true", owner=chance.choice(OWNERS), dir="/", environment="none",
        priority=chance.choice(PRIORITIES), gpus=chance.choice((0, 1, 1, 1, 2, 4)),
        after_ok=after[:1], after=after[1:],
    )  # fmt: skip


def _rooms(leases: list[Lease]) -> list[Room]:
    taken = {lease.resource for lease in leases}
    names = [f"GPU-{index}" for index in range(GPUS)]
    return [
        Room(
            index=index,
            uuid=name,
            slots=1,
            free_slots=() if name in taken else (0,),
            memory_mib=24_000,
            share_mib=24_000,
        )
        for index, name in enumerate(names)
    ]


def measured(size: int, rounds: int = ROUNDS) -> dict[str, float]:
    """Median milliseconds of each part of a pass."""
    times: dict[str, list[float]] = {"decide": [], "claim one": [], "end one, release": []}
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"{folder}/home")
        queue = QueueOf(store, size)
        with store.transaction():
            live = [job.id for job in queue.begin(queue.decide())]
            for job_id in live:
                queue.run(_found(queue, job_id))
        for _ in range(rounds):
            ended = live.pop(0)
            times["end one, release"].append(_timed(lambda ended=ended: queue.end(ended), store))
            plans: list[Plan] = []
            times["decide"].append(_timed(lambda plans=plans: plans.append(queue.decide()), store))
            begun: list[Job] = []
            took = _timed(lambda begun=begun, plans=plans: begun.extend(queue.begin(plans[0])), store)
            if begun:
                times["claim one"].append(took / len(begun))
            for job in begun:
                queue.run(job)
            live += [job.id for job in begun]
            if not live:
                break
        store.close()
    return {name: 1e3 * median(values) for name, values in times.items()}


def _found(queue: QueueOf, job_id: int) -> Job:
    job = queue.jobs.get(job_id)
    assert job is not None
    return job


def _timed(act: Callable[[], None], store: Store) -> float:
    """Of the processor, and without the commit, which costs the same whatever was asked."""
    with store.transaction():
        began = time.process_time()
        act()
        return time.process_time() - began


def main(sizes: tuple[int, ...] = SIZES) -> None:
    found = {size: measured(size) for size in sizes}
    parts = list(found[sizes[0]])
    print(
        "\nA pass of the scheduler, median ms of the processor, by jobs queued (5 people, 3 priorities, dependencies)"
    )
    print(f"  {'queued':>8} " + " ".join(f"{name:>18}" for name in parts))
    for size, times in found.items():
        print(f"  {size:>8,} " + " ".join(f"{times[name]:>18.3f}" for name in parts))
    whole = {size: sum(times.values()) for size, times in found.items()}
    ratio = whole[sizes[-1]] / whole[sizes[1]]
    verdict = "flat" if ratio <= FLAT else "NOT flat"
    print(f"  all of it, {sizes[-1]:,} against {sizes[1]:,}: {ratio:.2f}× (required ≤ {FLAT}: {verdict})")
    print("  bound by: the lanes (what is asked for, by whom), of which it looks at the first few jobs each")


if __name__ == "__main__":
    main()
