"""What a plan asks for, and what its driver answers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["first", "smaller", "second", "near", "between", "farther"]
Ends = Literal["at plateau", "by itself"]
EndedBy = Literal["plateau", "itself", "limit"]


@dataclass(frozen=True, slots=True)
class Probe:
    """Run the job for a short time at this batch, with the arguments of a probe, and measure."""

    batch: int
    kind: Kind
    ends: Ends
    limit_s: float
    quiet_s: float  # a plateau must last so long
    expected_s: float | None = None  # of work until memory settles, as an earlier probe foretells


@dataclass(frozen=True, slots=True)
class Run:
    """Start the real run at this batch; it is watched, and steps back if memory runs out."""

    batch: int
    why: str
    confident: bool  # the batch comes from measurements


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job fails, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """The real run has ended, and not for want of memory."""

    batch: int


Step = Probe | Run | GiveUp | Done


@dataclass(frozen=True, slots=True)
class Measured:
    """It ran. For a probe: what it used; for the real run: the peak of all of it."""

    peak_mib: float
    base_mib: float = 0.0  # what the same reading showed before it came; 0 where processes are told apart
    seconds: float = 0.0
    ended_by: EndedBy = "plateau"
    settled_s: float = 0.0  # of work, until its memory last grew: about one step of the optimiser

    @property
    def used_mib(self) -> float:
        """Its own memory."""
        return self.peak_mib - self.base_mib


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """It ended because GPU memory ran out."""

    peak_mib: float | None = None  # its own, before it ended
    wanted_mib: float | None = None  # the allocation that failed, where the output tells
    seconds: float = 0.0  # that it had run


@dataclass(frozen=True, slots=True)
class Failed:
    """It ended by itself, not well, and not for want of GPU memory."""

    exit: str  # `exit code 2`, `signal 11`, `killed for want of host memory`
    output: str = ""  # the part of it that matters
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """What it used cannot be known: no reading, neighbours, unified memory, or it was not attributable."""

    why: str
    seconds: float = 0.0
    blind: bool = False  # readings stayed away; they may come back, and the probe can be repeated then


Outcome = Measured | OutOfMemory | Failed | Unmeasured
