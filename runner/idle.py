"""Whether a job has left its GPUs idle for a whole window: seed 003's rule, made safe against what is not known. Pure.

The rule: a job is stopped when every one of its own GPUs was below the threshold (strictly, as the original compares)
in every sample of a whole window. Samples are taken each period, at whole multiples of it since the job's start, the
first `delay` periods after the start: so it comes `(delay + window − 1) × period` after the start at the earliest.

A sample is the highest reading since the one before it, up to the reading at its tick. The original reads at the tick
alone, and so takes a job that works in short bursts between two ticks for an idle one.

An unknown reading is never an idle one: the window begins anew after it, as it does after a time without readings
and after the machine was asleep. Times are those of the monotonic clock.
"""

from __future__ import annotations

import math
import re
from collections import deque
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from runner.errors import UserError
from runner.model import GpuHealth
from runner.quantities import format_duration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from runner.model import Gpu

OFF = "off"
FORM = "write it like 5%:5s:60:12 (threshold, period, samples in the window, samples to wait at the start) or off"

_NUMBER = r"[0-9]{1,6}(?:\.[0-9]{1,3})?"
_COUNT = r"[0-9]{1,9}"
_SHORTEST_PERIOD_S, _LONGEST_PERIOD_S = 1.0, 3600.0
_LONGEST_S = 7 * 86400.0
_MOST_SAMPLES = 10_000  # they are kept, and written down for the next runner

SHORTEST_GAP_S = 3.0  # on a busy box readings come late; that is not worth beginning anew for
STALE_AFTER_S = 3.0
ASLEEP_AT_LEAST_S = 1.0
HISTORY = 40  # samples from before the window, to show when it was last busy


# -- the policy ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Policy:
    """When a job counts as idle."""

    threshold_percent: float
    period_s: float
    window: int  # samples, each of which must be below the threshold
    delay: int  # samples to let pass at the start of the job

    @property
    def window_s(self) -> float:
        """How long the job must have been idle."""
        return self.window * self.period_s

    @property
    def gap_s(self) -> float:
        """Readings may be missing for so long before the window begins anew."""
        return max(2 * self.period_s, SHORTEST_GAP_S)

    @property
    def first_tick(self) -> int:
        """The number of the first sample that counts. The original, too, never looks before the first period."""
        return max(self.delay, 1)

    def tick_at(self, since_start_s: float) -> int:
        """The number of periods since the start; what is read every second is read a little early at times."""
        return math.floor((since_start_s + min(0.1, self.period_s / 10)) / self.period_s)

    def to_json(self) -> dict[str, Any]:
        """Everything, in JSON's own types."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Policy:
        """The inverse of to_json."""
        return cls(*(data[name] for name in _PARTS))


DEFAULT = Policy(threshold_percent=5.0, period_s=5.0, window=60, delay=12)


def parse_policy(text: str, default: Policy = DEFAULT) -> Policy | None:
    """A policy from `20%:3s:7:1`, parts left out from the right taken from the default; None for `off`.

    Raises UserError that says what to write instead.
    """
    words = text.strip()
    if words.lower() == OFF:
        return None
    parts = [part.strip() for part in words.split(":")]
    if not words or len(parts) > 4 or not all(parts):
        raise UserError(f"{text!r} is not a rule for idle jobs: {FORM}")
    given = default.to_json()
    for (name, read), part in zip(_PARTS.items(), parts, strict=False):
        given[name] = read(part)
    return _checked(Policy.from_json(given))


def format_policy(policy: Policy | None) -> str:
    """The text that parse_policy reads as this policy."""
    if policy is None:
        return OFF
    return f"{_plain(policy.threshold_percent)}%:{_plain(policy.period_s)}s:{policy.window}:{policy.delay}"


def _threshold(text: str) -> float:
    number = text.removesuffix("%").strip()
    if not re.fullmatch(_NUMBER, number) or float(number) > 100:
        raise UserError(f"{text!r} is not a threshold: write a percentage from 1% to 100%, like 5%")
    if float(number) == 0:
        raise UserError("nothing is ever below 0 %: write 1% for a GPU that does nothing at all, or off")
    return float(number)


def _period(text: str) -> float:
    seconds = round(parse_duration(text), 3)
    if not _SHORTEST_PERIOD_S <= seconds <= _LONGEST_PERIOD_S:
        raise UserError(f"{text!r} is no time between two samples: write one from 1s to 1h, like 5s")
    return seconds


def _window(text: str) -> int:
    if not re.fullmatch(_COUNT, text) or not 1 <= int(text) <= _MOST_SAMPLES:
        raise UserError(
            f"{text!r} is no number of samples: write one from 1 to {_MOST_SAMPLES}, like 60;"
            " a longer period makes the window longer"
        )
    return int(text)


def _delay(text: str) -> int:
    if not re.fullmatch(_COUNT, text):
        raise UserError(f"{text!r} is no number of samples to wait at the start: write 0, 1, 2 …")
    return int(text)


_PARTS: dict[str, Callable[[str], float]] = {
    "threshold_percent": _threshold,
    "period_s": _period,
    "window": _window,
    "delay": _delay,
}


def _checked(policy: Policy) -> Policy:
    for samples, what in ((policy.window, "the window"), (policy.delay, "the wait at the start")):
        if samples * policy.period_s > _LONGEST_S:
            raise UserError(
                f"{what} of {samples} samples every {format_duration(policy.period_s)} is longer than 7 days:"
                " write fewer samples, or off to never stop it"
            )
    return policy


def _plain(number: float) -> str:
    return f"{number:.3f}".rstrip("0").rstrip(".")


# -- readings and samples ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """The job's GPUs at one moment; None is what is not known, and `unknown` says why."""

    at: float
    percent: Mapping[str, float | None]
    unknown: str | None = None
    asleep_s: float = 0.0  # how long the machine has slept since it was booted: CLOCK_BOOTTIME − CLOCK_MONOTONIC


