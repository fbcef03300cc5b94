"""Keeps what clients need to know of the box, and tells when it is drained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.notices import Drained
from runner.step import Step
from runner.store.box import BoxKey, keep_limits

if TYPE_CHECKING:
    from runner.step import Context


class BoxState(Step):
    """Writes the settings that clients need when the runner comes up. Sends a notice when a drain is complete."""

    def __init__(self, context: Context) -> None:
        self._context = context
        settings, box = context.settings, context.box
        with context.store.transaction():
            box.set(BoxKey.SLOTS, settings.slots_per_gpu)
            box.set(BoxKey.CPU_SLOTS, settings.cpu_slots)
            shares = {"max_utilization": settings.free_utilization, "max_foreign_percent": settings.free_memory}
            box.set(BoxKey.FREE, shares)
            keep_limits(box, settings)

    def tick(self) -> None:
        """Send the notice once, when nothing is running any more."""
        if self._context.live():
            return
        box = self._context.box
        draining = box.get(BoxKey.DRAINING)
        if draining and not draining.get("told"):
            box.set(BoxKey.DRAINING, {**draining, "told": True})
            self._context.notices.add(Drained(by=draining["by"], since=draining["at"]))
