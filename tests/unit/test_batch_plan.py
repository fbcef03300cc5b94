import json

import pytest

from runner.batch import (
    BatchPlan,
    BatchSettings,
    Failed,
    GiveUp,
    Measured,
    OutOfMemory,
    Probe,
    Run,
    RunEnded,
    Unmeasured,
)
from runner.batch.plan import MOST_RESTARTS

ROOM = 24_164
SETTINGS = BatchSettings()


def linear(fixed, per_sample):
    return lambda batch: fixed + per_sample * batch


GPT2 = linear(2350, 820)


def probed(memory, room=ROOM, settings=SETTINGS):
    """The plan after all its probes, and the batches it probed."""
    plan, batches = BatchPlan.start(settings, room), []
    while isinstance(plan.step, Probe):
        batches.append(plan.step.batch)
        used = memory(plan.step.batch)
        plan = plan.after(OutOfMemory(room, seconds=5) if used > room else Measured(used, seconds=5))
        assert len(batches) < 15
    return plan, batches


# -- near the optimum, in the cases of the research -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "fixed", "per_sample", "best"),
    [
        (24_164, 2350, 820, 24),
        (24_164, 1250, 88, 238),
        (81_320, 1300, 88, 835),
        (81_320, 13_600, 1450, 42),
        (24_164, 4750, 1450, 12),
        (81_320, 13_600, 380, 161),
        (16_064, 2150, 55, 229),
        (24_164, 470, 0.05, 4096),
    ],
)
def test_the_cases_of_the_research_come_out_near_the_best(room, fixed, per_sample, best):
    plan, _ = probed(linear(fixed, per_sample), room)
    assert isinstance(plan.step, Run)
    assert plan.step.confident
    assert 0.95 * best <= plan.step.batch <= best


def test_the_first_probe_is_at_the_default_and_the_second_at_the_blogs_guess():
    _, batches = probed(GPT2)
    assert batches == [8, int(8 * 0.92 * ROOM / GPT2(8))]


def test_a_probe_ends_by_itself_where_its_arguments_bound_it():
    assert BatchPlan.start(SETTINGS, ROOM).step.ends == "at plateau"
    step = BatchPlan.start(BatchSettings(bounded=True, limit_s=60), ROOM).step
    assert (step.ends, step.limit_s) == ("by itself", 60)


def test_a_later_probe_is_told_how_long_memory_takes_to_settle_and_more_for_a_larger_batch():
    plan = BatchPlan.start(SETTINGS, ROOM)
    assert plan.step.expected_s is None
    later = plan.after(Measured(9000, settled_s=9.0)).step
    assert later.expected_s == pytest.approx(later.batch)
    assert later.quiet_s < plan.step.quiet_s


def test_what_was_over_between_two_readings_may_take_longer_at_a_much_larger_batch():
    plan = BatchPlan.start(SETTINGS, ROOM)
    near, farther, far = (plan.after(Measured(used, settled_s=0.5)).step for used in (9000, 3000, 1000))
    assert near.batch < farther.batch < far.batch
    assert near.quiet_s < farther.quiet_s < far.quiet_s == plan.step.quiet_s


def test_where_the_first_did_not_fit_the_next_waits_as_long_as_the_first():
    step = BatchPlan.start(SETTINGS, ROOM).after(OutOfMemory(ROOM)).step
    assert (step.batch, step.quiet_s, step.expected_s) == (4, SETTINGS.quiet_s, None)


def test_base_memory_is_not_the_jobs():
    plan = BatchPlan.start(SETTINGS, ROOM).after(Measured(9000, base_mib=500))
    assert plan.points[0].mib == 8500


