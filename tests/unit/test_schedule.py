import pytest

from runner.schedule.choice import Preemption, Running, Start, Waiting, choose
from runner.schedule.feasibility import never_fits
from runner.schedule.order import start_order
from runner.schedule.request import Request, lane_of, request_in
from runner.schedule.room import DAY_S, BoxLimits, CpuSlot, Room, free_slots

RANKS = {"low": -1, "normal": 0, "high": 1}


def wants(number, *, waited_s=0.0, position=None, priority="normal", **request):
    asked = Request(rank=RANKS[priority], **request)
    return Waiting(number, asked, number if position is None else position, waited_s)


def runs(number, *gpus, ends_in_s=None, waited_s=0.0, ran_s=0.0, stopping=False, priority="normal", **request):
    asked = Request(rank=RANKS[priority], gpus=len(gpus), **request)
    return Running(number, asked, tuple(f"GPU-{index}" for index in gpus), ends_in_s, waited_s, stopping, ran_s=ran_s)


def gpu(index, free=(0,), slots=1, why_not=None, **more):
    return Room(index=index, uuid=f"GPU-{index}", free_slots=tuple(free), slots=slots, why_not=why_not, **more)


def started(plan):
    return {start.job_id: tuple(uuid for uuid, _ in start.slots) for start in plan.starts}


def test_first_come_first_served_on_the_lowest_free_gpu():
    plan = choose([wants(1), wants(2), wants(3)], [gpu(0), gpu(1)], [])
    assert started(plan) == {1: ("GPU-0",), 2: ("GPU-1",)}
    assert plan.waiting == {3: "needs 1 GPU, 0 free"}


def test_a_job_that_waits_is_not_overtaken_on_gpus_it_could_use():
    plan = choose([wants(1, gpus=2), wants(2)], [gpu(0), gpu(1, free=())], [])
    assert started(plan) == {}
    assert plan.waiting[1] == "needs 2 GPUs, 1 free"
    assert plan.waiting[2] == "behind #1, which waits for the same GPUs"


def test_a_job_pinned_to_a_busy_gpu_holds_nobody_else_back():
    plan = choose([wants(1, on=("0",)), wants(2)], [gpu(0, free=()), gpu(1)], [])
    assert started(plan) == {2: ("GPU-1",)}


def test_gpus_by_index_and_by_uuid_prefix():
    plan = choose([wants(1, on=("1",)), wants(2, on=("GPU-0",))], [gpu(0), gpu(1)], [])
    assert started(plan) == {1: ("GPU-1",), 2: ("GPU-0",)}


def test_jobs_without_gpus_have_slots_of_their_own():
    jobs = [wants(1, gpus=0), wants(2, gpus=2), wants(3, gpus=0), wants(4, gpus=0)]
    plan = choose(jobs, [gpu(0)], [CpuSlot(3), CpuSlot(5)])
    assert plan.starts == [Start(1, (("", 3),)), Start(3, (("", 5),))]
    assert plan.waiting[4] == "waits for a CPU slot"


def test_slots_are_filled_evenly():
    rooms = [gpu(0, free=(1,), slots=2), gpu(1, free=(0, 1), slots=2)]
    plan = choose([wants(n) for n in range(1, 4)], rooms, [])
    assert [start.slots for start in plan.starts] == [(("GPU-1", 0),), (("GPU-0", 1),)]


def test_two_do_not_start_at_once_on_one_gpu():
    plan = choose([wants(1), wants(2)], [gpu(0, free=(0, 1), slots=2)], [])
    assert started(plan) == {1: ("GPU-0",)}
    assert plan.waiting[2] == "needs 1 GPU, 0 free; GPU 0 has #1 just starting on it"


def test_a_gpu_with_trouble_is_not_used_and_the_trouble_is_told():
    plan = choose([wants(1), wants(2)], [gpu(0, why_not="is lost"), gpu(1)], [])
    assert started(plan) == {1: ("GPU-1",)}
    assert plan.waiting[2] == "needs 1 GPU, 0 free; GPU 0 is lost"


