"""The steps that a plan asks for, and the outcomes that its driver reports. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["first", "smaller", "second", "near", "between", "farther"]
Ends = Literal["at plateau", "by itself"]
EndedBy = Literal["plateau", "itself", "limit"]


@dataclass(frozen=True, slots=True)
class Probe:
    """Run the job for a short time at this batch, with the arguments for probes, and measure."""

    batch: int
    kind: Kind
    ends: Ends
    limit_s: float
    quiet_s: float  # shortest time of a plateau
    expected_s: float | None = None  # seconds of work until memory settles, as predicted from an earlier probe


@dataclass(frozen=True, slots=True)
class Run:
    """Start the real run at this batch. If it runs out of memory, the next step starts it again at a smaller one."""

    batch: int
    why: str
    confident: bool  # the batch comes from measurements


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Let the job fail, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The real run has ended, but not because memory ran out."""

    batch: int


Step = Probe | Run | GiveUp | RunEnded


@dataclass(frozen=True, slots=True)
class Measured:
    """It ran. For a probe: the memory it used. For the real run: its peak."""

    peak_mib: float
    base_mib: float = 0.0  # the reading before it came; 0 if memory is known per process
    seconds: float = 0.0
    ended_by: EndedBy = "plateau"
    settled_s: float = 0.0  # seconds of work until its memory last grew: about one step of the optimiser

    @property
    def used_mib(self) -> float:
        """Return the memory of the job itself, in MiB."""
        return self.peak_mib - self.base_mib


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """It ended because GPU memory ran out."""

    peak_mib: float | None = None  # its own memory before it ended
    wanted_mib: float | None = None  # the size of the allocation that failed, if the output says so
    seconds: float = 0.0  # how long it ran


@dataclass(frozen=True, slots=True)
class Failed:
    """It failed by itself, and not because GPU memory ran out."""

    exit: str  # `exit code 2`, `signal 11`, `killed for want of host memory`
    output: str = ""  # the part of it that matters
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """The memory it used is unknown: no reading, other processes on the GPU, unified memory, or no attribution."""

    why: str
    seconds: float = 0.0
    blind: bool = False  # readings were missing; when they come back, the probe can be repeated


Outcome = Measured | OutOfMemory | Failed | Unmeasured
