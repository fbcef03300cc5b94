"""When a probe without an end of its own has seen enough. Pure: it is fed readings, and keeps no clock.

Memory comes in steps: the driver's context, the weights, the first batch, the optimiser's state after it. A probe may
end when nothing has grown for a while, and for much longer than it ever paused before; where an earlier probe has shown
how much work it takes, when it has worked for twice as long. Time counts only while the GPU works: reading data and
compiling kernels are pauses of the program, not a plateau of its memory. Where it is not known whether the GPU works,
all time counts, and more of it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

GROWTH, GROWTH_MIB = 0.01, 16.0  # less than both together is the allocator's noise
SEEN_MIB = 16.0
QUIET_S = 10.0  # one step of the optimiser must fit: its state comes last
UNKNOWN = 2.0  # times as long, where it is not known whether the GPU works
PAUSES = 3.0
AS_LONG_AGAIN = 2.0  # times the work until memory settles, where that is known
BUSY_PERCENT = 5
LONGEST_COUNTED_S = 5.0  # between two readings; readings that stay away prove nothing


@dataclass(slots=True)
class Plateau:
    """What has been seen of one probe."""

    base_mib: float = 0.0
    least_s: float = QUIET_S
    expected_s: float | None = None  # of work until it settles, as an earlier probe foretells
    peak_mib: float = 0.0
    first_at: float | None = None  # its first memory
    level_mib: float = 0.0  # where it last grew to
    quiet_s: float = 0.0  # of work, since then
    pause_s: float = 0.0  # the longest between two growths
    settled_s: float = 0.0  # of work, until it last grew
    told_busy: bool = False  # at least one reading said how busy the GPU was
    _last_at: float | None = None

    def add(self, at: float, mib: float | None, utilization: int | None = None) -> bool:
        """Take a reading; True when the probe may end. A reading without memory tells nothing."""
        if mib is None:
            return False
        elapsed = 0.0 if self._last_at is None else min(max(at - self._last_at, 0.0), LONGEST_COUNTED_S)
        self._last_at = at
        self.told_busy |= utilization is not None
        used = mib - self.base_mib
        self.peak_mib = max(self.peak_mib, used)
        if self.first_at is None:
            if used > SEEN_MIB:
                self.first_at, self.level_mib = at, used
            return False
        if utilization is None or utilization >= BUSY_PERCENT:
            self.quiet_s += elapsed
        if used > self.level_mib * (1 + GROWTH) + GROWTH_MIB:
            self.pause_s = max(self.pause_s, self.quiet_s)
            self.settled_s += self.quiet_s
            self.level_mib, self.quiet_s = used, 0.0
        return self.done

    @property
    def done(self) -> bool:
        """Whether nothing is left to wait for."""
        least = self.least_s if self.told_busy else self.least_s * UNKNOWN
        return self.first_at is not None and self.quiet_s >= max(least, self._patience_s)

    @property
    def _patience_s(self) -> float:
        """The quiet after which another growth would be a surprise."""
        if self.expected_s is None:
            return PAUSES * self.pause_s
        return AS_LONG_AGAIN * max(self.expected_s, self.settled_s) - self.settled_s