def test_a_job_that_waits_for_a_sick_gpu_does_not_hold_the_healthy_one():
    lost = Room(index=0, uuid="GPU-0", free_slots=(0,), slots=1, why_not="is lost", sick=True)
    plan = choose([wants(1, gpus=2), wants(2)], [lost, gpu(1)], [])
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
    assert said in never_fits(Request(gpus=gpus, on=on), [gpu(0), gpu(1)], {None: 2}, BoxLimits())


def test_what_fits_now_or_later():
    assert never_fits(Request(gpus=2), [gpu(0, free=()), gpu(1)], {None: 2}, BoxLimits()) is None
    assert never_fits(Request(gpus=0), [], {None: 1}, BoxLimits()) is None
    assert "CPU_SLOTS" in never_fits(Request(gpus=0), [gpu(0)], {None: 0}, BoxLimits())


A5000, T4 = {"name": "NVIDIA RTX A5000", "memory_mib": 24_000}, {"name": "Tesla T4", "memory_mib": 15_000}


@pytest.mark.parametrize(
    ("request_", "limits", "said"),
    [
        (Request(gpu_type="1080ti"), BoxLimits(), "No GPU of this box is of type 1080ti (it has: NVIDIA RTX A5000, Te"),
        (Request(gpu_mem_mib=30_000), BoxLimits(), "the largest here has 23.4 GiB"),
        (Request(gpu_mem_mib=20_000, gpus=2), BoxLimits(), "wants 2 GPUs with 19.5 GiB"),
        (Request(gpu_type="t4", gpus=2), BoxLimits(), "Ask for at most 1"),
        (Request(cpus=64), BoxLimits(cpus=8), "wants 64 CPU cores; this box has 8"),
        (Request(ram_mib=1 << 20), BoxLimits(ram_mib=1 << 15), "this box has 32"),
        (
            Request(gpus=2),
            BoxLimits(gpus_each=1, gpus_each_low=8),
            "one person may have 1 GPU at once, and the job want",
        ),
        (Request(gpus=2), BoxLimits(gpus_each=1, gpus_each_low=8), "-p low"),
        (Request(gpus=2, rank=-1), BoxLimits(gpus_each=1, gpus_each_low=1), "may have 1 GPU at once"),
    ],
)
def test_what_can_never_be_given(request_, limits, said):
    assert said in never_fits(request_, [gpu(0, **A5000), gpu(1, **T4)], {None: 2}, limits)


def test_types_and_memory_that_are_there():
    rooms = [gpu(0, **A5000), gpu(1, **T4)]
    for asked in (Request(gpu_type="a5000"), Request(gpu_type="tesla-T4"), Request(gpu_mem_mib=24_000)):
        assert never_fits(asked, rooms, {None: 1}, BoxLimits()) is None
    assert never_fits(Request(gpus=8, rank=-1), [gpu(n) for n in range(8)], {None: 1}, BoxLimits(gpus_each=1)) is None
    assert "Ask for at most 2" in never_fits(Request(gpus=4), [gpu(0), gpu(1)], {None: 1}, BoxLimits(gpus_each=3))


def test_a_lane_says_what_is_asked_for():
    asked = Request(owner="ada", gpus=2, on=("0", "GPU-1"), gpu_mem_mib=9, rank=-1, preemptible=True, limit_s=60.0)
    assert request_in(lane_of(asked)) == asked
    assert lane_of(Request()) == "{}"


# -- which GPUs --------------------------------------------------------------------------------------


def test_a_job_has_the_type_it_asks_for():
    plan = choose([wants(1, gpu_type="T4"), wants(2, gpu_type="t4")], [gpu(0, **A5000), gpu(1, **T4)], [])
    assert started(plan) == {1: ("GPU-1",)}
    assert plan.waiting == {2: "needs 1 GPU of type t4, 0 free"}


