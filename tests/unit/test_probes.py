"""What is remembered of the memory of a job when it has ended, and for how long."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from runner.batch import BatchPlan, BatchSettings, Measured, Probe, Run
from runner.model import Gpu, State
from runner.probing.probes import Probes
from runner.store.connection import open_store
from runner.store.measurements import KnownBatches
from runner.supervisor.probe_records import MemoryKind, ProbeReport
from tests.jobs import a_spec
from tests.step_context import Readings, a_context

BUDGET_MIB = 24_000


@pytest.fixture
def store(tmp_path):
    store = open_store(str(tmp_path / "home"))
    yield store
    store.close()


def found():
    """A record of a job that was probed as 2000 + 800 for each sample, which is batch 25."""
    plan = BatchPlan.start(BatchSettings(), BUDGET_MIB)
    while isinstance(plan.step, Probe):
        plan = plan.after(Measured(2000 + 800 * plan.step.batch))
    assert plan.step.batch == 25
    return ProbeReport(plan=plan, version="v", about=MemoryKind(key="k", gpu="A", total_mib=24_576))


def probes_of(store, report, settings=None, engine=None):
    context = a_context(store, settings, engine)
    context.jobs = SimpleNamespace(probe=lambda *_: report)
    return Probes(context)


def learnt(store, **usage):
    """The line that is known after a run of 100 s of it."""
    report = found()
    probes = probes_of(store, report)
    probes.ended(SimpleNamespace(id=1, attempt=1), State.SUCCEEDED, usage, 100.0)
    kept = KnownBatches(store).get("k")
    return kept and kept.known.line.at(25)


def test_the_peak_of_a_whole_run_counts(store):
    assert learnt(store, peak_memory_mib=21_000, samples=98) == pytest.approx(21_000)


def test_that_of_one_that_was_hardly_read_only_where_it_is_higher(store):
    assert learnt(store, peak_memory_mib=3000, samples=4) == pytest.approx(22_000)
    assert learnt(store, peak_memory_mib=23_000, samples=4) == pytest.approx(23_000)


def test_where_nothing_was_read_nothing_is_learnt(store):
    assert learnt(store, peak_memory_mib=None, samples=0) is None


@pytest.mark.parametrize(("edited", "step"), [(False, Run), (True, Probe)])
def test_the_next_attempt_goes_on_from_the_last_unless_the_job_was_edited(store, edited, step):
    report = replace(found(), edited=edited)
    gpu = Gpu(index=0, uuid="GPU-a", name="A", memory_total_mib=24_576, memory_used_mib=0, processes=())
    usual = SimpleNamespace(
        home="/", slots_per_gpu=1, probe_batch=8, probe_margin=92, probe_cap=512, probe_round_to=8, probe_round_from=64,
        probe_limit=90.0, probe_quiet=10.0,
    )  # fmt: skip
    probes = probes_of(store, report, usual, Readings(SimpleNamespace(gpus=(gpu,))))
    job = SimpleNamespace(id=1, run_id="r", spec=a_spec("python a.py", probe={}), gpus=("GPU-a",), attempt=1)
    assert isinstance(probes.order(job, 2, {}, {"GPU-a": 0}).plan.step, step)
