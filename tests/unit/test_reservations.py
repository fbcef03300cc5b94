"""What a job that waits keeps from those behind it, and what it does not; who is preempted for it."""

from runner.schedule.choice import Preemption, Running, Start, Waiting, choose
from runner.schedule.request import Request
from runner.schedule.room import BoxLimits, Room

LOW = {"rank": -1, "preemptible": True}


def wants(number, **request):
    return Waiting(number, Request(**request), number)


def runs(number, *gpus, ends_in_s=None, **request):
    return Running(number, Request(gpus=len(gpus), **request), tuple(f"GPU-{index}" for index in gpus), ends_in_s)


def gpu(index, free=(0,), slots=1, **more):
    return Room(index=index, uuid=f"GPU-{index}", free_slots=tuple(free), slots=slots, **more)


def started(plan):
    return {start.job_id: tuple(uuid for uuid, _ in start.slots) for start in plan.starts}


def test_a_gpu_too_small_for_it_is_not_kept():
    rooms = [gpu(0, memory_mib=15_000, share_mib=15_000), gpu(1, free=(), memory_mib=0, share_mib=48_000)]
    plan = choose([wants(1, gpu_mem_mib=40_000), wants(2)], rooms, [], [runs(9, 1)])
    assert started(plan) == {2: ("GPU-0",)}


def test_nobody_is_preempted_on_a_gpu_too_small_for_it():
    rooms = [gpu(0, free=(), memory_mib=0, share_mib=15_000), gpu(1, free=(), memory_mib=0, share_mib=48_000)]
    plan = choose([wants(1, gpu_mem_mib=40_000)], rooms, [], [runs(8, 0, **LOW), runs(9, 1)])
    assert plan.preemptions == []


def test_all_that_share_a_gpu_are_preempted_where_one_would_not_do():
    rooms = [gpu(0, free=(2,), slots=3, memory_mib=4_000, share_mib=8_000)]
    fillers = [runs(7, 0, gpu_mem_mib=10_000, **LOW), runs(8, 0, gpu_mem_mib=10_000, **LOW)]
    assert len(choose([wants(1, gpu_mem_mib=14_000)], rooms, [], fillers).preemptions) == 1
    assert len(choose([wants(1, gpu_mem_mib=20_000)], rooms, [], fillers).preemptions) == 2
    beside = [fillers[0], runs(8, 0, gpu_mem_mib=10_000)]
    assert choose([wants(1, gpu_mem_mib=20_000)], rooms, [], beside).preemptions == []


def test_what_comes_free_by_a_preemption_is_not_filled_again_meanwhile():
    rooms = [gpu(0), gpu(1, free=())]
    plan = choose([wants(1, gpus=2), wants(2, **LOW)], rooms, [], [runs(9, 1, **LOW)])
    assert plan.preemptions == [Preemption(9, 1)]
    assert started(plan) == {}


def test_nobody_is_preempted_for_one_who_is_not_next():
    rooms = [gpu(0, free=()), gpu(1, free=())]
    plan = choose([wants(1, gpus=2), wants(2)], rooms, [], [runs(8, 0), runs(9, 1, **LOW)])
    assert plan.preemptions == []


def test_a_gpu_at_rest_in_a_moment_is_as_good_as_free():
    settling = gpu(1, free=(1,), slots=2, why_not="settles")
    busy, short = [runs(9, 1, ends_in_s=3600.0)], wants(2, limit_s=3000.0)
    plan = choose([wants(1, gpus=2), short, wants(3, **LOW)], [gpu(0, free=(0, 1), slots=2), settling], [], busy)
    assert started(plan) == {}


def test_where_memory_comes_back_first_it_is_kept():
    shared = {"free": (1,), "slots": 2, "memory_mib": 8_000, "share_mib": 12_000}
    busy = [runs(8, 0, gpu_mem_mib=16_000), runs(9, 1, gpu_mem_mib=16_000, ends_in_s=60.0)]
    plan = choose(
        [wants(1, gpu_mem_mib=20_000), wants(2, gpu_mem_mib=4_000)], [gpu(0, **shared), gpu(1, **shared)], [], busy
    )
    assert started(plan) == {2: ("GPU-0",)}


def test_each_gpu_promises_its_own_share():
    rooms = [gpu(0, (0, 1), 2, memory_mib=24_000, share_mib=12_000), gpu(1, (1,), 2, memory_mib=8_000, share_mib=8_000)]
    plan = choose([wants(1, gpus=2)], rooms, [], [runs(9, 1)])
    assert plan.starts == [Start(1, (("GPU-0", 0), ("GPU-1", 1)), None)]


def test_the_reason_names_nobody_who_is_not_in_the_way():
    plan = choose([wants(1, gpus=3), wants(2, gpus=2, **LOW)], [gpu(0), gpu(1, ()), gpu(2, ())], [], [runs(9, 1, 2)])
    assert plan.waiting[2] == "needs 2 GPUs, 1 free"


def test_an_unkept_gpu_is_filled_before_a_kept_one():
    rooms = [gpu(0, name="A"), gpu(1, (), name="A"), gpu(2, name="B")]
    plan = choose([wants(1, gpus=2, gpu_type="a"), wants(2, **LOW)], rooms, [], [runs(9, 1)])
    assert started(plan) == {2: ("GPU-2",)}


# -- what is counted over the whole box ----------------------------------------------------------------------------


def test_who_waits_for_a_gpu_keeps_the_cores_it_will_need():
    rooms, busy = [gpu(0, name="A", free=()), gpu(1, name="B")], [runs(9, 0, ends_in_s=60.0)]
    big = wants(1, gpu_type="a", cpus=6)
    plan = choose([big, wants(2, cpus=4), wants(3)], rooms, [], busy, BoxLimits(cpus=8))
    assert started(plan) == {3: ("GPU-1",)}
    assert plan.waiting[2] == "behind #1, for which CPU cores or memory are reserved"
    assert started(choose([big, wants(2, cpus=2)], rooms, [], busy, BoxLimits(cpus=8))) == {2: ("GPU-1",)}


def test_ones_small_jobs_do_not_pass_ones_large_one_for_ever():
    rooms, busy = [gpu(n) for n in range(1, 5)], [runs(9, 0, owner="ada")]
    jobs = [wants(1, owner="ada", gpus=2), wants(2, owner="ada"), wants(3, owner="bo")]
    plan = choose(jobs, rooms, [], busy, BoxLimits(gpus_each=2))
    assert started(plan) == {3: ("GPU-1",)}
    assert plan.waiting == {
        1: "ada has 1 of at most 2 GPUs at once",
        2: "behind #1, for which ada's share is reserved",
    }
    # one that can never start, as after the setting was lowered, holds nobody back
    assert 2 in started(
        choose([wants(1, owner="ada", gpus=3), wants(2, owner="ada")], rooms, [], busy, BoxLimits(gpus_each=2))
    )


def test_who_waits_for_a_gpu_keeps_its_place_in_its_group():
    rooms, busy = [gpu(0, name="A", free=()), gpu(1, name="B")], [runs(9, 0)]
    plan = choose([wants(1, gpu_type="a", group="g"), wants(2, group="g")], rooms, [], busy, BoxLimits(groups={"g": 1}))
    assert started(plan) == {}
    assert plan.waiting[2] == "behind #1, for which a place in g is reserved"
