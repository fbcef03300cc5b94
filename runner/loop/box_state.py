"""Keeps what clients need to know of the box, and tells when it is drained."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

from runner.model import Ref
from runner.notices import Drained
from runner.step import Step
from runner.store.box import BoxKey, keep_limits

if TYPE_CHECKING:
    from runner.config.settings import Settings
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
            box.set(BoxKey.ENGINE, _engine_words(settings))
            keep_limits(box, settings)

    def tick(self) -> None:
        """Send the notice once, when nothing is running any more. Keep what the engine says about its queue."""
        if self._context.engine.can.places:
            self._keep_words()
        if self._context.live():
            return
        box = self._context.box
        draining = box.get(BoxKey.DRAINING)
        if draining and not draining.get("told"):
            box.set(BoxKey.DRAINING, {**draining, "told": True})
            self._context.notices.add(Drained(by=draining["by"], since=draining["at"]))

    def _keep_words(self) -> None:
        box, engine = self._context.box, self._context.engine
        refs = [Ref(row.id, row.attempt, row.run_id) for row in self._context.live()]
        words = {str(ref.job_id): facts.said for ref, facts in engine.look(refs).items() if facts.said}
        stored = box.get(BoxKey.ENGINE) or {}
        if stored.get("said", {}) != words:
            box.set(BoxKey.ENGINE, {**stored, "said": words})


def _engine_words(settings: Settings) -> dict[str, Any] | None:
    """Return what clients need to know of an engine that is not this host."""
    if settings.engine == "local":
        return None
    account = None if settings.slurm_shared_account else getpass.getuser()
    return {"name": settings.engine, "ahead": settings.slurm_ahead, "account": account}