@dataclass(frozen=True, slots=True)
class Sample:
    """The highest readings of one period."""

    at: float
    percent: Mapping[str, float | None]
    unknown: str | None = None
    anew: str | None = None  # why nothing before this sample counts

    def is_idle(self, policy: Policy) -> bool:
        """Whether it is known of every GPU that it was below the threshold; a job without GPUs is never idle."""
        known = [percent for percent in self.percent.values() if percent is not None]
        return bool(known) and len(known) == len(self.percent) and max(known) < policy.threshold_percent


def read_own(
    gpus: Iterable[Gpu],
    own: Sequence[str],
    *,
    threshold_percent: float,
    shared: Collection[str] = (),
    by_process: Mapping[str, float] | None = None,
    asleep_s: float = 0.0,
) -> Reading | None:
    """What the sampler's snapshot says of a job's own GPUs; None if it lists none of them.

    On a shared GPU the job's part is what the driver tells by process, where it does (`by_process`, by UUID). Where it
    does not, a GPU below the threshold is below it for everybody on it; above it nobody knows whose load it is.
    """
    found = {gpu.uuid: gpu for gpu in gpus if gpu.uuid in own}
    if not found:
        return None
    at = max(gpu.sampled_at for gpu in found.values())
    told = by_process or {}
    parts = {uuid: _own_part(found.get(uuid), uuid, at, told) for uuid in own}
    for uuid in found.keys() & set(shared) - told.keys():
        parts[uuid] = _below_for_all(*parts[uuid], found[uuid], threshold_percent)
    percent = {uuid: part for uuid, (part, _) in parts.items()}
    return Reading(at, percent, "; ".join(why for _, why in parts.values() if why) or None, asleep_s)


def _own_part(gpu: Gpu | None, uuid: str, at: float, by_process: Mapping[str, float]) -> tuple[float | None, str]:
    if gpu is None:
        return None, f"{uuid} is not listed"
    if gpu.health is not GpuHealth.OK:
        return None, f"GPU {gpu.index} {gpu.detail or 'gives no reading'}"
    if at - gpu.sampled_at > STALE_AFTER_S:
        return None, f"GPU {gpu.index} was last read {format_duration(at - gpu.sampled_at)} before the others"
    if uuid in by_process:
        return by_process[uuid], ""
    if gpu.utilization is None:
        return None, f"GPU {gpu.index} does not tell its utilisation"
    return float(gpu.utilization), ""


