from typing import NamedTuple

import pytest

from runner.schedule import Room, Start, choose, free_slots, never_fits


class Wants(NamedTuple):
    id: int
    gpus: int = 1
    on: tuple[str, ...] = ()


def gpu(index, free=(0,), slots=1, why_not=None):
    return Room(index=index, uuid=f"GPU-{index}", free_slots=tuple(free), slots=slots, why_not=why_not)


def started(plan):
    return {start.job_id: tuple(uuid for uuid, _ in start.slots) for start in plan.starts}


def test_first_come_first_served_on_the_lowest_free_gpu():
    plan = choose([Wants(1), Wants(2), Wants(3)], [gpu(0), gpu(1)], [])
    assert started(plan) == {1: ("GPU-0",), 2: ("GPU-1",)}
    assert plan.waiting == {3: "needs 1 GPU, 0 free"}


def test_a_job_that_waits_is_not_overtaken_on_gpus_it_could_use():
    plan = choose([Wants(1, gpus=2), Wants(2)], [gpu(0), gpu(1, free=())], [])
    assert started(plan) == {}
    assert plan.waiting[1] == "needs 2 GPUs, 1 free"
    assert plan.waiting[2] == "behind #1, which waits for the same GPUs"


def test_a_job_pinned_to_a_busy_gpu_holds_nobody_else_back():
    plan = choose([Wants(1, on=("0",)), Wants(2)], [gpu(0, free=()), gpu(1)], [])
    assert started(plan) == {2: ("GPU-1",)}


def test_gpus_by_index_and_by_uuid_prefix():
    plan = choose([Wants(1, on=("1",)), Wants(2, on=("GPU-0",))], [gpu(0), gpu(1)], [])
    assert started(plan) == {1: ("GPU-1",), 2: ("GPU-0",)}


def test_jobs_without_gpus_have_slots_of_their_own():
    plan = choose([Wants(1, gpus=0), Wants(2, gpus=2), Wants(3, gpus=0), Wants(4, gpus=0)], [gpu(0)], [3, 5])
    assert plan.starts == [Start(1, (("", 3),)), Start(3, (("", 5),))]
    assert plan.waiting[4] == "waits for a CPU slot"


def test_slots_are_filled_evenly():
    rooms = [gpu(0, free=(0, 1), slots=2), gpu(1, free=(0, 1), slots=2)]
    plan = choose([Wants(n) for n in range(1, 6)], rooms, [])
    assert [start.slots for start in plan.starts] == [
        (("GPU-0", 0),), (("GPU-1", 0),), (("GPU-0", 1),), (("GPU-1", 1),)
    ]  # fmt: skip


def test_a_gpu_with_trouble_is_not_used_and_the_trouble_is_told():
    plan = choose([Wants(1), Wants(2)], [gpu(0, why_not="is lost"), gpu(1)], [])
    assert started(plan) == {1: ("GPU-1",)}
    assert plan.waiting[2] == "needs 1 GPU, 0 free; GPU 0 is lost"


def test_a_job_that_waits_for_a_sick_gpu_does_not_hold_the_healthy_one():
    lost = Room(index=0, uuid="GPU-0", free_slots=(0,), slots=1, why_not="is lost", sick=True)
    plan = choose([Wants(1, gpus=2), Wants(2)], [lost, gpu(1)], [])
    assert started(plan) == {2: ("GPU-1",)}
    assert plan.waiting[1] == "needs 2 GPUs, 1 free; GPU 0 is lost"


def test_no_slot_is_free_while_more_are_taken_than_there_are():
    assert free_slots(2, ()) == (0, 1)
    assert free_slots(2, (1,)) == (0,)
    assert free_slots(1, (1,)) == ()  # as after the setting was lowered from 2
    assert free_slots(2, (0, 3)) == ()


@pytest.mark.parametrize(
    ("gpus", "on", "said"),
    [
        (3, (), "wants 3 GPUs; this box has 2 GPUs"),
        (1, ("7",), "no GPU 7"),
        (2, ("0",), "at most 1"),
    ],
)
def test_what_can_never_fit(gpus, on, said):
    assert said in never_fits(gpus, on, [gpu(0), gpu(1)], cpu_slots=2)


def test_what_fits_now_or_later():
    assert never_fits(2, (), [gpu(0, free=()), gpu(1)], cpu_slots=2) is None
    assert never_fits(0, (), [], cpu_slots=1) is None
    assert "CPU_SLOTS" in never_fits(0, (), [gpu(0)], cpu_slots=0)
