"""Check the specs of new and edited jobs against this box."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.api.specs import refuse_unrunnable
from runner.config import home
from runner.errors import UserError
from runner.gpu.availability import room_of
from runner.gpu.published import read_published
from runner.model import GpuHealth, State
from runner.schedule.feasibility import never_fits
from runner.schedule.request import request_of
from runner.store.box import BoxKey
from runner.store.box_limits import box_limits
from runner.units import format_duration

if TYPE_CHECKING:
    from runner.api.queue import Queue
    from runner.model import JobSpec, Snapshot
    from runner.schedule.choice import Room


class SpecChecks:
    """What this box adds to a spec, and what it refuses."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def with_time_limit(self, spec: JobSpec) -> JobSpec:
        """Return the spec, with the box's default time limit if it names none."""
        usual_s = self._queue.box.get(BoxKey.TIMES, {}).get("usual_s")
        return replace(spec, time_limit_s=usual_s) if spec.time_limit_s is None and usual_s is not None else spec

    def check(self, spec: JobSpec) -> None:
        """Raise UserError for a job that could never run here."""
        if not spec.command.strip():
            raise UserError(f"There is no command. Try: {self._queue.typed('submit -- python train.py')}")
        refuse_unrunnable(spec)
        self._refuse_too_long(spec)
        self.refuse_unmet(spec)
        published = read_published(self._queue.home)
        snapshot = published[0] if published else None
        is_blind = snapshot is not None and snapshot.trouble is not None and not snapshot.gpus
        if snapshot is not None and not (spec.gpus and is_blind):  # GPUs that cannot be read may come back
            self._refuse_too_large(spec, snapshot)
        elif home.setting("GPUS") == "none" and spec.gpus:
            raise UserError("This box is set up without GPUs (NIGHTSHIFT_GPUS=none). Use --gpus 0.")

    def _refuse_too_large(self, spec: JobSpec, snapshot: Snapshot) -> None:
        box = self._queue.box
        rooms = _existing(snapshot, int(box.get(BoxKey.SLOTS, 1)))
        limits = box_limits(self._queue.store)
        if reason := never_fits(request_of(spec), rooms, int(box.get(BoxKey.CPU_SLOTS, 1)), limits):
            raise UserError(_why_unsupported(snapshot) if spec.gpus and not rooms and snapshot.gpus else reason)

    def _refuse_too_long(self, spec: JobSpec) -> None:
        longest_s = self._queue.box.get(BoxKey.TIMES, {}).get("longest_s")
        if longest_s is not None and (spec.time_limit_s is None or spec.time_limit_s > longest_s):
            raise UserError(f"Jobs may run for {format_duration(longest_s)} here: use --time, up to that.")

    def refuse_unmet(self, spec: JobSpec) -> None:
        """Raise UserError if a job it depends on does not exist, or ended without the success it needs."""
        for other in (*spec.after, *spec.after_ok):
            state = self._queue.job(other).state
            if other in spec.after_ok and state.final and state is not State.SUCCEEDED:
                raise UserError(
                    f"Job {other} has ended ({state.value.lower()}), so a job after its success would never start."
                    f" {self._queue.typed(f'rerun {other}')} tries it again; --after {other} takes any end."
                )

    def refuse_snapshot_missing(self, spec: JobSpec) -> None:
        """Raise UserError if the snapshot that a job is to run from has been removed."""
        if spec.snapshot:
            from runner.snapshot import code_copy

            code_copy.refuse_gone(self._queue.home, spec)


def _existing(snapshot: Snapshot, slots: int) -> list[Room]:
    """Return the usable GPUs as if nothing ran on them."""
    usable = [gpu for gpu in snapshot.gpus if gpu.health is not GpuHealth.UNSUPPORTED]
    return [room_of(replace(gpu, memory_used_mib=0), (), slots, None) for gpu in usable]


def _why_unsupported(snapshot: Snapshot) -> str:
    """Return why no GPU of the box can be used for jobs, in the driver's words."""
    details = ". ".join(f"GPU {gpu.index} {gpu.detail}" for gpu in snapshot.gpus)
    return f"This box has no GPU for jobs. {details}. For a job that needs none: --gpus 0"
