"""The queue of one state folder, as the terminal and the bot use it: submit, rerun, edit, stop, keep, pause."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from datetime import timedelta
from itertools import repeat
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.api.edits import affects_probe, differences, edited, in_words, to_copy
from runner.api.specs import job_spec, refuse_unrunnable
from runner.api.time_limits import Extending
from runner.config import home
from runner.errors import UserError
from runner.gpu.capacity import room_of
from runner.model import FINAL_STATES, GpuHealth, Job, JobSpec, Reason, State
from runner.processes import linux
from runner.schedule.feasibility import never_fits
from runner.schedule.request import request_of
from runner.store.box import WHEN_EMPTY
from runner.store.box_limits import TIMES, box_limits
from runner.store.dependencies import Dependencies
from runner.store.reruns import Reruns
from runner.store.spec_changes import Edits
from runner.store.watchdog_state import Keep
from runner.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runner.api.edits import Edit
    from runner.model import Snapshot
    from runner.schedule.choice import Room
    from runner.store.groups import Template

SHORTEST_KEEP_S = 1.0


class Queue(Extending):
    """The queue of one state folder, used by one actor."""

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def acting_as(self, actor: str) -> Queue:
        """Return the same queue, over the same connection, for another actor."""
        other = copy.copy(self)
        other.actor = actor
        return other

    # -- submitting --------------------------------------------------------------------------------

    def submit(
        self,
        specs: Sequence[JobSpec],
        variables: Mapping[str, Mapping[str, str]],
        keys: Sequence[str] | None = None,
        sweep: Template | None = None,
    ) -> list[int]:
        """Queue jobs, all or none, and return their numbers. Durable on return.

        `variables` holds the captured environments by key. For a key in `keys` that was used before, the job of that
        time is returned unchanged. The jobs of a sweep form one group, with the name it gives or a new one.
        """
        specs = [self.limited(spec) for spec in specs]
        if any(spec.snapshot is not None for spec in specs):
            specs = self.frozen(specs)
        keyed = list(zip(specs, keys or repeat(None, len(specs)), strict=True))
        for spec, key in keyed:
            if self.jobs.of_key(key) is None:
                self.check(spec)
        with self.store.transaction():
            for spec in specs:
                self._refuse_thawed(spec)  # in the transaction, since snapshots are removed in one too
            known = [self.jobs.of_key(key) for _, key in keyed]
            for (spec, _), before in zip(keyed, known, strict=True):
                if before is None:
                    self._refuse_unmet(spec)  # again: its dependencies may have ended meanwhile
            for name, captured in variables.items():
                self.jobs.keep_environment(name, captured)
            if sweep is not None and None in known:
                group = self.groups.start(sweep, specs[0].owner)
                keyed = [(replace(spec, group=group), key) for spec, key in keyed]
            ids = [self.jobs.add(spec, key) for spec, key in keyed]
            if new := [job_id for job_id, before in zip(ids, known, strict=True) if before is None]:
                self.audit.add(self.actor, "submit", {"jobs": new})
        self.ring()
        return ids

    def frozen(self, specs: Sequence[JobSpec]) -> list[JobSpec]:
        """Return the specs, with a snapshot for each that asks for one and has none. Not within a transaction."""
        from runner.snapshot import code_copy

        return code_copy.freeze(specs, self.home)

    def copies(self, folders: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Take a snapshot of each of these folders, for `Edit`. Not within a transaction."""
        from runner.snapshot import code_copy

        return {folder: code_copy.take(folder, self.home) for folder in folders}

    def _refuse_thawed(self, spec: JobSpec) -> None:
        if spec.snapshot:
            from runner.snapshot import code_copy

            code_copy.refuse_gone(self.home, spec)

    def limited(self, spec: JobSpec) -> JobSpec:
        """Return the spec, with the box's default time limit if it names none."""
        usual_s = self.box.get(TIMES, {}).get("usual_s")
        return replace(spec, time_limit_s=usual_s) if spec.time_limit_s is None and usual_s is not None else spec

    def check(self, spec: JobSpec) -> None:
        """Raise UserError for a job that could never run here."""
        if not spec.command.strip():
            raise UserError(f"There is no command. Try: {self._typed('submit -- python train.py')}")
        refuse_unrunnable(spec)
        self._refuse_too_long(spec)
        self._refuse_unmet(spec)
        known = self.snapshot()
        if known is not None and not (spec.gpus and self.gpu_trouble()):  # GPUs that cannot be read may come back
            rooms = _existing(known[0], int(self.box.get("slots", 1)))
            reason = never_fits(request_of(spec), rooms, int(self.box.get("cpu slots", 1)), box_limits(self.store))
            if reason:
                raise UserError(_why_unsupported(known[0]) if spec.gpus and not rooms and known[0].gpus else reason)
        elif home.setting("GPUS") == "none" and spec.gpus:
            raise UserError("This box is set up without GPUs (NIGHTSHIFT_GPUS=none). Use --gpus 0.")

    def _refuse_too_long(self, spec: JobSpec) -> None:
        longest_s = self.box.get(TIMES, {}).get("longest_s")
        if longest_s is not None and (spec.time_limit_s is None or spec.time_limit_s > longest_s):
            raise UserError(f"Jobs may run for {format_duration(longest_s)} here: use --time, up to that.")

    def _refuse_unmet(self, spec: JobSpec) -> None:
        """Raise UserError if a job it depends on does not exist, or ended without the success it needs."""
        for other in (*spec.after, *spec.after_ok):
            state = self.job(other).state
            if other in spec.after_ok and state.final and state is not State.SUCCEEDED:
                raise UserError(
                    f"Job {other} has ended ({state.value.lower()}), so a job after its success would never start."
                    f" {self._typed(f'rerun {other}')} tries it again; --after {other} takes any end."
                )

    def rerun(
        self, job_id: int, changes: Sequence[str] = (), key: str | None = None, owner: str | None = None,
        *, in_order: bool = False,
    ) -> int:  # fmt: skip
        """Queue the same job again, perhaps with some arguments changed. Return its new number.

        It waits for those of its dependencies, or their reruns, that have not ended. Failed dependencies are ignored;
        with `in_order`, a dependency that did not succeed as required raises UserError.
        """
        if (known := self.jobs.of_key(key)) is not None:
            return known
        spec = self._changed(self.job(job_id), changes)
        with self.store.transaction():
            awaited = Reruns(self.store).awaited(spec)
            if in_order and awaited.in_vain:
                other = awaited.in_vain[0]
                raise UserError(
                    f"Job {job_id} comes after the success of job {other}, which did not succeed:"
                    f" {self._typed(f'rerun {other}')} comes first."
                )
            spec = replace(
                spec, owner=owner or spec.owner, after=awaited.after, after_ok=awaited.after_ok, begin_at=None
            )
            spec = self.limited(spec)
            self.check(spec)
            self._refuse_thawed(spec)
            new = self.jobs.add(spec, key)
            self.audit.add(self.actor, "rerun", {"job": job_id, "as": new, "changes": list(changes)})
        self.ring()
        return new

    def _changed(self, job: Job, changes: Sequence[str]) -> JobSpec:
        if not changes:
            return replace(job.spec, again_of=job.id)
        if job.spec.script:
            raise UserError(
                f"Job {job.id} is a whole script, which takes no arguments. Submit the changed file instead."
            )
        from runner.commands.arguments import changed

        command, argv = changed(job.spec.command, job.spec.argv, changes)
        words = None if argv is None else tuple(argv)
        return replace(job.spec, command=command, argv=words, parameters={}, again_of=None)

    # -- editing -----------------------------------------------------------------------------------

    def edit(self, job_id: int, edit: Edit) -> str:
        """Edit a queued job, with the same checks as on submit. Return a sentence about it."""
        if edit.is_empty:
            raise UserError(f"What is to be changed? Try: {self._typed(f'edit {job_id} --time 4h')}")
        folder = to_copy(self._queued(job_id).spec, edit)
        if folder is not None:
            edit = replace(edit, copies=self.copies([folder]))
        with self.store.transaction():
            job = self._queued(job_id)
            spec = edited(job.spec, edit)
            if to_copy(job.spec, edit):
                raise UserError(f"Job {job_id} was edited by somebody else at the same moment. Try again.")
            if "time_limit_s" in edit.values.get("clear", ()):
                spec = self.limited(spec)
            changed = differences(job.spec, spec)
            if not changed:
                return f"Nothing to change: job {job_id} already has these settings."
            self._check_edited(job_id, spec, edit)
            if "snapshot" in changed:
                self._refuse_thawed(spec)
            if edit.environment is not None:
                self.jobs.keep_environment(*edit.environment)
            edits = Edits(self.store)
            edits.put(job, spec)
            if affects_probe(changed):
                edits.forget_batch(job)
            self.jobs.note(job_id, None, "edited", {"by": self.actor, "what": in_words(changed), "changed": changed})
            self.audit.add(self.actor, "edit", {"job": job_id, "what": in_words(changed)})
        self.ring()
        return f"Job {job_id} is edited: {in_words(changed)}."

    def _check_edited(self, job_id: int, spec: JobSpec, edit: Edit) -> None:
        """Check an edited job, but only newly named dependencies: its old ones may have ended or been deleted."""
        after, after_ok = (tuple(edit.values.get(key, ())) for key in ("after", "after_ok"))
        self.check(replace(spec, after=after, after_ok=after_ok))
        other = Dependencies(self.store).that_waits_for(job_id, (*after, *after_ok))
        if other == job_id:
            raise UserError(f"Job {job_id} cannot come after itself.")
        if other is not None:
            raise UserError(f"Job {other} waits for job {job_id}: if each came after the other, neither would start.")

    # -- acting ------------------------------------------------------------------------------------

    def stop(self, job_id: int, reason: Reason = Reason.USER) -> str:
        """Cancel a queued job or ask a live one to stop. Return a sentence about what was done."""
        with self.store.transaction():
            job = self.job(job_id)
            if job.state in FINAL_STATES:
                raise UserError(f"Job {job_id} has already ended ({job.state.value.lower()}).")
            if self.jobs.cancel_waiting(job, reason, self.actor):
                said = f"Job {job_id} is cancelled; it had not started."
            elif self.jobs.ask_to_stop(job, reason, self.actor):
                said = f"Job {job_id} is being stopped."
            else:
                said = f"Job {job_id} is already being stopped."
            self.audit.add(self.actor, "kill", {"job": job_id})
        self.ring()
        return said

    def keep(self, job_id: int, for_s: float | None = None) -> str:
        """Keep a job from being stopped as idle, for `for_s` seconds or for good. Return a sentence about it."""
        if for_s is not None and for_s < SHORTEST_KEEP_S:
            raise UserError("That is no time to keep a job for: write it like 30m, 2h or 1d.")
        until = None if for_s is None else time.monotonic() + for_s
        until_at = None if for_s is None else clock.text(clock.now() + timedelta(seconds=for_s))
        with self.store.transaction():
            job = self.job(job_id)
            if job.state in FINAL_STATES:
                raise UserError(f"Job {job_id} has already ended ({job.state.value.lower()}).")
            if job.stop is not None:
                raise UserError(f"Job {job_id} is already being stopped: it is too late to keep it.")
            self.watches.keep(job_id, Keep(self.actor, until, until_at, linux.boot_id()))
            self._write_down(job_id, "kept", "keep", {"until": until_at})
        self.ring()
        how = "for good" if for_s is None else f"for {format_duration(for_s)}"
        return f"Job {job_id} is kept {how}, even if its GPUs are idle."

    def pause(self) -> None:
        """Start nothing more until `resume`."""
        self._set("paused", {"by": self.actor}, "pause")

    def drain(self) -> None:
        """Let running jobs finish and start no more until `resume`."""
        self._set("draining", {"by": self.actor, "at": clock.text(clock.now())}, "drain")

    def resume(self) -> None:
        """Start jobs again after a pause, a drain or the breaker."""
        with self.store.transaction():
            for name in ("paused", "draining", "streak"):
                self.box.set(name, None)
            self.jobs.note(None, None, "resumed", {"by": self.actor})
            self.audit.add(self.actor, "resume", {})
        self.ring()

    def cancel_when_empty(self) -> bool:
        """Cancel the command that is due because the queue is empty. Return False if none is due."""
        with self.store.transaction():
            due = self.when_empty()
            if due is None:
                return False
            self.box.set(WHEN_EMPTY, {**due, "cancelled_by": self.actor})
            self.jobs.note(None, None, "when empty cancelled", {"by": self.actor})
            self.audit.add(self.actor, "stay", {"command": due.get("command")})
        self.ring()
        return True

    def _set(self, name: str, value: dict[str, Any], action: str) -> None:
        with self.store.transaction():
            self.box.set(name, value)
            self.jobs.note(None, None, name, value)
            self.audit.add(self.actor, action, {})
        self.ring()


def _existing(snapshot: Snapshot, slots: int) -> list[Room]:
    """Return the usable GPUs as if nothing ran on them."""
    usable = [gpu for gpu in snapshot.gpus if gpu.health is not GpuHealth.UNSUPPORTED]
    return [room_of(replace(gpu, memory_used_mib=0), (), slots, None) for gpu in usable]


def _why_unsupported(snapshot: Snapshot) -> str:
    """Return why no GPU of the box can be used for jobs, in the driver's words."""
    said = ". ".join(f"GPU {gpu.index} {gpu.detail}" for gpu in snapshot.gpus)
    return f"This box has no GPU for jobs. {said}. For a job that needs none: --gpus 0"


__all__ = ["Queue", "job_spec"]
