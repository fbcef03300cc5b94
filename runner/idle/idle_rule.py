"""Decides whether a job left its GPUs idle for a whole window: gpu_idle_timeout's rule, made safe for unknowns. Pure.

The rule: stop a job when every one of its own GPUs was below the threshold (strictly below, as in the original)
in every sample of a whole window. Samples are taken once per period, at whole multiples of it since the job's start.
The first one that counts is `delay` periods after the start. So a stop comes `(delay + window − 1) × period` after
the start at the earliest.

A sample is the highest reading since the previous sample. The original reads only at the tick, and so takes a job that
works in short bursts between two ticks for an idle one.

An unknown reading never counts as idle: the window starts again after it. The same holds after a time without
readings, and after the machine was asleep. Times are those of the monotonic clock.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from runner.idle.policy import IdlePolicy, format_number
from runner.model import GpuHealth
from runner.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from runner.idle.stall_rule import Standstill
    from runner.model import Gpu

STALE_AFTER_S = 3.0
ASLEEP_AT_LEAST_S = 1.0
HISTORY = 40  # samples before the window, to show when the job was last busy
ADVANCES = "its GPUs are idle, but its counter advances"
_BARS = "▁▂▃▅▇"
_UNKNOWN = "·"


@dataclass(frozen=True, slots=True)
class LoadReading:
    """The job's GPUs at one moment. None means unknown, and `unknown` says why."""

    at: float
    percent: Mapping[str, float | None]
    unknown: str | None = None
    asleep_s: float = 0.0  # seconds the machine has slept since boot: CLOCK_BOOTTIME − CLOCK_MONOTONIC


@dataclass(frozen=True, slots=True)
class Sample:
    """The highest readings of one period."""

    at: float
    percent: Mapping[str, float | None]
    unknown: str | None = None
    interruption: str | None = None  # why earlier samples do not count, or None

    def is_idle(self, policy: IdlePolicy) -> bool:
        """Return whether every GPU is known to have been below the threshold. A job without GPUs is never idle."""
        percents = [percent for percent in self.percent.values() if percent is not None]
        return bool(percents) and len(percents) == len(self.percent) and max(percents) < policy.threshold_percent


def read_own(
    gpus: Iterable[Gpu],
    own: Sequence[str],
    *,
    threshold_percent: float,
    shared: Collection[str] = (),
    by_process: Mapping[str, float] | None = None,
    asleep_s: float = 0.0,
) -> LoadReading | None:
    """Return what the sampler's snapshot says about a job's own GPUs, or None if it lists none of them.

    On a shared GPU, the job's part is the load that the driver reports by process (`by_process`, by UUID). Without
    it, a GPU below the threshold is below it for everybody; above it, the job's part is unknown.
    """
    listed = {gpu.uuid: gpu for gpu in gpus if gpu.uuid in own}
    if not listed:
        return None
    at = max(gpu.sampled_at for gpu in listed.values())
    by_process = by_process or {}
    parts = {uuid: _own_part(listed.get(uuid), uuid, at, by_process.get(uuid)) for uuid in own}
    for uuid in listed.keys() & set(shared) - by_process.keys():
        percent, _ = parts[uuid]
        if percent is not None and percent >= threshold_percent:
            parts[uuid] = None, f"GPU {listed[uuid].index} is shared and the driver does not tell whose load it is"
    reasons = "; ".join(why for _, why in parts.values() if why)
    return LoadReading(at, {uuid: percent for uuid, (percent, _) in parts.items()}, reasons or None, asleep_s)


def _own_part(gpu: Gpu | None, uuid: str, at: float, by_process: float | None) -> tuple[float | None, str]:
    """Return the load, in percent, and why it is unknown."""
    if gpu is None:
        return None, f"{uuid} is not listed"
    if gpu.health is not GpuHealth.OK:
        return None, f"GPU {gpu.index} {gpu.detail or 'gives no reading'}"
    if at - gpu.sampled_at > STALE_AFTER_S:
        return None, f"GPU {gpu.index} was last read {format_duration(at - gpu.sampled_at)} before the others"
    if by_process is not None:
        return by_process, ""
    if gpu.utilization is None:
        return None, f"GPU {gpu.index} does not tell its utilisation"
    return float(gpu.utilization), ""


