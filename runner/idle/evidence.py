"""The evidence that a job was idle: a sentence, and bars as text. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from runner.idle.policy import Policy, plain
from runner.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.idle.judgement import Verdict
    from runner.idle.readings import Sample

_BARS = "▁▂▃▅▇"
_UNKNOWN = "·"


def summary(idle: Sequence[Sample], policy: Policy, names: Mapping[str, str] | None = None) -> str:
    """Return a sentence like `all of GPU 0,1 below 5 % in 60 samples over 5m 00s`."""
    gpus = list(idle[-1].percent) if idle else []
    named = ",".join((names or {}).get(uuid, uuid) for uuid in gpus)
    which = f"all of GPU {named}" if len(gpus) > 1 else f"GPU {named}"
    over = format_duration(len(idle) * policy.period_s)
    return f"{which} below {plain(policy.threshold_percent)} % in {len(idle)} samples over {over}"


def evidence(
    samples: Sequence[Sample], verdict: Verdict, policy: Policy, names: Mapping[str, str] | None = None, width: int = 40
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