def test_memory_is_promised_when_a_job_starts():
    shared = {"free": (1, 2, 3), "slots": 4, "share_mib": 6_000}
    rooms = [gpu(0, memory_mib=9_000, **shared), gpu(1, memory_mib=16_000, **shared)]
    queued = [wants(1, gpu_mem_mib=10_000), wants(2, gpu_mem_mib=10_000), wants(3)]
    plan = choose(queued, rooms, [], [runs(8, 0), runs(9, 1)])
    assert plan.starts == [Start(1, (("GPU-1", 1),), 10_000)]
    assert "GPU 0 has 8.8 GiB left" in plan.waiting[2]
    assert plan.waiting[3] == "behind #2, which waits for the same GPUs"


def test_unknown_memory_is_not_enough_memory():
    plan = choose([wants(1, gpu_mem_mib=1), wants(2)], [gpu(0)], [])
    assert "GPU 0 has an unknown amount of memory" in plan.waiting[1]
    assert started(plan) == {2: ("GPU-0",)}  # it might stay unknown for ever


def test_who_needs_much_memory_is_not_starved_by_those_who_need_little():
    rooms = [gpu(0, free=(1,), slots=2, memory_mib=8_000, share_mib=12_000)]
    plan = choose([wants(1, gpu_mem_mib=20_000), wants(2, gpu_mem_mib=4_000)], rooms, [], [runs(9, 0)])
    assert started(plan) == {}
    assert plan.waiting[2] == "behind #1, which waits for the same GPUs"


# -- order -------------------------------------------------------------------------------------------


def in_order(*jobs, **limits):
    return [job.id for job in start_order(jobs, BoxLimits(**limits))]


def test_priority_comes_first_and_then_the_place():
    jobs = wants(1, priority="low"), wants(2), wants(3, priority="high"), wants(4), wants(5, position=-1)
    assert in_order(*jobs) == [3, 5, 2, 4, 1]


def test_a_preemptible_job_goes_after_its_equals():
    assert in_order(wants(1, preemptible=True), wants(2), wants(3, priority="low")) == [2, 1, 3]


def test_people_take_turns():
    mine = [wants(n, owner="ada") for n in (1, 2, 3)]
    assert in_order(*mine, wants(4, owner="bo"), wants(5, owner="bo")) == [1, 4, 2, 5, 3]


def test_who_had_less_of_late_goes_first():
    jobs = [wants(1, owner="ada"), wants(2, owner="bo")]
    assert in_order(*jobs, use={"ada": 7200.0, "bo": 60.0}) == [2, 1]
    plan = choose(jobs, [gpu(0)], [], (), BoxLimits(use={"ada": 7200.0, "bo": 60.0}))
    assert started(plan) == {2: ("GPU-0",)}


def test_with_time_everybodys_turn_comes():
    old = wants(1, priority="low", waited_s=2.5 * DAY_S)
    assert in_order(old, wants(2), wants(3, priority="high")) == [1, 3, 2]
    assert in_order(old, wants(2), wants(3, priority="high"), age_s=0) == [3, 2, 1]


def test_a_clock_that_was_set_back_costs_nobody_his_place():
    assert in_order(wants(1, waited_s=-1.0), wants(2)) == [1, 2]


# -- going round those who wait ----------------------------------------------------------------------


def test_a_short_job_goes_first_where_the_one_before_it_cannot_start_earlier():
    rooms, busy = [gpu(0), gpu(1, free=())], [runs(9, 1, ends_in_s=3600.0)]
    endless, long, short = wants(2), wants(3, limit_s=3700.0), wants(4, limit_s=3600.0)
    plan = choose([wants(1, gpus=2), endless, long, short], rooms, [], busy)
    assert started(plan) == {4: ("GPU-0",)}
    assert plan.waiting[2] == plan.waiting[3] == "behind #1, which waits for the same GPUs"


def test_nobody_goes_first_where_no_end_is_known():
    plan = choose([wants(1, gpus=2), wants(2, limit_s=1.0)], [gpu(0), gpu(1, free=())], [], [runs(9, 1)])
    assert started(plan) == {}