class IdleAction(str, Enum):
    """What to do with a job."""

    KEEP = "keep"
    WARN = "warn"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
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
    counter: Standstill | None = None,
) -> IdleVerdict:
    """Stop a job whose GPUs did nothing for a whole window; warn `warn_before_s` before (default: half the window).

    `keep_until`: somebody asked to keep the job until then (`math.inf`: for ever). The window begins after that.
    `counter`: the window begins when the job's own counter stands still, and may be shorter or begin later.
    """
    if keep_until is not None and now < keep_until:
        rest = "" if keep_until == math.inf else f" for another {format_duration(keep_until - now)}"
        return IdleVerdict(IdleAction.KEEP, f"somebody asked to keep it{rest}")
    if counter is not None:
        keep_until = max(counter.counts_from(policy.window_s), -math.inf if keep_until is None else keep_until)
        policy = policy.shortened(counter.allowed_s(policy.window_s, warn_before_s or 0.0))
    if samples and now - samples[-1].at > policy.gap_s + policy.period_s:
        silent_s = format_duration(now - samples[-1].at)
        return IdleVerdict(IdleAction.KEEP, f"not judged: there have been no readings for {silent_s}")
    countable = [sample for sample in samples if _counts(sample, policy, started_at, keep_until)]
    idle = _idle_run(countable, policy)
    if not idle:
        is_idle = counter is not None and bool(samples) and samples[-1].is_idle(policy)
        return IdleVerdict(IdleAction.KEEP, ADVANCES if is_idle else _why_none(countable, policy))
    rest_s = (policy.window - len(idle)) * policy.period_s
    if rest_s <= 0:
        return IdleVerdict(IdleAction.STOP, summary(idle, policy), idle, stop_in_s=0.0)
    warn_s = policy.window_s / 2 if warn_before_s is None else warn_before_s
    before = f"; {idle[0].interruption} before" if idle[0].interruption else ""
    why = f"{summary(idle, policy)}, of {policy.window}{before}"
    return IdleVerdict(IdleAction.WARN if rest_s <= warn_s else IdleAction.KEEP, why, idle, rest_s)


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
        if sample.interruption:
            break
    return tuple(run)


def _why_none(samples: Sequence[Sample], policy: IdlePolicy) -> str:
    if not samples:
        return "not judged yet"
    highest = max((percent for percent in samples[-1].percent.values() if percent is not None), default=0.0)
    if highest >= policy.threshold_percent:
        return f"busy: at {format_number(highest)} %"
    return f"not judged: {samples[-1].unknown or 'it has no GPU'}"


def summary(idle: Sequence[Sample], policy: IdlePolicy, names: Mapping[str, str] | None = None) -> str:
    """Return a sentence like `all of GPU 0,1 below 5 % in 60 samples over 5m 00s`."""
    gpus = list(idle[-1].percent) if idle else []
    named = ",".join((names or {}).get(uuid, uuid) for uuid in gpus)
    which = f"all of GPU {named}" if len(gpus) > 1 else f"GPU {named}"
    over = format_duration(len(idle) * policy.period_s)
    return f"{which} below {format_number(policy.threshold_percent)} % in {len(idle)} samples over {over}"


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
    lines = [summary(verdict.idle, policy, names) if verdict.idle else verdict.why]
    for uuid in samples[-1].percent:
        bars = sparkline([sample.percent.get(uuid) for sample in samples], width)
        highest = max((sample.percent[uuid] or 0.0 for sample in verdict.idle), default=None)
        at_most = "" if highest is None else f" at most {format_number(highest)} %"
        lines.append(f"GPU {(names or {}).get(uuid, uuid)} {bars}{at_most}")
    return "\n".join(lines)


def sparkline(values: Sequence[float | None], width: int = 40) -> str:
    """Return at most `width` bars. A bar shows the highest of its values, or `·` if one of them is unknown."""
    each = max(1, math.ceil(len(values) / width))
    return "".join(_bar(values[at : at + each]) for at in range(0, len(values), each))


def _bar(group: Sequence[float | None]) -> str:
    if None in group:
        return _UNKNOWN
    highest = max(value for value in group if value is not None)
    return _BARS[min(len(_BARS) - 1, math.ceil(max(highest, 0.0) / 100 * (len(_BARS) - 1)))]


