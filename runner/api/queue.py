"""The queue of one state folder, as one caller uses it."""

from __future__ import annotations

import contextlib
import copy
import time
from dataclasses import replace
from datetime import timedelta
from itertools import repeat
from typing import TYPE_CHECKING, Any

from runner import clock, doorbell, extension, home
from runner.api.specs import job_spec, refuse_unrunnable
from runner.api.view import View
from runner.errors import UserError
from runner.fitting import never_fits
from runner.gpu.published import boot_id
from runner.gpu.room import room_of
from runner.model import FINAL_STATES, GpuHealth, Job, JobSpec, Priority, Reason, State
from runner.quantities import format_duration
from runner.request import request_of
from runner.store.box import WHEN_EMPTY
from runner.store.limits import TIMES, box_limits
from runner.store.order import Order
from runner.store.times import Times
from runner.store.watches import Keep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.model import Snapshot
    from runner.schedule import Room

SHORTEST_KEEP_S = 1.0


class Queue(View):
    """The queue of one state folder, as one caller uses it."""

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def acting_as(self, actor: str) -> Queue:
        """The same queue over the same connection, used by somebody else."""
        other = copy.copy(self)
        other.actor = actor
        return other

    # -- submitting --------------------------------------------------------------------------------

    def submit(
        self,
        specs: Sequence[JobSpec],
        variables: Mapping[str, Mapping[str, str]],
        keys: Sequence[str] | None = None,
    ) -> list[int]:
        """Queue jobs, all or none; `variables` holds the captured environments by key. Durable on return.

        A job whose key was used before is the one that was queued then, and nothing is changed.
        """
        specs = [self._limited(spec) for spec in specs]
        keyed = list(zip(specs, keys or repeat(None, len(specs)), strict=True))
        for spec, key in keyed:
            if self.jobs.of_key(key) is None:
                self.check(spec)
        with self.store.transaction():
            known = [self.jobs.of_key(key) for _, key in keyed]
            for name, captured in variables.items():
                self.jobs.keep_environment(name, captured)
            ids = [self.jobs.add(spec, key) for spec, key in keyed]
            if new := [job_id for job_id, before in zip(ids, known, strict=True) if before is None]:
                self.audit.add(self.actor, "submit", {"jobs": new})
        self.ring()
        return ids

    def _limited(self, spec: JobSpec) -> JobSpec:
        """With the box's own time limit where it names none."""
        usual_s = self.box.get(TIMES, {}).get("usual_s")
        return replace(spec, time_limit_s=usual_s) if spec.time_limit_s is None and usual_s is not None else spec

    def check(self, spec: JobSpec) -> None:
        """Refuse at once what could never run."""
        if not spec.command.strip():
            raise UserError(f"There is no command. Try: {self._typed('submit -- python train.py')}")
        refuse_unrunnable(spec)
        self._refuse_too_long(spec)
        self._refuse_unmet(spec)
        known = self.snapshot()
        if known is not None:
            rooms = _existing(known[0], int(self.box.get("slots", 1)))
            reason = never_fits(request_of(spec), rooms, int(self.box.get("cpu slots", 1)), box_limits(self.store))
            if reason:
                raise UserError(reason)
        elif home.setting("GPUS") == "none" and spec.gpus:
            raise UserError("This box is set up without GPUs (NIGHTSHIFT_GPUS=none). Use --gpus 0.")

    def _refuse_too_long(self, spec: JobSpec) -> None:
        longest_s = self.box.get(TIMES, {}).get("longest_s")
        if longest_s is not None and (spec.time_limit_s is None or spec.time_limit_s > longest_s):
            raise UserError(f"Jobs may run for {format_duration(longest_s)} here: use --time, up to that.")

    def _refuse_unmet(self, spec: JobSpec) -> None:
        """A job that waits for what cannot happen any more."""
        for other in (*spec.after, *spec.after_ok):
            state = self.job(other).state
            if other in spec.after_ok and state.final and state is not State.SUCCEEDED:
                raise UserError(
                    f"Job {other} has ended ({state.value.lower()}), so a job after its success would never start."
                    f" {self._typed(f'rerun {other}')} tries it again; --after {other} takes any end."
                )

    def rerun(self, job_id: int, changes: Sequence[str] = (), key: str | None = None, owner: str | None = None) -> int:
        """The same job again, perhaps with some arguments changed: a new number and a new run id."""
        if (known := self.jobs.of_key(key)) is not None:
            return known
        spec = self._changed(self.job(job_id), changes)
        spec = replace(spec, owner=owner or spec.owner)
        self.check(spec)
        with self.store.transaction():
            new = self.jobs.add(spec, key)
            self.audit.add(self.actor, "rerun", {"job": job_id, "as": new, "changes": list(changes)})
        self.ring()
        return new

    def _changed(self, job: Job, changes: Sequence[str]) -> JobSpec:
        if not changes:
            return job.spec
        if job.spec.script:
            raise UserError(
                f"Job {job.id} is a whole script, which takes no arguments. Submit the changed file instead."
            )
        from runner.arguments import changed

        command, argv = changed(job.spec.command, job.spec.argv, changes)
        return replace(job.spec, command=command, argv=None if argv is None else tuple(argv))

    # -- acting ------------------------------------------------------------------------------------

    def stop(self, job_id: int, reason: Reason = Reason.USER) -> str:
        """Cancel a waiting job or have a live one stopped; a sentence about what was done."""
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

    def hold(self, job_id: int) -> str:
        """Keep a waiting job from starting until it is released; a sentence about it."""
        with self.store.transaction():
            job = self._queued(job_id)
            if not Order(self.store).hold(job, self.actor):
                return f"Job {job_id} is held already, by {job.held_by}."
            self._write_down(job_id, "held", "hold")
        self.ring()
        return f"Job {job_id} is held: it does not start before {self._typed(f'release {job_id}')}."

    def release(self, job_id: int) -> str:
        """Let a held job start again, at the place it has; a sentence about it."""
        with self.store.transaction():
            job = self._queued(job_id)
            if not Order(self.store).release(job):
                return f"Job {job_id} is not held."
            self._write_down(job_id, "released", "release")
        self.ring()
        return f"Job {job_id} is released."

    def keep(self, job_id: int, for_s: float | None = None) -> str:
        """Leave a job alone however idle its GPUs are: for a while, or for good; a sentence about it."""
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
            self.watches.keep(job_id, Keep(self.actor, until, until_at, boot_id()))
            self._write_down(job_id, "kept", "keep", {"until": until_at})
        self.ring()
        how = "for good" if for_s is None else f"for {format_duration(for_s)}"
        return f"Job {job_id} is kept {how}, even if its GPUs are idle."

    def extend(self, job_id: int, by_s: float, limit_s: float | None = None) -> str:
        """Give a job more time than its limit, or than the one it had; a sentence about it.

        Inside a transaction of the caller's, `pass_on_limit` is to be called when that is over.
        """
        with self.store.transaction():
            job = self.job(job_id)
            before_s = job.spec.time_limit_s or 0.0
            limit_s = max(before_s, self._extended_s(job, by_s, limit_s))
            if limit_s > before_s:
                Times(self.store).give(job, limit_s)
                self._write_down(job_id, "extended", "extend", {"by_s": limit_s - before_s, "limit_s": limit_s})
        self.pass_on_limit(job_id)
        self.ring()
        ends = job.started_at + timedelta(seconds=limit_s) if job.started_at else None
        until = f", until {ends.astimezone():%H:%M on %d %b}" if ends else ""
        return f"Job {job_id} may run for {format_duration(limit_s)} in all{until}."

    def pass_on_limit(self, job_id: int) -> None:
        """Tell the supervisor of a live job, which then need not wait for a runner; not before it is committed."""
        if not self.store.connection.in_transaction:
            with contextlib.suppress(OSError):  # the runner goes on trying
                extension.pass_on(self.home, self.job(job_id))

    def _extended_s(self, job: Job, by_s: float, base_s: float | None) -> float:
        """The new limit, if it may be."""
        before_s, longest_s = job.spec.time_limit_s, self.box.get(TIMES, {}).get("longest_s")
        if job.state in FINAL_STATES:
            raise UserError(f"Job {job.id} has already ended ({job.state.value.lower()}).")
        if before_s is None:
            raise UserError(f"Job {job.id} has no time limit: it may run for as long as it takes.")
        if by_s < SHORTEST_KEEP_S:
            raise UserError("That is no time to extend a job by: write it like 30m, 2h or 1d.")
        left_s = before_s - (clock.now() - job.started_at).total_seconds() if job.started_at else before_s
        if job.stop is not None or left_s <= 0:
            raise UserError(f"Job {job.id} is already being stopped: it is too late to extend it.")
        if not extension.is_possible(self.home, job):
            raise UserError(f"Job {job.id} was started by an older version of nightshift: its limit stays as it is.")
        wanted_s = (before_s if base_s is None else base_s) + by_s
        if longest_s is not None and wanted_s > longest_s:
            raise UserError(
                f"Jobs may run for {format_duration(longest_s)} here (NIGHTSHIFT_TIME_MAX): job {job.id} can have"
                f" {format_duration(max(0.0, longest_s - before_s))} more."
            )
        return wanted_s

    def to_front(self, job_id: int) -> str:
        """Put a waiting job before all others of its priority; a sentence about it."""
        with self.store.transaction():
            job = self._queued(job_id)
            if not Order(self.store).to_front(job):
                return f"Job {job_id} is first already{_of_priority(job)}."
            self._write_down(job_id, "moved to front", "first")
        self.ring()
        return f"Job {job_id} is now first{_of_priority(job)}{_but_held(job)}."

    def move_up(self, job_id: int) -> str:
        """Put a waiting job one place further to the front; a sentence about it."""
        with self.store.transaction():
            job = self._queued(job_id)
            other = Order(self.store).move_up(job)
            if other is None:
                return f"Job {job_id} is first already{_of_priority(job)}."
            self._write_down(job_id, "moved up", "sooner", {"before": other})
        self.ring()
        return f"Job {job_id} is now before job {other}{_but_held(job)}."

    def _queued(self, job_id: int) -> Job:
        job = self.job(job_id)
        if job.state is not State.QUEUED:
            how = "has ended" if job.state.final else "runs already"
            raise UserError(f"Job {job_id} {how}: only a job that waits can be held or moved.")
        return job

    def _write_down(self, job_id: int, kind: str, action: str, more: Mapping[str, Any] | None = None) -> None:
        self.jobs.note(job_id, None, kind, {"by": self.actor, **(more or {})})
        self.audit.add(self.actor, action, {"job": job_id, **(more or {})})

    def pause(self) -> None:
        """Start nothing more until `resume`."""
        self._set("paused", {"by": self.actor}, "pause")

    def drain(self) -> None:
        """Let running jobs finish and start no more until `resume`."""
        self._set("draining", {"by": self.actor, "at": clock.text(clock.now())}, "drain")

    def resume(self) -> None:
        """Go on, whatever held the queue."""
        with self.store.transaction():
            for name in ("paused", "draining", "streak"):
                self.box.set(name, None)
            self.jobs.note(None, None, "resumed", {"by": self.actor})
            self.audit.add(self.actor, "resume", {})
        self.ring()

    def cancel_when_empty(self) -> bool:
        """The command that is due since nothing is left to do is not to be run; False if none is."""
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

    def ring(self) -> None:
        """Wake the runner and the bot, as far as there are any."""
        doorbell.ring(self.home, home.RUNNER_BELL)
        doorbell.ring(self.home, home.BOT_BELL)


def _existing(snapshot: Snapshot, slots: int) -> list[Room]:
    """The GPUs as they would be with nobody on them."""
    usable = [gpu for gpu in snapshot.gpus if gpu.health is not GpuHealth.UNSUPPORTED]
    return [room_of(replace(gpu, memory_used_mib=0), (), slots, None) for gpu in usable]


def _of_priority(job: Job) -> str:
    """Where it says something: an order holds among equals."""
    return "" if job.spec.priority is Priority.NORMAL else f" of {job.spec.priority.value} priority"


def _but_held(job: Job) -> str:
    return f", but held by {job.held_by}" if job.held_by else ""


__all__ = ["Queue", "job_spec"]
