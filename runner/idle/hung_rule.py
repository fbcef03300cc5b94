"""Decides whether a job is hung at 100 %: its GPUs spin but do no work, as in a deadlock of NCCL. Pure.

The idle rule does not find it: a kernel that waits for a peer keeps `utilization` at 100 %. The signs are power, which
falls to a fraction of what this job usually draws, and a log without new output. Neither is proof. So by default the
owner gets a message, and the job is stopped only if another job waits for its GPUs and the signs are clear.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import astuple, dataclass, field, replace
from enum import Enum
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from runner.errors import UserError
from runner.idle.policy import format_number
from runner.units import format_duration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.idle.stall_rule import Standstill

FORM = "write yield, alert, kill or off, and perhaps after how long without output, like alert:15m"

SPINNING_PERCENT = 95.0
RESTING_PERCENT = 5.0  # GPUs below this are left out: one may do nothing while the others wait for it
RUNNING_PERCENT = 50.0  # below this a job loads data or waits, and its power says nothing about its work
LOW_POWER = 0.5  # of the job's own usual power
SPINNING_POWER = 0.35  # of the GPUs' power limit; deadlocks were seen at 17 to 27 %
EVERY_S = 10.0
UNKNOWN_FOR_S = 3600.0  # if its usual power is unknown, low power may be normal: after this long, `yield` spares it
LONGEST_GAP_S = 60.0
USUAL_AT_LEAST = 12  # two minutes of work; less says nothing about what is usual
USUAL_AT_MOST = 360  # the latest hour of work
_SHORTEST_S, _LONGEST_S = 60.0, 86400.0


class HungAction(str, Enum):
    """What to do about a job that looks hung."""

    YIELD = "yield"  # stop it if another job waits for its GPUs
    ALERT = "alert"
    KILL = "kill"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class HungPolicy:
    """What to do, and after how long without output."""

    action: HungAction = HungAction.YIELD
    silent_s: float = 600.0

    @property
    def stops(self) -> bool:
        """Return whether the job may be stopped."""
        return self.action in (HungAction.YIELD, HungAction.KILL)

    @property
    def alert_s(self) -> float:
        """Return after how many silent seconds the owner gets a message: half the time if the job may be stopped."""
        return self.silent_s / 2 if self.stops else self.silent_s


DEFAULT = HungPolicy()


def with_counter(policy: HungPolicy, counter: Standstill | None) -> HungPolicy:
    """Return the policy with a shorter silence, if the job's own counter says that it is stalled."""
    if counter is None:
        return policy
    return replace(policy, silent_s=min(policy.silent_s, counter.allowed_s(policy.silent_s)))


def parse_policy(text: str) -> HungPolicy:
    """Parse a policy like `alert`, `kill:15m` or `off`. Raise UserError that says what to write instead."""
    word, colon, after = (part.strip() for part in text.strip().lower().partition(":"))
    if word not in {action.value for action in HungAction} or (colon and (not after or word == HungAction.OFF.value)):
        raise UserError(f"{text!r} is not a rule for hung jobs: {FORM}")
    silent_s = parse_duration(after) if after else DEFAULT.silent_s
    if not _SHORTEST_S <= silent_s <= _LONGEST_S:
        raise UserError(f"{after!r} is not a valid time without output: write one from 1m to 1d, like 10m")
    return HungPolicy(HungAction(word), silent_s)


def format_policy(policy: HungPolicy) -> str:
    """Return the text that parse_policy reads as this policy."""
    if policy.action is HungAction.OFF or policy.silent_s == DEFAULT.silent_s:
        return policy.action.value
    return f"{policy.action.value}:{format_number(policy.silent_s)}s"


@dataclass(frozen=True, slots=True)
class Pulse:
    """All GPUs of a job at one moment. None means unknown, or shared with another job."""

    at: float  # monotonic clock
    percent: float | None  # of the least busy GPU, not counting those that do nothing
    power_w: float | None  # sum over all GPUs
    limit_w: float | None = None  # sum of their power limits; None for a single GPU, which has no peer to wait for


def pulse(at: float, gpus: Sequence[tuple[float | None, float | None, float | None]]) -> Pulse:
    """Combine utilisation, power and power limit of each of the job's GPUs."""
    percents = [percent for percent, _, _ in gpus if percent is not None]
    powers = [watts for _, watts, _ in gpus if watts is not None]
    limits = [limit_w for _, _, limit_w in gpus if limit_w]
    if not gpus or not len(percents) == len(powers) == len(gpus):
        return Pulse(at, None, None)
    busy = [percent for percent in percents if percent >= RESTING_PERCENT] or [max(percents)]
    return Pulse(at, min(busy), sum(powers), sum(limits) if len(limits) == len(gpus) > 1 else None)