@dataclass(slots=True)
class Window:
    """Turns readings, about one per second, into samples, and keeps those that the verdict needs."""

    policy: IdlePolicy
    gpus: tuple[str, ...]
    started_at: float
    _samples: deque[Sample] = field(init=False)
    _open: Sample | None = None  # the readings since the last sample
    _tick: int = 0  # number of the last sample
    _last_at: float | None = None
    _asleep_s: float | None = None
    _told: set[str] = field(default_factory=set)  # actions already reported for this idle time
    idle_since: float | None = None  # the first of the latest idle samples

    def __post_init__(self) -> None:
        self._samples = deque(maxlen=self.policy.window + HISTORY)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Return the latest samples, oldest first."""
        return tuple(self._samples)

    def take(self, reading: LoadReading) -> Sample | None:
        """Add a reading. Return the sample that it completes, or None. Ignore a reading no newer than the last."""
        if self._last_at is not None and reading.at <= self._last_at:
            return None
        interruption = self._interruption(reading)
        self._last_at, self._asleep_s = reading.at, reading.asleep_s
        self._open = _merged(None if interruption else self._open, self._of_own(reading), interruption)
        tick = self.policy.tick_at(reading.at - self.started_at)
        if tick <= self._tick:
            return None
        self._tick = tick
        sample, self._open = self._open, None
        self._samples.append(sample)
        is_idle = sample.is_idle(self.policy)
        if sample.interruption or not is_idle:
            self._told.clear()
            self.idle_since = None
        if is_idle and self.idle_since is None:
            self.idle_since = sample.at
        return sample

    def judge(
        self,
        now: float,
        *,
        keep_until: float | None = None,
        warn_before_s: float | None = None,
        counter: Standstill | None = None,
        advancing_s: float | None = None,
    ) -> IdleVerdict:
        """Return what to do with the job now. `advancing_s`: how long a counter may excuse idle GPUs at most."""
        if counter is not None and advancing_s is not None and self.idle_since is not None:
            excused_until = self.idle_since + advancing_s
            if now >= excused_until:
                counter, keep_until = None, max(keep_until or excused_until, excused_until)
        verdict = judge(
            self.samples,
            self.policy,
            now,
            self.started_at,
            keep_until=keep_until,
            warn_before_s=warn_before_s,
            counter=counter,
        )
        if verdict.action is IdleAction.KEEP:
            self._told.clear()
        return verdict

    def is_news(self, verdict: IdleVerdict) -> bool:
        """Return True once for the warning and once for the stop of each idle time, even across runners."""
        if verdict.action is IdleAction.KEEP or verdict.action.value in self._told:
            return False
        self._told.add(verdict.action.value)
        return True

    def to_json(self, boot_id: str) -> dict[str, Any]:
        """Return everything that the next runner needs to continue, if the machine has not been rebooted."""
        return {
            "boot_id": boot_id,
            "policy": self.policy.to_json(),
            "gpus": list(self.gpus),
            "started_at": self.started_at,
            "samples": [_row(sample) for sample in self._samples],
            "open": _row(self._open) if self._open else None,
            "tick": self._tick,
            "last_at": self._last_at,
            "asleep_s": self._asleep_s,
            "told": sorted(self._told),
            "idle_since": self.idle_since,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], boot_id: str) -> Window | None:
        """Continue where another runner stopped. Return None after a reboot, when the stored times mean nothing."""
        if data["boot_id"] != boot_id:
            return None
        gpus = tuple(data["gpus"])
        window = cls(IdlePolicy.from_json(data["policy"]), gpus, data["started_at"])
        window._samples.extend(_sample(row, gpus) for row in data["samples"])
        window._open = _sample(data["open"], gpus) if data["open"] else None
        window._tick, window._last_at, window._asleep_s = data["tick"], data["last_at"], data["asleep_s"]
        window._told, window.idle_since = set(data["told"]), data.get("idle_since")
        return window

    def _of_own(self, reading: LoadReading) -> Sample:
        percent = {uuid: reading.percent.get(uuid) for uuid in self.gpus}
        missing = None in percent.values()
        return Sample(reading.at, percent, (reading.unknown or "a GPU gives no reading") if missing else None)

    def _interruption(self, reading: LoadReading) -> str | None:
        if self._last_at is None:
            return None
        slept_s = reading.asleep_s - (self._asleep_s or 0.0)
        if slept_s >= ASLEEP_AT_LEAST_S:
            return f"the machine was asleep for {format_duration(slept_s)}"
        silent_s = reading.at - self._last_at
        return f"there were no readings for {format_duration(silent_s)}" if silent_s > self.policy.gap_s else None


def _merged(before: Sample | None, new: Sample, interruption: str | None) -> Sample:
    if before is None:
        return replace(new, interruption=interruption)
    percent = {uuid: _higher(before.percent[uuid], now) for uuid, now in new.percent.items()}
    return Sample(new.at, percent, new.unknown or before.unknown, before.interruption)


def _higher(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else max(before, now)


def _row(sample: Sample) -> list[Any]:
    return [sample.at, list(sample.percent.values()), sample.unknown, sample.interruption]


def _sample(row: Sequence[Any], gpus: Sequence[str]) -> Sample:
    at, percents, *reasons = row
    return Sample(at, dict(zip(gpus, percents, strict=True)), *reasons)
