import json

import pytest

from runner.batch import (
    BatchPlan,
    BatchSettings,
    Failed,
    Measured,
    MemoryHistory,
    MemoryLine,
    OutOfMemory,
    Probe,
    Run,
    choose,
)

ROOM = 24_164
SETTINGS = BatchSettings()


def probed(memory, room=ROOM):
    plan = BatchPlan.start(SETTINGS, room)
    while isinstance(plan.step, Probe):
        plan = plan.after(Measured(memory(plan.step.batch), seconds=7))
    return plan


def resnet(batch):
    return 1250 + 88 * batch


def test_the_second_of_its_kind_needs_no_probe():
    plan = probed(resnet)
    known = MemoryHistory.of(plan)
    again = choose(known, ROOM, SETTINGS)
    assert again.batch == plan.step.batch
    assert again.confident


def test_another_share_of_the_gpu_needs_none_either():
    run = choose(MemoryHistory.of(probed(resnet)), ROOM / 2, SETTINGS)
    assert resnet(run.batch) <= 0.92 * ROOM / 2 < resnet(run.batch + 8)


def test_far_beyond_all_that_was_seen_it_probes_again():
    known = MemoryHistory.of(probed(resnet, 4000))
    assert choose(known, 4 * ROOM, SETTINGS) is None


def test_one_point_alone_is_no_guide_to_smaller_batches():
    small = BatchSettings(cap=12)
    plan = BatchPlan.start(small, ROOM).after(Measured(2000))
    assert plan.step.batch == 12
    known = MemoryHistory.of(plan)
    assert choose(known, ROOM, small).batch == 12
    assert choose(known, 1500, small) is None


def test_nothing_fits_any_more():
    assert choose(MemoryHistory.of(probed(resnet)), 1000, SETTINGS) is None


def test_what_was_not_measured_is_not_known():
    assert MemoryHistory.of(BatchPlan.unprobed(SETTINGS, ROOM, "neighbours")) is None


def test_a_whole_run_corrects_in_both_directions():
    known = MemoryHistory.of(probed(resnet))
    higher = known.refined(232, 1250 + 232 * 100, whole=True)
    lower = known.refined(232, 1250 + 232 * 80, whole=True)
    batches = [choose(one, ROOM, SETTINGS).batch for one in (higher, known, lower)]
    assert batches == sorted(batches)
    assert len(set(batches)) == 3


def test_a_run_cut_short_only_raises():
    known = MemoryHistory.of(probed(resnet))
    assert known.refined(232, 5000, whole=False) == known
    assert known.refined(232, 24_000, whole=False).line.per_sample_mib > known.line.per_sample_mib


def test_the_worst_of_the_latest_runs_counts_and_old_ones_are_forgotten():
    known = MemoryHistory.of(probed(resnet)).refined(232, 24_000, whole=True)
    for _ in range(4):
        known = known.refined(208, resnet(208), whole=True)
    assert known.line.at(232) == pytest.approx(24_000)
    assert known.refined(208, resnet(208), whole=True).line.at(232) == pytest.approx(resnet(232))


def test_a_batch_the_program_refuses_stays_refused():
    plan = BatchPlan.start(SETTINGS, ROOM).after(Measured(resnet(8)))
    plan = plan.after(Measured(resnet(plan.step.batch)))
    ran = max(point.batch for point in plan.points)
    plan = plan.after(Failed("exit code 1"))
    assert plan.step.batch <= ran
    assert choose(MemoryHistory.of(plan), ROOM, SETTINGS).batch <= ran


def test_known_goes_through_json():
    known = MemoryHistory.of(probed(resnet)).refined(232, 22_000, whole=True)
    assert MemoryHistory.from_json(json.loads(json.dumps({**known.to_json(), "newer": 1}))) == known


def test_a_remembered_plan_steps_back_like_another():
    run = Run(232, "known", confident=True)
    plan = BatchPlan.remembered(SETTINGS, ROOM, MemoryLine(1250, 88), run)
    assert plan.after(OutOfMemory(seconds=3600)).step.batch < 0.8 * 232
    assert MemoryHistory.of(plan) is None