def test_a_preemptible_job_fills_what_is_reserved():
    rooms = [gpu(0), gpu(1, free=())]
    plan = choose([wants(1, gpus=2), wants(2, preemptible=True, priority="low")], rooms, [], [runs(9, 1)])
    assert started(plan) == {2: ("GPU-0",)}
    assert plan.preemptions == []


# -- preemption --------------------------------------------------------------------------------------


def test_what_is_preemptible_makes_room_for_what_is_not():
    filler = runs(7, 0, preemptible=True, priority="low", waited_s=100.0)
    newer = runs(8, 1, preemptible=True, priority="low", waited_s=10.0)
    full = [gpu(0, free=()), gpu(1, free=())]
    plan = choose([wants(1)], full, [], [filler, newer])
    assert plan.preemptions == [Preemption(8, 1)]
    assert choose([wants(1, gpus=2)], full, [], [filler, newer]).preemptions == [Preemption(8, 1), Preemption(7, 1)]


def test_the_job_that_started_last_is_preempted_first():
    """Even if it waited longer in the queue: the other one would lose more work."""
    older = runs(7, 0, preemptible=True, priority="low", waited_s=0.0, ran_s=36_000.0)
    newer = runs(8, 1, preemptible=True, priority="low", waited_s=1800.0, ran_s=60.0)
    full = [gpu(0, free=()), gpu(1, free=())]
    assert choose([wants(1)], full, [], [newer, older]).preemptions == [Preemption(8, 1)]
    below = runs(6, 0, preemptible=True, priority="low", ran_s=36_000.0)
    above = runs(9, 1, preemptible=True, ran_s=60.0)
    assert choose([wants(1)], full, [], [above, below]).preemptions == [Preemption(6, 1)]


@pytest.mark.parametrize(
    "waiting",
    [
        wants(1, priority="low", preemptible=True),  # an equal
        wants(1, gpus=2),  # it would not be enough
        wants(1, on=("1",)),  # another GPU is wanted
    ],
)
def test_nobody_is_preempted_for_nothing(waiting):
    filler = runs(7, 0, preemptible=True, priority="low")
    assert choose([waiting], [gpu(0, free=()), gpu(1, free=())], [], [filler, runs(9, 1)]).preemptions == []


def test_nobody_is_preempted_who_did_not_agree_to_it():
    assert choose([wants(1, priority="high")], [gpu(0, free=())], [], [runs(7, 0, priority="low")]).preemptions == []


def test_who_is_stopping_already_counts():
    leaving = runs(7, 0, preemptible=True, priority="low", stopping=True)
    other = runs(8, 1, preemptible=True, priority="low")
    full = [gpu(0, free=()), gpu(1, free=())]
    assert choose([wants(1)], full, [], [leaving, other]).preemptions == []
    assert choose([wants(1), wants(2)], full, [], [leaving, other]).preemptions == [Preemption(8, 2)]


def test_with_time_nobody_is_preempted_any_more():
    filler = runs(7, 0, preemptible=True, priority="low", waited_s=2 * DAY_S)
    assert choose([wants(1)], [gpu(0, free=())], [], [filler]).preemptions == []


# -- limits ------------------------------------------------------------------------------------------


def test_so_many_gpus_for_each_and_more_at_low_priority():
    limits = BoxLimits(gpus_each=1, gpus_each_low=3)
    rooms, mine = [gpu(n) for n in range(1, 5)], [runs(9, 0, owner="ada")]
    jobs = [wants(1, owner="ada"), wants(2, owner="ada", gpus=2, priority="low"), wants(3, owner="bo")]
    plan = choose(jobs, rooms, [], mine, limits)
    assert set(started(plan)) == {2, 3}
    assert plan.waiting == {1: "ada has 1 of at most 1 GPU at once"}


def test_so_many_of_a_group_at_once():
    jobs = [wants(n, group="night") for n in (1, 2, 3)]
    plan = choose([*jobs, wants(4)], [gpu(n) for n in range(4)], [], (), BoxLimits(groups={"night": 2}))
    assert set(started(plan)) == {1, 2, 4}
    assert plan.waiting == {3: "at most 2 of night at once"}