def test_a_share_of_the_gpu_is_all_there_is():
    plan, _ = probed(GPT2, ROOM // 2)
    assert plan.step.batch == 10
    assert GPT2(plan.step.batch) <= 0.92 * ROOM / 2


def test_the_cap_holds():
    plan, batches = probed(linear(470, 0.05), settings=BatchSettings(cap=50))
    assert plan.step.batch == 50
    assert max(batches) <= 50


def test_a_cap_below_the_default_is_probed_itself():
    assert probed(GPT2, settings=BatchSettings(cap=4))[1][0] == 4


def test_over_the_margin_at_the_default_goes_below_it():
    plan, batches = probed(linear(4000, 2310))  # 93 % at 8
    assert (plan.step.batch, batches) == (7, [8, 4])


# -- what does not fit ------------------------------------------------------------------------------------------------


def test_the_default_is_halved_until_it_fits():
    plan, batches = probed(linear(11_000, 3600))
    assert batches == [8, 4, 2, 1]
    assert plan.step.batch == 3
    assert plan.too_large == 4


def test_a_long_way_down_leaves_probes_for_the_way_up():
    plan, batches = probed(linear(11_000, 3600), settings=BatchSettings(default=1024))
    assert len(batches) == 11
    assert plan.step.batch == 3


def test_out_of_memory_at_one_is_said():
    plan, batches = probed(linear(25_000, 1))
    assert batches == [8, 4, 2, 1]
    assert plan.step == GiveUp("out of memory even at batch 1: this job does not fit on this GPU")


def test_a_guess_that_does_not_fit_is_approached_from_below():
    plan, batches = probed(lambda batch: 1000 + 60 * batch + 3 * batch * batch)
    assert batches == [8, 106, 57]
    assert plan.too_large == 106
    assert 57 <= plan.step.batch < 106


def test_a_first_batch_of_one_is_no_end():
    plan, batches = probed(linear(12_000, 10), settings=BatchSettings(default=1))
    assert batches[:2] == [1, 2]
    assert plan.step.batch >= 0.95 * (0.92 * ROOM - 12_000) / 10


def test_neighbouring_batches_leave_nothing_between():
    plan = BatchPlan.start(BatchSettings(default=1), ROOM).after(Measured(10_000))
    assert plan.step.batch == 2
    assert plan.after(OutOfMemory()).step.batch == 1


def test_memory_that_bends_upwards_is_followed():
    plan, _ = probed(lambda batch: 1250 + 60 * batch + 0.15 * batch * batch)
    assert plan.step.batch == 224


def test_far_beyond_what_ran_it_probes_once_more():
    _, batches = probed(linear(2150, 55), 16_064)
    assert batches == [8, 45, 224]


# -- what cannot be known ---------------------------------------------------------------------------------------------


def test_memory_taken_in_advance_is_recognised():
    plan, batches = probed(lambda batch: 0.75 * ROOM)
    assert plan.step.batch == 8
    assert not plan.step.confident
    assert "in advance" in plan.step.why
    assert len(batches) <= 3


def test_preallocated_memory_that_runs_out_inside_leaves_the_users_batch():
    plan = BatchPlan.start(BatchSettings(own=6), ROOM)
    plan = plan.after(Measured(18_000)).after(Measured(18_000))
    assert plan.step.kind == "farther"
    assert plan.after(OutOfMemory(18_000)).step.batch == 6


def test_a_large_model_with_small_samples_is_not_taken_for_preallocated():
    plan, _ = probed(linear(17_000, 5))
    assert plan.step.confident
    assert plan.step.batch >= 0.95 * (0.92 * ROOM - 17_000) / 5


@pytest.mark.parametrize("points", [0, 1])
def test_what_is_unmeasured_runs_at_the_users_batch(points):
    plan = BatchPlan.start(BatchSettings(own=12), ROOM)
    for _ in range(points):
        plan = plan.after(Measured(GPT2(8)))
    assert plan.after(Unmeasured("others use this GPU")).step == Run(12, "others use this GPU", confident=False)


def test_no_memory_seen_is_never_divided_by():
    step = BatchPlan.start(SETTINGS, ROOM).after(Measured(300, base_mib=300)).step
    assert (step.batch, step.confident) == (8, False)


def test_no_room_at_all_is_the_users_batch():
    assert BatchPlan.start(SETTINGS, 0).step.confident is False


def test_unprobed_says_why():
    assert BatchPlan.unprobed(SETTINGS, ROOM, "unified memory").step == Run(8, "unified memory", confident=False)


# -- failures of another kind -----------------------------------------------------------------------------------------


def test_a_crash_is_reported_with_its_output_and_never_read_as_memory():
    plan = BatchPlan.start(SETTINGS, ROOM).after(Failed("exit code 2", "error: no such option --max_tokens"))
    assert isinstance(plan.step, GiveUp)
    assert "exit code 2" in plan.step.reason
    assert "no such option" in plan.step.reason


def test_a_crash_after_one_that_ran_takes_the_one_that_ran():
    plan = BatchPlan.start(SETTINGS, ROOM).after(Measured(GPT2(8))).after(Failed("exit code 1", "data set too small"))
    assert (plan.step.batch, plan.step.confident) == (8, True)
    assert "exit code 1" in plan.step.why


def test_a_crash_at_a_smaller_batch_does_not_lower_it_further():
    plan = BatchPlan.start(SETTINGS, ROOM).after(Measured(22_100))
    assert plan.step.batch == 4
    assert plan.after(Failed("exit code 1")).step.batch == 8


# -- the real run -----------------------------------------------------------------------------------------------------


def test_a_run_that_ends_is_done():
    plan, _ = probed(GPT2)
    assert plan.after(Measured(22_000)).step == RunEnded(24)
    assert plan.after(Failed("exit code 1")).step == RunEnded(24)
    with pytest.raises(TypeError):
        plan.after(Measured(22_000)).after(Measured(1))


def test_it_steps_back_and_never_forward_at_most_three_times():
    plan, _ = probed(linear(2150, 55), 16_064)
    batches = []
    while isinstance(plan.step, Run):
        batches.append(plan.step.batch)
        plan = plan.after(OutOfMemory(16_000, seconds=20))
    assert batches == sorted(set(batches), reverse=True)
    assert len(batches) == 1 + MOST_RESTARTS
    assert batches[1] >= 0.85 * batches[0]
    assert batches[-1] == 45  # it ran in a probe
    assert isinstance(plan.step, GiveUp)


def test_work_lost_late_is_worth_a_larger_step():
    plan, _ = probed(linear(1250, 88))
    early = plan.after(OutOfMemory(ROOM, seconds=60)).step.batch
    late = plan.after(OutOfMemory(ROOM, seconds=3600)).step.batch
    assert late < 0.8 * plan.step.batch < early < plan.step.batch


def test_an_allocation_that_failed_says_how_far_to_go():
    plan, _ = probed(linear(1250, 88))
    little = plan.after(OutOfMemory(24_000, seconds=60)).step.batch
    much = plan.after(OutOfMemory(24_000, wanted_mib=12_000, seconds=60)).step.batch
    assert much < little


def test_the_users_batch_is_halved():
    plan = BatchPlan.unprobed(BatchSettings(own=12), ROOM, "neighbours")
    seen = []
    while isinstance(plan.step, Run):
        seen.append(plan.step.batch)
        plan = plan.after(OutOfMemory())
    assert seen == [12, 6, 3, 1]
    assert "batch 1" in plan.step.reason


def test_a_plan_goes_through_json_at_every_step():
    plan = BatchPlan.start(BatchSettings(own=3, bounded=True), ROOM)
    for outcome in (Measured(GPT2(8)), Measured(GPT2(19)), OutOfMemory(ROOM, seconds=9), Measured(1)):
        assert BatchPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
        assert BatchPlan.from_json({**plan.to_json(), "from a newer version": 1}) == plan
        plan = plan.after(outcome)
    assert BatchPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
