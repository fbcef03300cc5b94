"""Plans the batch search on the node: only there is it known which GPU the job got. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner.batch import BatchPlan, Run, budget_mib
from runner.model import GpuHealth
from runner.supervisor.probe_records import MemoryKind, ProbeOrder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.model import Gpu


def planned_here(stored: Mapping[str, Any], gpus: Sequence[Gpu], readings: str) -> dict[str, Any]:
    """Return the order with a plan for these GPUs. `readings`: the file in which the sampler here leaves them."""
    order = ProbeOrder.from_json(stored)
    models, totals = {gpu.name for gpu in gpus}, [gpu.memory_total_mib or 0 for gpu in gpus]
    about = MemoryKind(gpu=models.pop() if len(models) == 1 else None, total_mib=min(totals, default=0))
    used = {gpu.uuid: gpu.memory_used_mib for gpu in gpus}
    return replace(order, plan=_plan(order.plan, gpus), about=about, readings=readings, gpus=used).to_json()


def _plan(plan: BatchPlan, gpus: Sequence[Gpu]) -> BatchPlan:
    budgets = [_budget(gpu) for gpu in gpus]
    known = [budget for budget in budgets if budget is not None]
    if not known or len(known) < len(gpus):
        return BatchPlan.unprobed(plan.settings, 0, "the memory of its GPU is unknown")
    budget = float(min(known))
    if isinstance(plan.step, Run) and (plan.expected_mib or 0.0) <= budget:  # found by an earlier attempt
        return replace(plan, budget_mib=budget)
    return BatchPlan.start(plan.settings, budget)


def _budget(gpu: Gpu) -> int | None:
    if gpu.health is not GpuHealth.OK or gpu.memory_total_mib is None or gpu.memory_used_mib is None:
        return None
    return budget_mib(gpu.memory_total_mib, gpu.memory_reserved_mib or 0, gpu.memory_used_mib, 1)
