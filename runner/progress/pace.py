"""How fast a job advances, and when it will be done: a rate and an estimate that pauses do not spoil. Pure.

A pause is a gap in which the counter took more than twice its usual time per step, and a second more: an evaluation, a
checkpoint, a stall. The rate leaves pauses out. The estimate adds them again, at the share of time they took so far,
without the first few gaps: programs compile and fill caches there. The range says how much may be wrong: before the
first pause nobody knows how long pauses will be.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass, field, fields
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

GAPS = 256
FIRST_GAPS = 3  # they may be slow
SHORTEST_GAP_S = 1.0  # advances closer together are taken as one
PAUSE_TIMES, PAUSE_S = 2.0, 1.0
INTERRUPTED_TIMES = 1.05  # if an evaluation was seen in between
FEWEST_GAPS = 2
NO_PAUSE_YET = 1.0  # what pauses may add while none was seen; less from a fifth to half of the run
LEAST_DOUBT = 0.04
_NAMES = {math.inf: "inf", -math.inf: "-inf"}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is. None means unknown. The first eight fields are for everybody, the others for the watchdogs."""

    position: float | None = None
    total: float | None = None
    unit: str | None = None
    rate: float | None = None  # units per second, without pauses
    eta_s: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    phase: str | None = None  # train, eval, prepare or download, perhaps with `, epoch 3 of 10`
    at: float | None = None
    eta_low_s: float | None = None
    eta_high_s: float | None = None
    advanced_at: float | None = None  # when any counter of its work last moved
    step_s: float | None = None  # usual seconds per unit
    gap_s: float | None = None  # usual seconds between two advances
    longest_pause_s: float = 0.0
    pauses: int = 0
    evaluated: bool = False  # an evaluation was read between two advances
    work: bool = False  # its own counter was seen, not only downloads and the like

    def to_json(self) -> dict[str, Any]:
        """Return all fields. JSON has no NaN and no infinity: metrics hold them as "nan", "inf" and "-inf"."""
        return {**asdict(self), "metrics": metrics_to_json(self.metrics)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Progress:
        """Build a progress from the output of to_json. Unknown keys are ignored."""
        known = {one.name: data[one.name] for one in fields(cls) if one.name in data}
        metrics = {name: float(value) for name, value in (data.get("metrics") or {}).items()}
        return cls(**{**known, "metrics": metrics})


def metrics_to_json(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """Return metrics in JSON's own types. `float` reads all of them back."""
    return {name: value if math.isfinite(value) else _NAMES.get(value, "nan") for name, value in metrics.items()}


@dataclass(frozen=True, slots=True)
class EndEstimate:
    """Seconds until the end, at least and at most."""

    eta_s: float
    low_s: float
    high_s: float


@dataclass(slots=True)
class Pace:
    """The advances of one counter, as far as rate and estimate need them."""

    gaps: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=GAPS))  # seconds, steps
    at: float | None = None
    position: float = 0.0
    seen: int = 0  # advances
    steps: float = 0.0  # and seconds, pauses among them, since the first few gaps
    seconds: float = 0.0
    pause_s: float = 0.0
    pauses: int = 0
    longest_pause_s: float = 0.0
    gap_s: float | None = None
    interrupted: bool = False  # an evaluation was seen since the last advance
    evaluated: bool = False  # an evaluation was seen between two advances, after the first few
    usual_s: float | None = None

    def advance(self, position: float, at: float) -> None:
        """Add a position. One that does not advance only changes where the next one counts from."""
        taken_s, steps = at - (self.at if self.at is not None else at), position - self.position
        if self.at is None or steps < 0 or taken_s < 0:
            self.at, self.position = at, position
        elif steps > 0 and taken_s == 0 and self.gaps:  # several lines were read at once
            self._extend(0.0, steps)
            self.position = position
        elif steps > 0 and taken_s > 0:
            self.at, self.position = at, position
            self._add(taken_s, steps)

    def _add(self, taken_s: float, steps: float) -> None:
        self.seen += 1
        usual_s = self.step_s
        expected_s = steps * usual_s if usual_s is not None else taken_s
        longest_s = max(PAUSE_TIMES * expected_s, expected_s + PAUSE_S)
        longest_s = INTERRUPTED_TIMES * expected_s if self.interrupted else longest_s
        is_pause = self.seen > FIRST_GAPS and taken_s > longest_s
        if self.seen > FIRST_GAPS:
            self.evaluated |= self.interrupted
            self.steps, self.seconds = self.steps + steps, self.seconds + taken_s
        self.interrupted = False
        if is_pause:
            self.pauses += 1
            self.pause_s += taken_s - expected_s
            self.longest_pause_s = max(self.longest_pause_s, taken_s)
            return
        self.gap_s = taken_s if self.gap_s is None or self.seen <= FIRST_GAPS else 0.9 * self.gap_s + 0.1 * taken_s
        if self.seen > FIRST_GAPS + 1 and self.gaps[-1][0] + taken_s <= max(SHORTEST_GAP_S, self.seconds / GAPS):
            self._extend(taken_s, steps)
        else:
            self.gaps.append((taken_s, steps))
            self.usual_s = None

    def _extend(self, taken_s: float, steps: float) -> None:
        last_s, last_steps = self.gaps[-1]
        self.gaps[-1] = last_s + taken_s, last_steps + steps

    @property
    def step_s(self) -> float | None:
        """Return the usual seconds per step, without pauses and slow first steps."""
        if self.usual_s is None and self.gaps:
            middle_s = median(taken_s / steps for taken_s, steps in self.gaps)
            usual = [(s, n) for s, n in self.gaps if s <= max(PAUSE_TIMES * n * middle_s, n * middle_s + PAUSE_S)]
            self.usual_s = sum(s for s, _ in usual) / sum(n for _, n in usual)
        return self.usual_s

    def estimate(self, left: float, at: float) -> EndEstimate | None:
        """Return when this many steps will be done, or None after too few advances."""
        step_s = self.step_s
        if step_s is None or self.at is None or len(self.gaps) < FEWEST_GAPS:
            return None
        pause_s = self.pause_s / self.steps if self.steps else 0.0
        elapsed_s = min(max(at - self.at, 0.0), self.gap_s or 0.0)
        doubt = 1 / math.sqrt(self.pauses) if self.pauses else 0.0
        overall_s = (self.seconds - self.pause_s) / self.steps if self.steps else step_s
        low_s = left * (min(step_s, overall_s) * (1 - LEAST_DOUBT) + pause_s * max(1 - doubt, 0.0)) - elapsed_s
        high_s = left * (max(step_s, overall_s) * (1 + self._more(left)) + pause_s * (1 + doubt))
        high_s += self.longest_pause_s if left else 0.0
        eta_s = max(left * (step_s + pause_s) - elapsed_s, 0.0)
        return EndEstimate(eta_s, max(min(low_s - self.longest_pause_s, eta_s), 0.0), max(high_s, eta_s))

    def _more(self, left: float) -> float:
        """Return the part by which an estimate may be too short, if no pause was seen yet."""
        if self.pauses:
            return LEAST_DOUBT
        done = min(max(self.steps / max(self.steps + left, 1.0), 0.2), 0.5)
        return LEAST_DOUBT + NO_PAUSE_YET * ((0.5 - done) / 0.3) ** 2

    def to_json(self) -> dict[str, Any]:
        """Return all fields in JSON's own types."""
        return {**asdict(self), "gaps": [list(gap) for gap in self.gaps]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Pace:
        """Build a pace from the output of to_json."""
        return cls(**{**data, "gaps": deque(((s, n) for s, n in data["gaps"]), maxlen=GAPS)})