@dataclass(slots=True)
class Pulses:
    """The readings of one job, as far as the verdict needs them. Stored as JSON for the next runner."""

    usual_w: deque[float] = field(default_factory=lambda: deque(maxlen=USUAL_AT_MOST))  # while it worked and printed
    since: deque[Pulse] = field(default_factory=deque)  # all readings since it last printed
    silent_s: float = 0.0
    _taken_at: float = -math.inf

    def take(self, new: Pulse, silent_s: float, policy: HungPolicy = DEFAULT) -> None:
        """Add a reading, and the seconds since the job last printed. Keeps one reading in ten seconds."""
        self.silent_s = silent_s
        if new.at - self._taken_at >= EVERY_S:
            self._taken_at = new.at
            self.since.append(new)
        while self.since and self.since[0].at <= new.at - silent_s:
            self._learn(self.since.popleft())
        while len(self.since) > 1 and self.since[1].at <= new.at - policy.silent_s:
            self.since.popleft()  # only the latest `policy.silent_s` seconds count

    def _learn(self, reading: Pulse) -> None:
        if reading.percent is None or reading.power_w is None or reading.percent < RUNNING_PERCENT:
            return
        if not (_only_spins(reading) and self.knows_usual and reading.power_w < LOW_POWER * median(self.usual_w)):
            self.usual_w.append(reading.power_w)

    @property
    def knows_usual(self) -> bool:
        """Return whether it has worked long enough to know its usual power."""
        return len(self.usual_w) >= USUAL_AT_LEAST

    def to_json(self, boot_id: str) -> dict[str, Any]:
        """Return all fields in JSON's own types, except those that from_json can rebuild."""
        since = [list(astuple(reading)) for reading in self.since]
        return {"boot_id": boot_id, "usual_w": list(self.usual_w), "since": since, "silent_s": self.silent_s}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], boot_id: str) -> Pulses:
        """Continue where another runner stopped. After a reboot, start from nothing."""
        if data["boot_id"] != boot_id:
            return cls()
        since = deque(Pulse(*row) for row in data["since"])
        taken_at = since[-1].at if since else -math.inf
        return cls(deque(data["usual_w"], maxlen=USUAL_AT_MOST), since, data["silent_s"], taken_at)


@dataclass(frozen=True, slots=True)
class HungVerdict:
    """Whether the job looks hung, and why or why not, in words."""

    hung: bool
    why: str
    plain: bool = False  # several GPUs wait for each other: so little power means that no work is done


def judge(pulses: Pulses, policy: HungPolicy = DEFAULT, silent_s: float | None = None) -> HungVerdict:
    """Compare a job's latest `silent_s` seconds (default: those of the policy) with its usual power."""
    wanted_s = policy.silent_s if silent_s is None else silent_s
    if policy.action is HungAction.OFF:
        return HungVerdict(False, "not watched")
    if pulses.silent_s < wanted_s:
        return HungVerdict(False, f"it showed signs of life {format_duration(pulses.silent_s)} ago")
    latest = pulses.since[-1].at if pulses.since else 0.0
    return _judge_silent([reading for reading in pulses.since if reading.at >= latest - wanted_s], pulses, wanted_s)


def _judge_silent(readings: list[Pulse], pulses: Pulses, wanted_s: float) -> HungVerdict:
    percents = [reading.percent for reading in readings if reading.percent is not None]
    powers = [reading.power_w for reading in readings if reading.power_w is not None]
    if len(percents) < len(readings) or len(powers) < len(readings):
        return HungVerdict(False, "not judged: utilisation or power is not known")
    if _has_gaps(readings, wanted_s):
        return HungVerdict(False, "not judged: readings are missing")
    if min(percents) < SPINNING_PERCENT:
        return HungVerdict(False, f"its GPUs are at {min(percents):.0f} %")
    if pulses.knows_usual:
        beside_w, beside_what, low = median(pulses.usual_w), "its usual power", LOW_POWER
    elif readings[-1].limit_w:
        beside_w, beside_what, low = readings[-1].limit_w, "what its GPUs may draw", SPINNING_POWER
    else:
        return HungVerdict(False, "not judged: its usual power is not known yet")
    if max(powers) >= low * beside_w:
        return HungVerdict(False, f"it draws {_percent(max(powers), beside_w)} of {beside_what}")
    share = _percent(median(powers), beside_w)
    why = f"looks hung: {pulses.silent_s / 60:.0f} min silent at {share} of {beside_what}"
    is_sure = pulses.knows_usual or pulses.silent_s < max(UNKNOWN_FOR_S, 3 * wanted_s)
    return HungVerdict(True, why, plain=is_sure and all(map(_only_spins, readings)))


def _only_spins(reading: Pulse) -> bool:
    """Return whether several GPUs at 100 % draw so little power that they must be waiting for each other."""
    if reading.percent is None or reading.power_w is None or reading.limit_w is None:
        return False
    return reading.percent >= SPINNING_PERCENT and reading.power_w < SPINNING_POWER * reading.limit_w


def _percent(watts: float, of_w: float) -> str:
    return f"{100 * watts / max(of_w, 1.0):.0f} %"


def _has_gaps(readings: list[Pulse], wanted_s: float) -> bool:
    """Return whether readings are missing in the silent time, except in its first few seconds."""
    moments = [reading.at for reading in readings]
    covered_s = moments[-1] - moments[0] if moments else 0.0
    holes = [later - earlier for earlier, later in pairwise(moments)]
    return covered_s < wanted_s - 3 * EVERY_S or max(holes, default=0.0) > LONGEST_GAP_S
