"""What was measured and chosen, in words. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.batch.steps import Done, GiveUp, Run
from runner.quantities import format_duration, format_mib

if TYPE_CHECKING:
    from runner.batch.plan import Plan


def summary(plan: Plan, total_mib: float, peak_mib: float | None = None) -> str:
    """One line: `batch 24, 91 % of 24 GiB, probed in 14 s`. The share is the run's peak where that is known."""
    if isinstance(plan.step, GiveUp):
        return plan.step.reason
    if not isinstance(plan.step, Run | Done):
        return f"probing, {len(plan.points)} measured"
    parts = [f"batch {plan.step.batch}"]
    used = peak_mib if peak_mib is not None else plan.expected_mib
    if used is not None and total_mib > 0:
        parts.append(f"{100 * used / total_mib:.0f} % of {_whole_gib(total_mib)}")
    parts.append(_how(plan))
    if plan.restarts:
        parts.append("stepped back " + ("once" if plan.restarts == 1 else f"{plan.restarts} times"))
    return ", ".join(parts)


def detail(plan: Plan) -> list[str]:
    """Everything that led to the choice, a line each."""
    rows = [f"budget: {format_mib(plan.budget_mib)}, of which {plan.settings.margin:.0%} may be used"]
    rows += [f"measured: batch {point.batch} took {format_mib(point.mib)}" for point in plan.points]
    if plan.too_large is not None:
        rows.append(f"too large: batch {plan.too_large}")
    if plan.failure:
        rows.append(f"not used: {plan.failure}")
    if plan.line:
        rows.append(f"line: {format_mib(plan.line.fixed_mib)} + {plan.line.per_sample_mib:.3g} MiB for each sample")
    if isinstance(plan.step, Run):
        rows.append(f"chosen: batch {plan.step.batch}: {plan.step.why}")
    return rows


def _how(plan: Plan) -> str:
    if plan.probes and (plan.line is not None or (isinstance(plan.step, Run) and plan.step.confident)):
        return f"probed in {format_duration(plan.probed_s)}"
    if plan.line is not None:
        return "known from before"
    return f"not probed: {plan.step.why}" if isinstance(plan.step, Run) else "not probed"


def _whole_gib(mib: float) -> str:
    """Cards are sold by whole GiB, of which the driver shows a little less."""
    gib = mib / 1024
    return f"{round(gib)} GiB" if gib >= 4 and abs(gib - round(gib)) < 0.05 * gib else format_mib(mib)
