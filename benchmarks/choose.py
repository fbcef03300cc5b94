"""The choice of what starts where, on 8 … 8,000 GPUs: it should grow with what changed, and never with its square.

`python -m benchmarks.choose` prints the curve. No database and no processes: only what `choose` costs the processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from runner.schedule.choice import Plan, Running, Waiting, choose
from runner.schedule.request import Request
from runner.schedule.room import Room

GPUS_PER_NODE = 8
SIZES = (8, 80, 800, 8_000)
ROUNDS, OWNERS = 5, ("ada", "bo", "cy")
MOST_GROWTH = 20  # for ten times the GPUs; n log n is 13 from 800 to 8,000, and a square is 100


def main(sizes: tuple[int, ...] = SIZES) -> None:
    found = {size: {name: _ms(act) for name, act in scenes(size).items()} for size in sizes}
    names = list(found[sizes[0]])
    print("\nChoosing what starts where, median ms of the processor, by GPUs (and the growth from the line above)")
    print(f"  {'GPUs':>6} " + " ".join(f"{name:>28}" for name in names))
    before: dict[str, float] | None = None
    for size, times in found.items():
        growth = {name: f"{times[name] / before[name]:6.1f}×" if before else " " * 7 for name in names}
        print(f"  {size:>6,} " + " ".join(f"{times[name]:>20.2f} {growth[name]}" for name in names))
        before = times
    worst = max(found[sizes[-1]][name] / found[sizes[-2]][name] for name in names)
    verdict = "yes" if worst <= MOST_GROWTH else "NO"
    print(f"  last step: at most {worst:.1f}× for ten times the GPUs (required ≤ {MOST_GROWTH}: {verdict})")
    print("  bound by: one look at each GPU and each running job, then the jobs that start")


def scenes(size: int) -> dict[str, Callable[[], Plan]]:
    """Return what can happen on a box of so many GPUs, ready to be measured."""
    free, busy = [_room(index, (0,)) for index in range(size)], [_room(index, ()) for index in range(size)]
    running = [Running(10 * size + index, Request(), (_uuid(index),), 3600.0) for index in range(size)]
    queued = [Waiting(n, Request(owner=OWNERS[n % len(OWNERS)], limit_s=600.0), n) for n in range(1, size + 2)]
    wide = Waiting(0, Request(gpus=size, rank=1))
    one, half = size - 1, size // 2
    nodes = [replace(room, node=f"node{room.index // GPUS_PER_NODE}") for room in free]
    threes = [Waiting(job.id, replace(job.request, gpus=3), job.position) for job in queued]
    return {
        "one GPU frees": lambda: choose(queued[:20], busy[:one] + free[one:], (), running[:one], explain=False),
        "all free at once": lambda: choose(queued, free, (), explain=False),
        "a wide job in front": lambda: choose([wide], busy[:half] + free[half:], (), running[:half], explain=False),
        "... and short ones behind": lambda: choose(
            [wide, *queued], busy[:half] + free[half:], (), running[:half], explain=False
        ),
        "all free on nodes of 8": lambda: choose(queued, nodes, (), explain=False),
        "... for 3-GPU jobs": lambda: choose(threes[: size // 4], nodes, (), explain=False),
    }


def _room(index: int, slots: tuple[int, ...]) -> Room:
    uuid, mib = _uuid(index), 24_000
    return Room(index=index, uuid=uuid, free_slots=slots, slots=1, name="A5000", memory_mib=mib, share_mib=mib)


def _uuid(index: int) -> str:
    return f"GPU-{index}"


def _ms(act: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        act()
        times.append(1e3 * (time.process_time() - began))
    return median(times)


if __name__ == "__main__":
    main()
