"""The scheduler with its index gives the same plan as the plain one that looks at every GPU for every job."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.schedule.choice import Running, Waiting, choose
from runner.schedule.request import Request
from runner.schedule.room import BoxLimits, Room
from tests import schedule_oracle

NAMES = (None, "NVIDIA RTX A5000", "NVIDIA A50", "Tesla T4")
MEMORY_MIB = (None, 0, 4_000, 8_000, 12_000, 24_000)


class Scene:
    """Jobs and GPUs. Values are drawn evenly: hypothesis prefers small ones, and then little meets."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.slots, self.size = chance.choice((1, 1, 2, 3)), chance.randint(1, 12)
        self.numbers = range(self.slots + (chance.random() < 0.1))  # now and then more are free than there should be
        self.rooms = self._rooms()
        plain = chance.random() < 0.5  # then only some of the jobs ask for something special
        self.kinds = [self._request(0.1 if plain else 0.4) for _ in range(chance.randint(1, 6))]
        self.running = self._running()
        self.queued = [
            Waiting(number, chance.choice(self.kinds), chance.randint(0, 9), chance.choice((0.0, 0.0, 120.0)))
            for number in range(chance.randint(1, 30))
        ]
        self.cpu_slots = range(chance.randint(0, 3))
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
                    index=index, uuid=uuid_of(place), slots=self.slots, name=chance.choice(names),
                    free_slots=tuple(slot for slot in self.numbers if chance.random() < free),
                    memory_mib=chance.choice(sizes_mib), share_mib=chance.choice(sizes_mib), why_not=why_not,
                    sick=why_not is not None and chance.random() < 0.5,
                )
            )  # fmt: skip
        return rooms

    def _request(self, special: float) -> Request:
        def now_and_then(value, otherwise=None):
            return value if chance.random() < special else otherwise

        chance, size = self.chance, self.size
        names = [*map(str, range(size)), *map(uuid_of, range(size)), "GPU-a", "GPU", "99"]
        return Request(
            owner=chance.choice(("ada", "bo", "cy")),
            gpus=chance.choice((0, 1, 1, 1, 1, 1, 2, 2, 3, size // 2 or 1, size)),
            on=now_and_then(tuple(chance.sample(names, chance.randint(1, 4))), ()),
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
        held = [room.uuid for room in self.rooms for _ in range(room.slots - len(room.free_slots))]
        while held:
            gpus = tuple(dict.fromkeys(held.pop() for _ in range(min(len(held), chance.randint(1, 4)))))
            ends_in_s, ran_s = chance.choice((None, 30.0, 300.0, 900.0)), chance.choice((0.0, 9.0, 99.0))
            request, stopping = chance.choice(self.kinds), chance.random() < 0.1
            waited_s = chance.choice((0.0, 0.0, 90.0))
            jobs.append(Running(1_000 + len(jobs), request, gpus, ends_in_s, waited_s, stopping, ran_s=ran_s))
        chance.shuffle(jobs)
        return jobs

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
    assert list(plan.waiting.items()) == list(expected.waiting.items())
