"""Sends one notice when a GPU is lost, and one when it is back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.model import GpuHealth
from runner.notices import GpuBack, GpuLost
from runner.step import Step
from runner.store.box import BoxKey

if TYPE_CHECKING:
    from runner.step import Context


class LostGpuWatch(Step):
    """Keeps what it has reported in the database, so that the next runner does not report it again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._any_lost = True  # True until the database has been read once

    def tick(self) -> None:
        """Compare the GPUs with what was reported."""
        gpus = self._context.gpus().values()
        lost = {gpu.uuid: gpu for gpu in gpus if gpu.health is GpuHealth.LOST}
        reported = set(self._context.box.get(BoxKey.LOST_GPUS, ())) if lost or self._any_lost else set()
        well = {gpu.uuid for gpu in gpus if gpu.health is GpuHealth.OK}
        now = (reported - well) | set(lost)  # a GPU that only stopped answering is not back
        self._any_lost = bool(now)
        if now == reported:
            return
        for uuid in now - reported:
            self._context.notices.add(GpuLost(gpu=uuid, index=lost[uuid].index, why=lost[uuid].detail))
        for uuid in reported - now:
            self._context.notices.add(GpuBack(gpu=uuid))
        self._context.box.set(BoxKey.LOST_GPUS, sorted(now) or None)
