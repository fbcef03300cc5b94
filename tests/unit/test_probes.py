"""What is remembered of the memory of a job when it has ended."""

from types import SimpleNamespace

import pytest

from runner.batch import Known, Measured, Plan, Probe, Settings
from runner.model import State
from runner.probes import Probes
from runner.store.connection import open_store
from runner.store.known import KnownBatches

BUDGET_MIB = 24_000


@pytest.fixture
def store(tmp_path):
    store = open_store(str(tmp_path / "home"))
    yield store
    store.close()


def learnt(store, **usage):
    """The line that is known after a run of 100 s at batch 25, which was probed as 2000 + 800 for each sample."""
    plan = Plan.start(Settings(), BUDGET_MIB)
    while isinstance(plan.step, Probe):
        plan = plan.after(Measured(2000 + 800 * plan.step.batch))
    assert plan.step.batch == 25
    record = {"plan": plan.to_json(), "version": "v", "about": {"key": "k", "gpu": "A", "total_mib": 24_576}}
    probes = Probes(None, store, SimpleNamespace(probe=lambda *_: record), None)
    probes.ended(SimpleNamespace(id=1, attempt=1), State.SUCCEEDED, usage, 100.0)
    kept = KnownBatches(store).get("k")
    return kept and Known.from_json(kept["known"]).line.at(25)


def test_the_peak_of_a_whole_run_counts(store):
    assert learnt(store, peak_memory_mib=21_000, samples=98) == pytest.approx(21_000)


def test_that_of_one_that_was_hardly_read_only_where_it_is_higher(store):
    assert learnt(store, peak_memory_mib=3000, samples=4) == pytest.approx(22_000)
    assert learnt(store, peak_memory_mib=23_000, samples=4) == pytest.approx(23_000)


def test_where_nothing_was_read_nothing_is_learnt(store):
    assert learnt(store, peak_memory_mib=None, samples=0) is None
