"""Turns the samples of a window into a verdict, and shows the evidence: a sentence, and bars as text. Pure."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from runner.idle.policy import IdlePolicy, plain
from runner.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.idle.readings import Sample

_BARS = "▁▂▃▅▇"
_UNKNOWN = "·"


class IdleAction(str, Enum):
    """What to do with a job."""

    KEEP = "keep"
    WARN = "warn"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleVerdict:
    """What to do with a job, and why."""

    action: IdleAction
    why: str  # half a sentence, for people
    idle: tuple[Sample, ...] = ()  # the unbroken run of idle samples up to now
    stop_in_s: float | None = None  # if it stays idle; None: no countdown


def judge(
    samples: Sequence[Sample],
    policy: IdlePolicy,
    now: float,
    started_at: float,
    *,
    keep_until: float | None = None,
    warn_before_s: float | None = None,
) -> IdleVerdict:
    """Stop a job whose GPUs did nothing for a whole window; warn `warn_before_s` before (default: half the window).

    `keep_until`: somebody asked to keep the job until then (`math.inf`: for ever). The window begins after that.
    """
    if keep_until is not None and now < keep_until:
        rest = "" if keep_until == math.inf else f" for another {format_duration(keep_until - now)}"
        return IdleVerdict(action=IdleAction.KEEP, why=f"somebody asked to keep it{rest}")
    if samples and now - samples[-1].at > policy.gap_s + policy.period_s:
        silent_s = format_duration(now - samples[-1].at)
        return IdleVerdict(action=IdleAction.KEEP, why=f"not judged: there have been no readings for {silent_s}")
    countable = [sample for sample in samples if _counts(sample, policy, started_at, keep_until)]
    idle = _idle_run(countable, policy)
    if not idle:
        return IdleVerdict(action=IdleAction.KEEP, why=_why_none(countable, policy))
    rest_s = (policy.window - len(idle)) * policy.period_s
    if rest_s <= 0:
        return IdleVerdict(action=IdleAction.STOP, why=summary(idle, policy), idle=idle, stop_in_s=0.0)
    warn_s = policy.window_s / 2 if warn_before_s is None else warn_before_s
    return IdleVerdict(
        action=IdleAction.WARN if rest_s <= warn_s else IdleAction.KEEP,
        why=f"{summary(idle, policy)}, of {policy.window}" + (f"; {idle[0].anew} before" if idle[0].anew else ""),
        idle=idle,
        stop_in_s=rest_s,
    )


def _counts(sample: Sample, policy: IdlePolicy, started_at: float, keep_until: float | None) -> bool:
    is_kept = keep_until is not None and sample.at < keep_until
    return not is_kept and policy.tick_at(sample.at - started_at) >= policy.first_tick


def _idle_run(samples: Sequence[Sample], policy: IdlePolicy) -> tuple[Sample, ...]:
    """Return the latest idle samples without a break, at most one window of them."""
    run: deque[Sample] = deque()
    for sample in reversed(samples):
        if len(run) == policy.window or not sample.is_idle(policy):
            break
        run.appendleft(sample)
        if sample.anew:
            break
    return tuple(run)


def _why_none(samples: Sequence[Sample], policy: IdlePolicy) -> str:
    if not samples:
        return "not judged yet"
    known = [percent for percent in samples[-1].percent.values() if percent is not None]
    if known and max(known) >= policy.threshold_percent:
        return f"busy: at {plain(max(known))} %"
    return f"not judged: {samples[-1].unknown or 'it has no GPU'}"


def summary(idle: Sequence[Sample], policy: IdlePolicy, names: Mapping[str, str] | None = None) -> str:
    """Return a sentence like `all of GPU 0,1 below 5 % in 60 samples over 5m 00s`."""
    gpus = list(idle[-1].percent) if idle else []
    named = ",".join((names or {}).get(uuid, uuid) for uuid in gpus)
    which = f"all of GPU {named}" if len(gpus) > 1 else f"GPU {named}"
    over = format_duration(len(idle) * policy.period_s)
    return f"{which} below {plain(policy.threshold_percent)} % in {len(idle)} samples over {over}"


def evidence(
    samples: Sequence[Sample],
    verdict: IdleVerdict,
    policy: IdlePolicy,
    names: Mapping[str, str] | None = None,
    width: int = 40,
) -> str:
    """Return the rule that was met, and a line of bars for each GPU that also shows when it was last busy."""
    if not samples:
        return "no samples"
    gpus = list(samples[-1].percent)
    lines = [summary(verdict.idle, policy, names) if verdict.idle else verdict.why]
    for uuid in gpus:
        values = [sample.percent.get(uuid) for sample in samples]
        known = [sample.percent[uuid] or 0.0 for sample in verdict.idle]
        highest = f" at most {plain(max(known))} %" if known else ""
        lines.append(f"GPU {(names or {}).get(uuid, uuid)} {sparkline(values, width)}{highest}")
    return "\n".join(lines)


def sparkline(values: Sequence[float | None], width: int = 40) -> str:
    """Return at most `width` bars. A bar shows the highest of its values, or `·` if one of them is unknown."""
    each = max(1, math.ceil(len(values) / width))
    groups = [values[at : at + each] for at in range(0, len(values), each)]
    return "".join(_bar(group) for group in groups)


def _bar(group: Sequence[float | None]) -> str:
    if None in group:
        return _UNKNOWN
    highest = max(value for value in group if value is not None)
    return _BARS[min(len(_BARS) - 1, math.ceil(max(highest, 0.0) / 100 * (len(_BARS) - 1)))]
