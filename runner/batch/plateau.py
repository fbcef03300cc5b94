"""Decides when a probe that does not end by itself has seen enough. Pure: it is fed readings and reads no clock.

Memory comes in steps: the driver's context, the weights, the first batch, the optimiser's state after it. A probe may
end when memory has not grown for a while, much longer than any pause so far. If an earlier probe has shown how much
work it takes to settle, it may end after twice that work. Time counts only while the GPU works: reading data and
compiling kernels also keep memory constant. If it is unknown whether the GPU works, all time counts, and the probe
must wait longer.
"""

from __future__ import annotations

from dataclasses import dataclass

GROWTH, GROWTH_MIB = 0.01, 16.0  # growth up to both together is noise of the allocator
SEEN_MIB = 16.0
QUIET_S = 10.0  # long enough for one step of the optimiser, whose state comes last
UNKNOWN = 2.0  # times as long, if it is unknown whether the GPU works
PAUSES = 3.0
AS_LONG_AGAIN = 2.0  # times the work until memory settles, if that is known
BUSY_PERCENT = 5
LONGEST_COUNTED_S = 5.0  # between two readings; a time without readings proves nothing


@dataclass(slots=True)
class Plateau:
    """What the readings of one probe have shown."""

    base_mib: float = 0.0
    least_s: float = QUIET_S
    expected_s: float | None = None  # seconds of work until it settles, as predicted from an earlier probe
    peak_mib: float = 0.0
    first_at: float | None = None  # time of its first memory
    level_mib: float = 0.0  # its level after the last growth
    quiet_s: float = 0.0  # seconds of work since then
    pause_s: float = 0.0  # the longest pause between two growths
    settled_s: float = 0.0  # seconds of work until the last growth
    told_busy: bool = False  # at least one reading said how busy the GPU was
    _last_at: float | None = None

    def add(self, at: float, mib: float | None, utilization: int | None = None) -> bool:
        """Take a reading. Return True when the probe may end. A reading without memory is ignored."""
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
        """Return whether the probe may end."""
        least = self.least_s if self.told_busy else self.least_s * UNKNOWN
        return self.first_at is not None and self.quiet_s >= max(least, self._patience_s)

    @property
    def _patience_s(self) -> float:
        """Return how many quiet seconds make further growth unlikely."""
        if self.expected_s is None:
            return PAUSES * self.pause_s
        return AS_LONG_AGAIN * max(self.expected_s, self.settled_s) - self.settled_s