def test_cores_and_memory_of_the_host():
    limits = BoxLimits(cpus=8, ram_mib=32 << 10)
    rooms, busy = [gpu(n) for n in range(4)], [runs(9, 7, cpus=4, ram_mib=8 << 10)]
    jobs = [wants(1, cpus=6), wants(2, cpus=1), wants(3)]
    plan = choose(jobs, rooms, [], busy, limits)
    assert set(started(plan)) == {3}
    assert plan.waiting[1] == "needs 6 CPU cores, 4 free"
    assert plan.waiting[2] == "behind #1, for which CPU cores or memory are reserved"
    plan = choose([wants(1, ram_mib=30 << 10)], rooms, [], busy, limits)
    assert plan.waiting[1] == "needs 30.0 GiB of memory, 24.0 GiB free"


def test_a_reason_that_all_gpus_share_is_told_once():
    says = "NVML fails with an unknown error. On a host, see `dmesg`."
    plan = choose([wants(1)], [gpu(0, why_not=says), gpu(1, why_not=says), gpu(2, why_not="is lost")], [])
    assert plan.waiting[1] == f"needs 1 GPU, 0 free; GPU 0, 1: {says[:-1]}; GPU 2 is lost"


# -- trials ------------------------------------------------------------------------------------------


def test_a_trial_goes_ahead_where_there_is_room_and_then_the_order_is_the_usual_one():
    plan = choose([wants(1, priority="high"), wants(2), wants(3, priority="low", untried=True)], [gpu(0), gpu(1)], [])
    assert [start.job_id for start in plan.starts] == [3, 1]
    plan = choose([wants(1), wants(2, gpus=0), wants(3, gpus=0, untried=True)], [gpu(0)], [CpuSlot(0)])
    assert [start.job_id for start in plan.starts] == [3, 1]


def test_a_trial_that_finds_no_room_reserves_nothing_before_its_turn():
    wide = wants(3, gpus=2, untried=True)
    plan = choose([wants(1), wants(2), wide], [gpu(0), gpu(1, free=())], [], [runs(9, 1)])
    assert started(plan) == {1: ("GPU-0",)}
    plan = choose([wide, wants(4)], [gpu(0), gpu(1, free=())], [], [runs(9, 1)])
    assert started(plan) == {}
    assert plan.waiting[4] == "behind #3, which waits for the same GPUs"  # it is its turn


def test_a_trial_preempts_nobody_before_its_turn():
    running = [runs(9, 0, preemptible=True, priority="low")]
    first = wants(1, on=("1",))
    plan = choose([first, wants(2, untried=True)], [gpu(0, free=()), gpu(1, free=())], [], [*running, runs(8, 1)])
    assert plan.preemptions == [Preemption(9, 2)]  # only in its turn, like any job
    plan = choose([wants(1), wants(2, untried=True)], [gpu(0, free=())], [], running)
    assert plan.preemptions == [Preemption(9, 1)]


def test_only_so_few_trials_go_ahead_that_the_others_get_their_turn():
    rooms = [gpu(index) for index in range(4)]
    jobs = [wants(1), wants(2), *(wants(number, untried=True) for number in range(3, 9))]
    assert list(started(choose(jobs, rooms, [], ahead=2))) == [3, 4, 1, 2]
    assert list(started(choose(jobs, rooms, [], ahead=0))) == [1, 2, 3, 4]


def test_a_trial_counts_for_the_share_of_its_owner_but_reserves_none_of_it():
    limits = BoxLimits(gpus_each=2)
    mine = [wants(1, owner="uma"), wants(2, owner="uma", gpus=2, untried=True)]
    plan = choose(mine, [gpu(0), gpu(1)], [], [runs(9, 2, owner="uma")], limits)
    assert started(plan) == {1: ("GPU-0",)}
    assert plan.waiting[2] == "uma has 2 of at most 2 GPUs at once"