def _below_for_all(percent: float | None, why: str, gpu: Gpu, threshold_percent: float) -> tuple[float | None, str]:
    if percent is None or percent < threshold_percent:
        return percent, why
    return None, f"GPU {gpu.index} is shared and the driver does not tell whose load it is"


@dataclass(slots=True)
class Window:
    """Makes samples of readings as they come, about every second, and keeps those that the judgement needs."""

    policy: Policy
    gpus: tuple[str, ...]
    started_at: float
    _samples: deque[Sample] = field(init=False)
    _open: Sample | None = None  # what has been read since the last sample
    _tick: int = 0  # that of the last sample
    _last_at: float | None = None
    _asleep_s: float | None = None
    _told: set[str] = field(default_factory=set)  # of this time of idleness

    def __post_init__(self) -> None:
        self._samples = deque(maxlen=self.policy.window + HISTORY)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The latest, oldest first."""
        return tuple(self._samples)

    def take(self, reading: Reading) -> Sample | None:
        """Add a reading; the sample that it completes. One that is not newer than the last is passed over."""
        if self._last_at is not None and reading.at <= self._last_at:
            return None
        anew = self._interrupted(reading)
        self._last_at, self._asleep_s = reading.at, reading.asleep_s
        self._open = _merged(None if anew else self._open, self._of_own(reading), anew)
        tick = self.policy.tick_at(reading.at - self.started_at)
        if tick <= self._tick:
            return None
        self._tick = tick
        sample, self._open = replace(self._open, at=reading.at), None
        self._samples.append(sample)
        if sample.anew or not sample.is_idle(self.policy):
            self._told.clear()
        return sample

    def judge(self, now: float, *, keep_until: float | None = None, warn_before_s: float | None = None) -> Verdict:
        """What is to be done with the job now."""
        if keep_until is not None and now < keep_until:
            self._told.clear()
        return judge(
            self.samples, self.policy, now, self.started_at, keep_until=keep_until, warn_before_s=warn_before_s
        )

    def is_news(self, verdict: Verdict) -> bool:
        """True once for the warning and once for the stop of each time of idleness, whoever runs then."""
        if verdict.action is Action.KEEP or verdict.action.value in self._told:
            return False
        self._told.add(verdict.action.value)
        return True

    def to_json(self, boot_id: str) -> dict[str, Any]:
        """For the next runner, which may take it up if the machine has not been restarted."""
        return {
            "boot_id": boot_id,
            "policy": self.policy.to_json(),
            "gpus": list(self.gpus),
            "started_at": self.started_at,
            "samples": [_row(sample, self.gpus) for sample in self._samples],
            "open": _row(self._open, self.gpus) if self._open else None,
            "tick": self._tick,
            "last_at": self._last_at,
            "asleep_s": self._asleep_s,
            "told": sorted(self._told),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], boot_id: str) -> Window | None:
        """Go on where another runner stopped; None after a restart of the machine, when its times mean nothing."""
        if data["boot_id"] != boot_id:
            return None
        gpus = tuple(data["gpus"])
        window = cls(Policy.from_json(data["policy"]), gpus, data["started_at"])
        window._samples.extend(_sample(row, gpus) for row in data["samples"])
        window._open = _sample(data["open"], gpus) if data["open"] else None
        window._tick, window._last_at, window._asleep_s = data["tick"], data["last_at"], data["asleep_s"]
        window._told = set(data["told"])
        return window

    def _of_own(self, reading: Reading) -> Sample:
        percent = {uuid: reading.percent.get(uuid) for uuid in self.gpus}
        missing = None in percent.values()
        return Sample(reading.at, percent, (reading.unknown or "a GPU gives no reading") if missing else None)

    def _interrupted(self, reading: Reading) -> str | None:
        if self._last_at is None:
            return None
        slept_s = reading.asleep_s - (self._asleep_s or 0.0)
        if slept_s >= ASLEEP_AT_LEAST_S:
            return f"the machine was asleep for {format_duration(slept_s)}"
        silent_s = reading.at - self._last_at
        return f"there were no readings for {format_duration(silent_s)}" if silent_s > self.policy.gap_s else None


def _merged(before: Sample | None, new: Sample, anew: str | None) -> Sample:
    if before is None:
        return replace(new, anew=anew)
    percent = {uuid: _highest(before.percent[uuid], now) for uuid, now in new.percent.items()}
    return Sample(new.at, percent, new.unknown or before.unknown, before.anew)


def _highest(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)


def _row(sample: Sample, gpus: Sequence[str]) -> list[Any]:
    return [sample.at, [sample.percent[uuid] for uuid in gpus], sample.unknown, sample.anew]


def _sample(row: Sequence[Any], gpus: Sequence[str]) -> Sample:
    return Sample(row[0], dict(zip(gpus, row[1], strict=True)), row[2], row[3])


# -- the judgement -------------------------------------------------------------------------------------------------


class Action(str, Enum):
    """What is to be done with a job."""

    KEEP = "keep"
    WARN = "warn"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is to be done with a job, and on what grounds."""

    action: Action
    why: str  # one clause for people
    idle: tuple[Sample, ...] = ()  # the samples that count against it, without a break up to now
    stop_in_s: float | None = None  # if it goes on like this; None where nothing is counted


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

    Somebody may have asked to keep it, for ever (`math.inf`) or until a moment: the window begins after that.
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
    """The idle samples up to now without a break, at most a window of them."""
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
        return f"busy: at {_plain(max(known))} %"
    return f"not judged: {samples[-1].unknown or 'it has no GPU'}"


