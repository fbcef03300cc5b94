"""The settings of a batch search, the memory budget, and gradient accumulation. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from runner.batch.plateau import QUIET_S
from runner.errors import UserError
from runner.model import Record

_BOUNDS = {
    **dict.fromkeys(("default", "own", "round_to", "round_from", "cap"), (1, 1 << 20)),
    "margin": (0.1, 1.0),
    "round_loss": (0.0, 1.0),
    "limit_s": (5.0, 3600.0),
    "quiet_s": (0.5, 3600.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings(Record):
    """How to search for a batch size."""

    default: int = 8  # probed first; used if nothing can be measured, unless `own` is given
    own: int | None = None  # the batch the user would choose without probing
    margin: float = 0.92  # the part of the budget that may be used
    round_to: int = 8
    round_from: int = 64
    round_loss: float = 0.05  # rounding may cost this part of the batch; if it costs more, round to 4 or 2
    cap: int = 4096
    limit_s: float = 120.0  # longest time of one probe
    quiet_s: float = QUIET_S  # shortest time of a plateau
    bounded: bool = False  # the probe's own arguments make it end, after training and evaluation

    def __post_init__(self) -> None:
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise UserError(f"{name} of a batch size is {value:g}: write a value from {least:g} to {most:g}")

    @property
    def first(self) -> int:
        """Return the batch of the first probe."""
        return min(self.default, self.cap)

    @property
    def fallback(self) -> int:
        """Return the batch to run at if nothing can be measured."""
        return self.own if self.own is not None else self.first

    def rounded(self, batch: int) -> int:
        """Round down to a multiple of `round_to`, from `round_from` up. Halve the step if that costs too much."""
        step = self.round_to
        while batch >= self.round_from and step > 1:
            down = batch - batch % step
            if down >= batch * (1 - self.round_loss):
                return max(down, 1)
            step //= 2
        return max(batch, 1)


def budget_mib(total_mib: int, reserved_mib: int, used_mib: int, slots: int = 1) -> int:
    """Return how many MiB a job may use: its slot's share of the GPU, and no more than is free.

    `used_mib` is what the GPU showed before the job came. Some drivers count reserved memory as used, so a
    sampler that cannot tell the two apart passes zero for `reserved_mib`.
    """
    usable = total_mib - reserved_mib
    return max(min(usable // max(slots, 1), usable - used_mib), 0)


class Accumulation(NamedTuple):
    """A batch size, and how many batches make one step of the optimiser."""

    batch: int
    steps: int


def accumulate(batch: int, effective: int, gpus: int = 1) -> Accumulation:
    """Return a batch and steps that come close to this effective batch, with at most `batch` samples at a time.

    `effective` is over all GPUs. Take an exact divisor if it costs at most a fifth of the batch, otherwise the nearest.
    """
    each = max(round(effective / max(gpus, 1)), 1)
    if each <= batch:
        return Accumulation(each, 1)
    for exact in range(batch, math.ceil(0.8 * batch) - 1, -1):
        if each % exact == 0:
            return Accumulation(exact, each // exact)
    steps = math.ceil(each / batch)
    return Accumulation(min(max(round(each / steps), 1), batch), steps)
