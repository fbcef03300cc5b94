"""GPUs that a job has just left: nothing starts there until a later reading shows that its memory is back."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from runner.gpu.availability import why_not_free
from runner.notices import GpuHeld

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.model import Gpu
    from runner.step import Context

ECHO_S = 2.0
SETTLES_WITHIN_S = 10.0
LOOK_AGAIN_S = 0.05


class FreedGpus:
    """Knows when our last job left each GPU."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._will_ask = False
        self._gone_at: dict[str, float] = {}  # by UUID, monotonic clock

    def __contains__(self, uuid: str) -> bool:
        return uuid in self._gone_at

    def add(self, gpus: Iterable[str], gone_at: float) -> None:
        """Note that a job left these GPUs."""
        self._gone_at |= dict.fromkeys(gpus, gone_at)

    def why_not(self, gpu: Gpu, leased: int) -> str | None:
        """Return why no job may start on a GPU where this many of ours run; None if one may."""
        gone_at = self._gone_at.get(gpu.uuid)
        if gone_at is not None and gpu.sampled_at <= gone_at:
            self._context.engine.read_gpus()
            return "is being read to see that its memory is back"
        # the driver still reports the load of our own job for a moment after its end
        echo = gone_at is not None and time.monotonic() - gone_at < ECHO_S
        why_not = why_not_free(
            gpu,
            leased_by_us=leased,
            max_utilization=math.inf if echo else self._context.settings.free_utilization,
            max_foreign_share=self._context.settings.free_memory / 100,
        )
        if gone_at is not None and not leased:
            self._await_memory(gpu, gone_at, why_not)
        return why_not

    def _await_memory(self, gpu: Gpu, gone_at: float, why_not: str | None) -> None:
        """Wait for the memory of an ended job to come back. After too long, send a notice that says who holds it."""
        since_s = time.monotonic() - gone_at
        if why_not is None:
            if since_s > ECHO_S:
                del self._gone_at[gpu.uuid]
        elif since_s < SETTLES_WITHIN_S:
            self._ask_again()
        else:
            del self._gone_at[gpu.uuid]
            self._context.notices.add(GpuHeld(gpu=gpu.uuid, index=gpu.index, why=why_not))

    def _ask_again(self) -> None:
        """Ask for a reading in a moment. One timer serves all GPUs."""
        if self._will_ask:
            return
        self._will_ask = True

        def ask() -> bool:
            self._will_ask = False
            self._context.engine.read_gpus()
            return False

        self._context.waiter.after(LOOK_AGAIN_S, ask)
