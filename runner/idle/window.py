"""The samples of one job over time, passed on from one runner to the next. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from runner.idle.judgement import IdleAction, judge
from runner.idle.policy import IdlePolicy
from runner.idle.readings import Sample
from runner.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.idle.judgement import IdleVerdict
    from runner.idle.readings import LoadReading

ASLEEP_AT_LEAST_S = 1.0
HISTORY = 40  # samples before the window, to show when the job was last busy


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

    def judge(self, now: float, *, keep_until: float | None = None, warn_before_s: float | None = None) -> IdleVerdict:
        """Return what to do with the job now."""
        if keep_until is not None and now < keep_until:
            self._told.clear()
        return judge(
            self.samples, self.policy, now, self.started_at, keep_until=keep_until, warn_before_s=warn_before_s
        )

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
            "samples": [_row(sample, self.gpus) for sample in self._samples],
            "open": _row(self._open, self.gpus) if self._open else None,
            "tick": self._tick,
            "last_at": self._last_at,
            "asleep_s": self._asleep_s,
            "told": sorted(self._told),
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
        window._told = set(data["told"])
        return window

    def _of_own(self, reading: LoadReading) -> Sample:
        percent = {uuid: reading.percent.get(uuid) for uuid in self.gpus}
        missing = None in percent.values()
        return Sample(reading.at, percent, (reading.unknown or "a GPU gives no reading") if missing else None)

    def _interrupted(self, reading: LoadReading) -> str | None:
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