# -- the evidence --------------------------------------------------------------------------------------------------

_BARS = "▁▂▃▅▇"
_UNKNOWN = "·"


def summary(idle: Sequence[Sample], policy: Policy, names: Mapping[str, str] | None = None) -> str:
    """`all of GPU 0,1 below 5 % in 60 samples over 5m 00s`."""
    gpus = list(idle[-1].percent) if idle else []
    named = ",".join((names or {}).get(uuid, uuid) for uuid in gpus)
    which = f"all of GPU {named}" if len(gpus) > 1 else f"GPU {named}"
    over = format_duration(len(idle) * policy.period_s)
    return f"{which} below {_plain(policy.threshold_percent)} % in {len(idle)} samples over {over}"


def evidence(
    samples: Sequence[Sample], verdict: Verdict, policy: Policy, names: Mapping[str, str] | None = None, width: int = 40
) -> str:
    """The rule that was met, and a line of bars for each GPU that also shows when it was last busy."""
    if not samples:
        return "no samples"
    gpus = list(samples[-1].percent)
    lines = [summary(verdict.idle, policy, names) if verdict.idle else verdict.why]
    for uuid in gpus:
        values = [sample.percent.get(uuid) for sample in samples]
        known = [sample.percent[uuid] or 0.0 for sample in verdict.idle]
        highest = f" at most {_plain(max(known))} %" if known else ""
        lines.append(f"GPU {(names or {}).get(uuid, uuid)} {sparkline(values, width)}{highest}")
    return "\n".join(lines)


def sparkline(values: Sequence[float | None], width: int = 40) -> str:
    """One bar per value, or per so many that they fit: the highest of them; `·` where one is unknown."""
    each = max(1, math.ceil(len(values) / width))
    groups = [values[at : at + each] for at in range(0, len(values), each)]
    return "".join(_bar(group) for group in groups)


def _bar(group: Sequence[float | None]) -> str:
    if None in group:
        return _UNKNOWN
    highest = max(value for value in group if value is not None)
    return _BARS[min(len(_BARS) - 1, math.ceil(max(highest, 0.0) / 100 * (len(_BARS) - 1)))]
