"""Describe what was measured and chosen, in words and in bars. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.batch.steps import GiveUp, Probe, Run, RunEnded
from runner.units import format_duration, format_mib

if TYPE_CHECKING:
    from runner.batch.plan import BatchPlan

_EIGHTHS = " ▏▎▍▌▋▊▉█"
BAR = 16  # characters: with the text beside it, one line on a phone


def summary(plan: BatchPlan, total_mib: float, peak_mib: float | None = None, *, over: bool = False) -> str:
    """Return one line: `batch 24, 91 % of 24 GiB, probed in 14 s`. The share is the run's peak if that is known.

    `over`: the job has ended. Then the line leaves out why nothing was measured, as that was reported before.
    """
    if isinstance(plan.step, GiveUp):
        return plan.step.reason.partition("\n")[0].rstrip(":")
    if isinstance(plan.step, Probe):
        return f"ended while batch {plan.step.batch} was probed" if over else f"probing batch {plan.step.batch}"
    parts = [f"batch {plan.step.batch}"]
    used = peak_mib if peak_mib is not None else plan.expected_mib
    if used is not None and total_mib > 0:
        parts.append(f"{percent(used / total_mib)} of {_whole_gib(total_mib)}")
    parts.append(_how(plan, over=over))
    if plan.restarts:
        parts.append("reduced " + ("once" if plan.restarts == 1 else f"{plan.restarts} times"))
    return ", ".join(parts)


def detail(plan: BatchPlan) -> list[str]:
    """Return everything that led to the choice, one line each."""
    margin = percent(plan.settings.margin)
    rows = [f"may use: {format_mib(plan.target_mib)}, {margin} of the {format_mib(plan.budget_mib)} available"]
    rows += [f"measured: batch {point.batch} took {format_mib(point.mib)}" for point in plan.points]
    if plan.too_large is not None:
        rows.append(f"too large: batch {plan.too_large} ran out of memory")
    if plan.failure:
        rows.append(f"not used: {plan.failure}")
    if plan.line:
        rows.append(f"line: {format_mib(plan.line.fixed_mib)} + {plan.line.per_sample_mib:.3g} MiB per sample")
    if isinstance(plan.step, Run):
        rows.append(f"chosen: batch {plan.step.batch}, because {plan.step.why}")
    return rows


def bars(plan: BatchPlan) -> list[str]:
    """Return a drawing of the measurements: a bar of memory for each batch, above bars for the limit and the total."""
    most = max([plan.budget_mib, *(point.mib for point in plan.points), plan.expected_mib or 0.0])
    rows = [(point.batch, point.mib, "") for point in plan.points]
    if plan.batch is not None and plan.expected_mib is not None:
        rows = [row for row in rows if row[0] != plan.batch]
        rows.append((plan.batch, plan.expected_mib, "◀"))
    drawn = [f"{batch:>6} {_bar(mib, most)} {format_mib(mib):>8} {mark}".rstrip() for batch, mib, mark in sorted(rows)]
    if plan.too_large is not None:
        drawn.append(f"{plan.too_large:>6} out of memory")
    limits = [("limit", plan.target_mib), ("total", plan.budget_mib)]
    drawn += [f"{name:>6} {_bar(mib, most, '░')} {format_mib(mib):>8}" for name, mib in limits]
    return [" batch (◀ chosen)", *drawn]


def _bar(mib: float, most_mib: float, full: str = "█") -> str:
    eighths = round(8 * BAR * mib / most_mib) if most_mib > 0 else 0
    whole, rest = divmod(max(eighths, 0), 8)
    return f"{full * whole}{_EIGHTHS[rest] if full == '█' else ''}"[:BAR].ljust(BAR)


def percent(part: float) -> str:
    """Format a share as `91 %`."""
    return f"{100 * part:.0f} %"


def _how(plan: BatchPlan, *, over: bool) -> str:
    """Say where the batch comes from: a probe, an earlier job, or the user; if the user, why it was not probed."""
    step = plan.step
    assert isinstance(step, Run | RunEnded)
    if isinstance(step, Run) and not step.confident and step.batch == plan.settings.fallback and not plan.restarts:
        whose = "your own" if plan.settings.own is not None else "the default"
        return f"{whose}, not probed" if over else f"{whose}, because {step.why}"
    if isinstance(step, Run) and plan.is_halved:
        halved = f"half of {plan.too_large}, which was too large"
        return halved if over else f"{halved}, because {step.why}"
    if plan.line is not None and not plan.probes:
        return "known from an earlier job"
    return f"probed in {format_duration(plan.probed_s)}" if plan.line is not None or plan.points else "not probed"


def _whole_gib(mib: float) -> str:
    """Format GPU memory in whole GiB where it is close: drivers show a little less than the card is sold with."""
    gib = mib / 1024
    return f"{round(gib)} GiB" if gib >= 4 and abs(gib - round(gib)) < 0.05 * gib else format_mib(mib)
