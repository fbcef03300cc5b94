"""The scheduler with its index gives the same plan as the plain one that looks at every GPU for every job.

GPUs are of one to five nodes, and no job gets GPUs of two.
"""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.schedule.choice import Running, Waiting, choose
from runner.schedule.request import Request
from runner.schedule.room import BoxLimits, CpuSlot, Room
from tests import schedule_oracle

NAMES = (None, "NVIDIA RTX A5000", "NVIDIA A50", "Tesla T4")
MEMORY_MIB = (None, 0, 4_000, 8_000, 12_000, 24_000)


class Scene:
    """Jobs and GPUs. Values are drawn evenly: hypothesis prefers small ones, and then little meets."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.slots, self.size = chance.choice((1, 1, 2, 3)), chance.randint(1, 12)
        self.nodes = [None] if chance.random() < 0.4 else ["far", "hub", "lab", "pod", "zoo"][: chance.randint(2, 5)]
        self.numbers = range(self.slots + (chance.random() < 0.1))  # now and then more are free than there should be
        self.rooms = self._rooms()
        plain = chance.random() < 0.5  # then only some of the jobs ask for something special
        self.kinds = [self._request(0.1 if plain else 0.4) for _ in range(chance.randint(1, 6))]
        self.running = self._running()
        self.queued = [
            Waiting(number, chance.choice(self.kinds), chance.randint(0, 9), chance.choice((0.0, 0.0, 120.0)))
            for number in range(chance.randint(1, 30))
        ]
        self.cpu_slots = [CpuSlot(n, node) for node in self.nodes for n in range(chance.randint(0, 3))]
        chance.shuffle(self.cpu_slots)
        self.limits = self._limits() if chance.random() < 0.4 else BoxLimits()

    def _rooms(self) -> list[Room]:
        chance = self.chance
        names, sizes_mib = chance.sample(NAMES, chance.randint(1, 3)), chance.sample(MEMORY_MIB, chance.randint(1, 4))
        free, trouble = chance.choice((0.1, 0.5, 0.9, 1.0)), chance.choice((0.0, 0.0, 0.2))
        indices = list(range(self.size)) if chance.random() < 0.8 else chance.choices(range(self.size), k=self.size)
        chance.shuffle(indices)
        rooms = []
        for place, index in enumerate(indices):
            why_not = chance.choice(("is lost", "Settles.")) if chance.random() < trouble else None
            rooms.append(
                Room(
                    index=index, uuid=uuid_of(place), node=chance.choice(self.nodes), slots=self.slots,
                    free_slots=tuple(slot for slot in self.numbers if chance.random() < free),
                    name=chance.choice(names), memory_mib=chance.choice(sizes_mib), share_mib=chance.choice(sizes_mib),
                    why_not=why_not, sick=why_not is not None and chance.random() < 0.5,
                )
            )  # fmt: skip
        return rooms

    def _request(self, special: float) -> Request:
        def now_and_then(value, otherwise=None):
            return value if chance.random() < special else otherwise

        chance, size = self.chance, self.size
        names = [*(room.label for room in self.rooms), *map(uuid_of, range(size)), "GPU-a", "GPU", "0", "99"]
        return Request(
            owner=chance.choice(("ada", "bo", "cy")),
            gpus=chance.choice((0, 1, 1, 1, 1, 1, 2, 2, 3, size // 2 or 1, size)),
            on=now_and_then(tuple(chance.sample(names, chance.randint(1, 4))), ()),
            node=now_and_then(chance.choice([*self.nodes, "moon"])),
            gpu_type=now_and_then(chance.choice(("a50", "a50", "t4", "h100"))),
            gpu_mem_mib=now_and_then(chance.choice(MEMORY_MIB)),
            cpus=now_and_then(chance.randint(1, 5), 0),
            ram_mib=now_and_then(2_000, 0),
            rank=chance.choice((-1, 0, 0, 1)),
            preemptible=chance.random() < 0.3,
            limit_s=chance.choice((None, None, 60.0, 600.0)),
            group=now_and_then("night"),
        )

    def _running(self) -> list[Running]:
        chance, jobs = self.chance, []
        for node in self.nodes:
            rooms = [room for room in self.rooms if room.node == node]
            self._hold([room.uuid for room in rooms for _ in range(room.slots - len(room.free_slots))], jobs)
        chance.shuffle(jobs)
        return jobs

    def _hold(self, held: list[str], jobs: list[Running]) -> None:
        chance = self.chance
        while held:
            gpus = tuple(dict.fromkeys(held.pop() for _ in range(min(len(held), chance.randint(1, 4)))))
            ends_in_s, ran_s = chance.choice((None, 30.0, 300.0, 900.0)), chance.choice((0.0, 9.0, 99.0))
            request, stopping = chance.choice(self.kinds), chance.random() < 0.1
            waited_s = chance.choice((0.0, 0.0, 90.0))
            jobs.append(Running(1_000 + len(jobs), request, gpus, ends_in_s, waited_s, stopping, ran_s=ran_s))

    def _limits(self) -> BoxLimits:
        chance = self.chance
        gpus_each, gpus_each_low = (chance.choice((None, chance.randint(1, 12))) for _ in range(2))
        return BoxLimits(
            cpus=chance.choice((None, 4, 12)), ram_mib=chance.choice((None, 3_000, 9_000)), gpus_each=gpus_each,
            gpus_each_low=gpus_each_low, groups=chance.choice(({}, {"night": 1}, {"night": 3})),
            use=chance.choice(({}, {"ada": 900.0})), age_s=chance.choice((0.0, 60.0, 86_400.0)),
        )  # fmt: skip


def uuid_of(place):
    return f"GPU-{'ab'[place % 2]}{place}"


@pytest.mark.parametrize("explain", [True, False])
@settings(deadline=None, max_examples=1_000)
@given(seed=st.integers(0, 2**64))
def test_the_plan_is_the_same(explain, seed):
    scene = Scene(Random(seed))
    parts = scene.queued, scene.rooms, scene.cpu_slots, scene.running, scene.limits
    plan, expected = (one(*parts, explain=explain) for one in (choose, schedule_oracle.choose))
    assert plan.starts == expected.starts
    assert plan.preemptions == expected.preemptions
    assert list(plan.waiting) == list(expected.waiting)
    assert plan.waiting == expected.waiting or not explain
    keeps_to_nodes(scene, plan)


def keeps_to_nodes(scene, plan):
    """Each job stays on one node, and on the one it asked for. No node starts more than it has CPU slots for."""
    nodes = {room.uuid: room.node for room in scene.rooms}
    asked = {job.id: job.request for job in scene.queued}
    cpu_starts = [(start.slots[0][1], start.node) for start in plan.starts if not asked[start.job_id].gpus]
    assert not Counter(cpu_starts) - Counter(scene.cpu_slots)
    for start in plan.starts:
        request = asked[start.job_id]
        assert request.node in (None, start.node)
        if request.gpus:
            assert {nodes[uuid] for uuid, _ in start.slots} == {start.node}
