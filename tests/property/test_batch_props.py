from hypothesis import assume, given, settings
from hypothesis import strategies as st

from runner.batch import BatchPlan, BatchSettings, Measured, MemoryHistory, OutOfMemory, Probe, Run, choose
from runner.batch.memory_line import Point, proportional
from runner.batch.plan import MOST_RESTARTS

SETTINGS = BatchSettings()
ROOMS = st.integers(4_000, 160_000)
DEFAULTS = st.sampled_from([1, 2, 8, 16, 100])


def driven(plan, memory, room):
    """The plan when its probes are over, and all batches that it probed."""
    batches = []
    while isinstance(plan.step, Probe):
        batches.append(plan.step.batch)
        used = memory(plan.step.batch)
        plan = plan.after(Measured(used) if used <= room else OutOfMemory(room))
        assert len(batches) < 30
    return plan, batches


def best_of(memory, target, cap):
    low, high = 0, cap
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if memory(middle) <= target else (low, middle - 1)
    return low


@settings(deadline=None, max_examples=300)
@given(
    room=ROOMS,
    fixed=st.floats(0.01, 0.9),
    per_sample=st.floats(2.0, 3000.0),
    margin=st.floats(0.5, 1.0),
    default=DEFAULTS,
)
def test_every_linear_job_comes_within_a_twentieth_of_its_best_and_never_over_it(
    room, fixed, per_sample, margin, default
):
    wanted = BatchSettings(margin=margin, default=default)

    def memory(batch):
        return fixed * room + per_sample * batch

    best = best_of(memory, margin * room, wanted.cap)
    assume(best >= 1)
    assume((margin - fixed) * room >= 1000)  # in less than that, what a sample takes is lost in the noise
    plan, batches = driven(BatchPlan.start(wanted, room), memory, room)
    assert isinstance(plan.step, Run)
    assert 0.95 * best - 1e-6 <= plan.step.batch <= best or best < plan.step.batch == 1
    assert len([batch for batch in batches if memory(batch) <= room]) <= 5


@given(room=ROOMS, fixed=st.floats(0, 100_000), per_sample=st.floats(0.001, 5000), default=st.integers(1, 64))
def test_the_proportional_guess_is_within_the_target_for_every_line(room, fixed, per_sample, default):
    point = Point(default, fixed + per_sample * default)
    guess = proportional(point, room)
    assume(guess >= default)
    assert fixed + per_sample * guess <= room * (1 + 1e-9)


@settings(deadline=None, max_examples=300)
@given(
    room=ROOMS,
    fixed=st.floats(0.0, 1.2),
    weights=st.tuples(st.floats(0.0, 3000.0), st.floats(0.0, 5.0)),
    noise=st.lists(st.floats(1.0, 1.15), min_size=8, max_size=8),
    default=DEFAULTS,
)
def test_whatever_memory_does_it_ends_and_steps_only_back(room, fixed, weights, noise, default):
    draws = iter(noise * 10)

    def memory(batch):
        return fixed * room + (weights[0] * batch + weights[1] * batch * batch) * next(draws)

    plan, _ = driven(BatchPlan.start(BatchSettings(default=default), room), memory, room)
    runs = []
    while isinstance(plan.step, Run):
        runs.append(plan.step.batch)
        plan = BatchPlan.from_json(plan.to_json()).after(OutOfMemory(room, seconds=1000 * len(runs)))
    assert runs == sorted(set(runs), reverse=True)
    assert len(runs) <= 1 + MOST_RESTARTS
    assert all(1 <= batch <= SETTINGS.cap for batch in runs)


@settings(deadline=None)
@given(room=ROOMS, fixed=st.floats(0.01, 0.8), per_sample=st.floats(1.0, 500.0), growth=st.floats(1.0, 1.3))
def test_what_a_whole_run_took_is_within_the_margin_of_the_next(room, fixed, per_sample, growth):
    def memory(batch):
        return fixed * room + per_sample * batch

    plan, _ = driven(BatchPlan.start(SETTINGS, room), memory, room)
    assume(isinstance(plan.step, Run) and plan.step.confident)
    batch = plan.step.batch
    peak = fixed * room + per_sample * batch * growth
    known = MemoryHistory.of(plan)
    assume(known is not None)
    run = choose(known.refined(batch, peak, whole=True), room, SETTINGS)
    assume(run is not None)
    assert fixed * room + per_sample * run.batch * growth <= SETTINGS.margin * room * (1 + 1e-6)


@given(batch=st.integers(1, 10_000))
def test_rounding_never_goes_up_and_costs_no_more_than_a_twentieth(batch):
    assert 0.95 * batch <= SETTINGS.rounded(batch) <= batch
