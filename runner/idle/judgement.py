"""Turns the samples of a window into a verdict. Pure."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from runner.idle.evidence import summary
from runner.idle.policy import Policy, plain
from runner.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.idle.readings import Sample


class Action(str, Enum):
    """What to do with a job."""

    KEEP = "keep"
    WARN = "warn"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What to do with a job, and why."""

    action: Action
    why: str  # half a sentence, for people
    idle: tuple[Sample, ...] = ()  # the unbroken run of idle samples up to now
    stop_in_s: float | None = None  # if it stays idle; None: no countdown


def judge(
    samples: Sequence[Sample],
    policy: Policy,
    now: float,
    started_at: float,
    *,
    keep_until: float | None = None,
    warn_before_s: float | None = None,
) -> Verdict:
    """Stop a job whose GPUs did nothing for a whole window; warn `warn_before_s` before (default: half the window).

    `keep_until`: somebody asked to keep the job until then (`math.inf`: for ever). The window begins after that.
    """
    if keep_until is not None and now < keep_until:
        rest = "" if keep_until == math.inf else f" for another {format_duration(keep_until - now)}"
        return Verdict(action=Action.KEEP, why=f"somebody asked to keep it{rest}")
    if samples and now - samples[-1].at > policy.gap_s + policy.period_s:
        silent_s = format_duration(now - samples[-1].at)
        return Verdict(action=Action.KEEP, why=f"not judged: there have been no readings for {silent_s}")
    countable = [sample for sample in samples if _counts(sample, policy, started_at, keep_until)]
    idle = _idle_run(countable, policy)
    if not idle:
        return Verdict(action=Action.KEEP, why=_why_none(countable, policy))
    rest_s = (policy.window - len(idle)) * policy.period_s
    if rest_s <= 0:
        return Verdict(action=Action.STOP, why=summary(idle, policy), idle=idle, stop_in_s=0.0)
    warn_s = policy.window_s / 2 if warn_before_s is None else warn_before_s
    return Verdict(
        action=Action.WARN if rest_s <= warn_s else Action.KEEP,
        why=f"{summary(idle, policy)}, of {policy.window}" + (f"; {idle[0].anew} before" if idle[0].anew else ""),
        idle=idle,
        stop_in_s=rest_s,
    )


def _counts(sample: Sample, policy: Policy, started_at: float, keep_until: float | None) -> bool:
    is_kept = keep_until is not None and sample.at < keep_until
    return not is_kept and policy.tick_at(sample.at - started_at) >= policy.first_tick


def _idle_run(samples: Sequence[Sample], policy: Policy) -> tuple[Sample, ...]:
    """Return the latest idle samples without a break, at most one window of them."""
    run: deque[Sample] = deque()
    for sample in reversed(samples):
        if len(run) == policy.window or not sample.is_idle(policy):
            break
        run.appendleft(sample)
        if sample.anew:
            break
    return tuple(run)


def _why_none(samples: Sequence[Sample], policy: Policy) -> str:
    if not samples:
        return "not judged yet"
    known = [percent for percent in samples[-1].percent.values() if percent is not None]
    if known and max(known) >= policy.threshold_percent:
        return f"busy: at {plain(max(known))} %"
    return f"not judged: {samples[-1].unknown or 'it has no GPU'}"
