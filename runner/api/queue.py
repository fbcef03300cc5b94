"""The queue of one state folder, as the terminal and the bot use it: submit, rerun, edit, stop, keep, extend, pause."""

from __future__ import annotations

import contextlib
import copy
import time
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.api.pause_words import why_paused
from runner.api.specs import SpecChecks, refuse_terminal, with_changes
from runner.config import home
from runner.errors import NoSuchJobError, UserError
from runner.model import Reason, State
from runner.processes import doorbell, process_lock
from runner.store.audit import Audit
from runner.store.box import Box, BoxKey
from runner.store.connection import open_store
from runner.store.dependencies import Dependencies, Reruns
from runner.store.jobs import Jobs
from runner.store.notices import Notices
from runner.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from runner.api.edits import Edit
    from runner.api.queue_order import QueueOrder
    from runner.api.view import View
    from runner.api.waiting_reasons import WaitingReasons
    from runner.model import Job, JobSpec
    from runner.store.groups import Groups, Template
    from runner.store.listing import Listing
    from runner.store.presets import Presets
    from runner.store.scheduling_queries import Line
    from runner.store.workspaces import Workspaces

SHORTEST_S = 1.0  # to keep a job, or to extend it by


def at_the_terminal(words: str) -> str:
    """Return a command as one types it in the terminal. The chat has its own function for this."""
    return f"`nightshift {words}`"


class Queue:
    """The queue of one state folder, used by one actor. Parts that `submit` does not need are imported on first use."""

    def __init__(
        self, folder: str | None = None, *, actor: str, typed: Callable[[str], str] = at_the_terminal,
        begin: bool = False,
    ) -> None:  # fmt: skip
        self.home = folder or home.state_folder()
        self.actor, self.typed = actor, typed
        self.store = open_store(self.home, backup_dir=home.backup_folder(), begin=begin)
        self.jobs, self.notices, self.box = Jobs(self.store), Notices(self.store), Box(self.store)
        self.audit, self.checks = Audit(self.store), SpecChecks(self)

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    @cached_property
    def workspaces(self) -> Workspaces:
        """The workspaces."""
        from runner.store.workspaces import Workspaces

        return Workspaces(self.store)

    @cached_property
    def groups(self) -> Groups:
        """The groups."""
        from runner.store.groups import Groups

        return Groups(self.store)

    @cached_property
    def presets(self) -> Presets:
        """The presets."""
        from runner.store.presets import Presets

        return Presets(self.store)

    @cached_property
    def line(self) -> Line:
        """What the scheduler reads."""
        from runner.store.scheduling_queries import Line

        return Line(self.store)

    @cached_property
    def listing(self) -> Listing:
        """Lists and counts of jobs."""
        from runner.store.listing import Listing

        return Listing(self.store)

    @cached_property
    def reasons(self) -> WaitingReasons:
        """Why jobs wait."""
        from runner.api.waiting_reasons import WaitingReasons

        return WaitingReasons(self.home, self.store, self.typed)

    @cached_property
    def view(self) -> View:
        """The queue, for reading."""
        from runner.api.view import View

        return View(self.home, self.store, self.reasons, self.job)

    @property
    def order(self) -> QueueOrder:
        """The order of the queue, for this actor to change."""
        from runner.api.queue_order import QueueOrder

        return QueueOrder(self)

    def acting_as(self, actor: str) -> Queue:
        """Return the same queue, over the same connection, for another actor."""
        other = copy.copy(self)
        other.actor, other.view = actor, self.view  # shared: it caches the forecast
        return other

    def job(self, job_id: int) -> Job:
        """Return one job. Raise NoSuchJobError if there is none with this number."""
        job = self.jobs.get(job_id)
        if job is None:
            raise NoSuchJobError(f"There is no job {job_id}. {self.typed('ls')} lists the jobs there are.")
        return job

    def queued(self, job_id: int) -> Job:
        """Return one queued job. Raise UserError if it has left the queue."""
        job = self.job(job_id)
        if job.state is not State.QUEUED:
            how = "has ended" if job.state.final else "is being tried" if job.untried else "is already running"
            raise UserError(f"Job {job_id} {how}: only a job that waits can be held, moved or edited.")
        return job

    def runner_is_up(self) -> bool:
        """Return whether a runner is up for this queue."""
        return process_lock.runner_is_up(self.home)

    def why_paused(self) -> str | None:
        """Return why no more jobs start (paused or draining) and how to resume; None if jobs may start."""
        return why_paused(self.box, self.typed)

    def ring(self) -> None:
        """Wake the runner and the bot, if they are up. Inside a transaction do nothing: they could not see it yet."""
        if self.store.connection.in_transaction:
            return
        doorbell.ring(self.home, home.RUNNER_BELL)
        doorbell.ring(self.home, home.BOT_BELL)

    def record(self, job_id: int, event: str, action: str, data: Mapping[str, Any] | None = None) -> None:
        """Write down what the actor did to a job: as an event of the job, and in the audit log."""
        self.jobs.note(job_id, None, event, {"by": self.actor, **(data or {})})
        self.audit.add(self.actor, action, {"job": job_id, **(data or {})})

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
        specs = [self.checks.with_time_limit(spec) for spec in specs]
        if any(spec.snapshot is not None for spec in specs):
            specs = self.with_snapshots(specs)
        keyed = list(zip(specs, keys or repeat(None, len(specs)), strict=True))
        for spec, key in keyed:
            if self.jobs.of_key(key) is None:
                self.checks.check(spec)
        with self.store.transaction():
            for spec in specs:
                self.checks.refuse_snapshot_missing(spec)  # in the transaction, since snapshots are removed in one too
            earlier = [self.jobs.of_key(key) for _, key in keyed]
            for (spec, _), before in zip(keyed, earlier, strict=True):
                if before is None:
                    self.checks.refuse_unmet(spec)  # again: its dependencies may have ended meanwhile
            for name, captured in variables.items():
                self.jobs.keep_environment(name, captured)
            if sweep is not None and None in earlier:
                group = self.groups.start(sweep, specs[0].owner)
                keyed = [(replace(spec, group=group), key) for spec, key in keyed]
            ids = [self.jobs.add(spec, key) for spec, key in keyed]
            if new := [job_id for job_id, before in zip(ids, earlier, strict=True) if before is None]:
                self.audit.add(self.actor, "submit", {"jobs": new})
        self.ring()
        return ids

    def with_snapshots(self, specs: Sequence[JobSpec]) -> list[JobSpec]:
        """Return the specs, with a snapshot for each that asks for one and has none. Not within a transaction."""
        from runner.snapshot import code_copy

        return code_copy.with_copies(specs, self.home)

    def snapshots_of(self, folders: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Take a snapshot of each of these folders, for `Edit`. Not within a transaction."""
        from runner.snapshot import code_copy

        return {folder: code_copy.take(folder, self.home) for folder in folders}

    def rerun(
        self, job_id: int, changes: Sequence[str] = (), key: str | None = None, owner: str | None = None,
        *, in_order: bool = False,
    ) -> int:  # fmt: skip
        """Queue the same job again, perhaps with some arguments changed. Return its new number.

        It waits for those of its dependencies, or their reruns, that have not ended. Failed dependencies are ignored;
        with `in_order`, a dependency that did not succeed as required raises UserError.
        """
        if (earlier := self.jobs.of_key(key)) is not None:
            return earlier
        before = self.job(job_id).spec
        refuse_terminal(before, job_id)
        spec = with_changes(before, changes, f"job {job_id}") if changes else replace(before, again_of=job_id)
        with self.store.transaction():
            awaited = Reruns(self.store).awaited(spec)
            if in_order and awaited.in_vain:
                other = awaited.in_vain[0]
                raise UserError(
                    f"Job {job_id} needs the success of job {other}, which did not succeed. Run that one first:"
                    f" {self.typed(f'rerun {other}')}"
                )
            spec = replace(
                spec, owner=owner or spec.owner, after=awaited.after, after_ok=awaited.after_ok, begin_at=None
            )
            spec = self.checks.with_time_limit(spec)
            self.checks.check(spec)
            self.checks.refuse_snapshot_missing(spec)
            new = self.jobs.add(spec, key)
            self.audit.add(self.actor, "rerun", {"job": job_id, "as": new, "changes": list(changes)})
        self.ring()
        return new

    # -- editing -----------------------------------------------------------------------------------

    def edit(self, job_id: int, edit: Edit) -> str:
        """Edit a queued job, with the same checks as on submit. Return a sentence about it."""
        from runner.api.edits import affects_probe, differences, edited, in_words, to_copy
        from runner.store.spec_changes import Edits

        if edit.is_empty:
            raise UserError(f"What do you want to change? Try: {self.typed(f'edit {job_id} --time 4h')}")
        folder = to_copy(self.queued(job_id).spec, edit)
        if folder is not None:
            edit = replace(edit, copies=self.snapshots_of([folder]))
        with self.store.transaction():
            job = self.queued(job_id)
            spec = edited(job.spec, edit)
            if to_copy(job.spec, edit):
                raise UserError(f"Job {job_id} was edited by somebody else at the same moment. Try again.")
            if "time_limit_s" in edit.values.get("clear", ()):
                spec = self.checks.with_time_limit(spec)
            changed = differences(job.spec, spec)
            if not changed:
                return f"Nothing to change: job {job_id} already has these settings."
            self._check_edited(job_id, spec, edit)
            if "snapshot" in changed:
                self.checks.refuse_snapshot_missing(spec)
            if edit.environment is not None:
                self.jobs.keep_environment(*edit.environment)
            edits = Edits(self.store)
            edits.put(job, spec)
            if affects_probe(changed):
                edits.forget_batch(job)
            words = in_words(changed)
            self.jobs.note(job_id, None, "edited", {"by": self.actor, "what": words, "changed": changed})
            self.audit.add(self.actor, "edit", {"job": job_id, "what": words})
        self.ring()
        return f"Job {job_id} is edited: {words}."

    def _check_edited(self, job_id: int, spec: JobSpec, edit: Edit) -> None:
        """Check an edited job, but only newly named dependencies: its old ones may have ended or been deleted."""
        after, after_ok = (tuple(edit.values.get(key, ())) for key in ("after", "after_ok"))
        self.checks.check(replace(spec, after=after, after_ok=after_ok))
        other = Dependencies(self.store).that_waits_for(job_id, (*after, *after_ok))
        if other == job_id:
            raise UserError(f"Job {job_id} cannot come after itself.")
        if other is not None:
            raise UserError(f"Job {other} waits for job {job_id}. If each waited for the other, neither would start.")

    # -- acting ------------------------------------------------------------------------------------

    def stop(self, job_id: int, reason: Reason = Reason.USER) -> str:
        """Cancel a queued job or ask a live one to stop. Return a sentence about what was done."""
        with self.store.transaction():
            job = self._unfinished(job_id)
            if self.jobs.cancel_waiting(job, reason, self.actor):
                sentence = f"Job {job_id} is cancelled; it had not started."
            elif self.jobs.ask_to_stop(job, reason, self.actor):
                sentence = f"Job {job_id} is being stopped."
            else:
                sentence = f"Job {job_id} is already being stopped."
            self.audit.add(self.actor, "kill", {"job": job_id})
        self.ring()
        return sentence

    def keep(self, job_id: int, for_s: float | None = None) -> str:
        """Keep a job from being stopped as idle, for `for_s` seconds or for good. Return a sentence about it."""
        from runner.processes import linux
        from runner.store.watchdog_state import Keep, Watches

        if for_s is not None and for_s < SHORTEST_S:
            raise UserError("The time to keep a job is at least 1s: write it like 30m, 2h or 1d.")
        until = None if for_s is None else time.monotonic() + for_s
        until_at = None if for_s is None else clock.text(clock.now() + timedelta(seconds=for_s))
        with self.store.transaction():
            if self._unfinished(job_id).stop is not None:
                raise UserError(f"Job {job_id} is already being stopped: it is too late to keep it.")
            Watches(self.store).keep(job_id, Keep(self.actor, until, until_at, linux.boot_id()))
            self.record(job_id, "kept", "keep", {"until": until_at})
        self.ring()
        how = "for good" if for_s is None else f"for {format_duration(for_s)}"
        return f"Job {job_id} is kept {how}, even if its GPUs are idle."

    def extend(self, job_id: int, by_s: float, limit_s: float | None = None) -> str:
        """Extend a job's time limit by `by_s` seconds, counted from `limit_s` if given. Return a sentence about it.

        Inside a transaction of the caller, call `pass_on_limit` after the commit.
        """
        from runner.store.spec_changes import TimeLimits

        with self.store.transaction():
            job = self._unfinished(job_id)
            before_s = job.spec.time_limit_s or 0.0
            limit_s = max(before_s, self._extended_s(job, by_s, limit_s))
            if limit_s > before_s:
                TimeLimits(self.store).change(job, limit_s)
                self.record(job_id, "extended", "extend", {"by_s": limit_s - before_s, "limit_s": limit_s})
        self.pass_on_limit(job_id)
        self.ring()
        ends = job.started_at + timedelta(seconds=limit_s) if job.started_at else None
        until = f", until {clock.local(ends):%H:%M on %d %b}" if ends else ""
        return f"Job {job_id} may run for {format_duration(limit_s)} in all{until}."

    def pass_on_limit(self, job_id: int) -> None:
        """Give the new limit to the supervisor of a live job, even if no runner is up. Not within a transaction."""
        from runner import rundir

        if not self.store.connection.in_transaction:
            with contextlib.suppress(OSError):  # the runner tries again
                rundir.extend_limit(self.home, self.job(job_id))

    def _extended_s(self, job: Job, by_s: float, base_s: float | None) -> float:
        """Return the new limit. Raise UserError if the job cannot be extended that far."""
        from runner import rundir

        before_s, longest_s = job.spec.time_limit_s, self.box.get(BoxKey.TIMES, {}).get("longest_s")
        if before_s is None:
            raise UserError(f"Job {job.id} has no time limit: it may run for as long as it takes.")
        if by_s < SHORTEST_S:
            raise UserError("The time to extend a job by is at least 1s: write it like 30m, 2h or 1d.")
        left_s = before_s - (clock.now() - job.started_at).total_seconds() if job.started_at else before_s
        if job.stop is not None or left_s <= 0:
            raise UserError(f"Job {job.id} is already being stopped: it is too late to extend it.")
        if not rundir.is_extendable(self.home, job):
            raise UserError(
                f"Job {job.id} was started by an older version of nightshift: its time limit cannot change."
            )
        extended_s = (before_s if base_s is None else base_s) + by_s
        if longest_s is not None and extended_s > longest_s:
            raise UserError(
                f"Jobs may run for {format_duration(longest_s)} here (NIGHTSHIFT_TIME_MAX): job {job.id} can be"
                f" extended by at most {format_duration(max(0.0, longest_s - before_s))}."
            )
        return extended_s

    def _unfinished(self, job_id: int) -> Job:
        """Return one queued or live job. Raise UserError if it has ended."""
        job = self.job(job_id)
        if job.state.final:
            raise UserError(f"Job {job_id} has already ended ({job.state.value.lower()}).")
        return job

    def pause(self) -> None:
        """Start nothing more until `resume`."""
        self._set(BoxKey.PAUSED, {"by": self.actor}, "pause")

    def drain(self) -> None:
        """Let running jobs finish and start no more until `resume`."""
        self._set(BoxKey.DRAINING, {"by": self.actor, "at": clock.text(clock.now())}, "drain")

    def resume(self) -> None:
        """Start jobs again after a pause, a drain or the breaker."""
        with self.store.transaction():
            for key in (BoxKey.PAUSED, BoxKey.DRAINING, BoxKey.STREAK):
                self.box.set(key, None)
            self.jobs.note(None, None, "resumed", {"by": self.actor})
            self.audit.add(self.actor, "resume", {})
        self.ring()

    def cancel_when_empty(self) -> bool:
        """Cancel the command that is due because the queue is empty. Return False if none is due."""
        with self.store.transaction():
            due = self.view.when_empty()
            if due is None:
                return False
            self.box.set(BoxKey.WHEN_EMPTY, {**due, "cancelled_by": self.actor})
            self.jobs.note(None, None, "when empty cancelled", {"by": self.actor})
            self.audit.add(self.actor, "stay", {"command": due.get("command")})
        self.ring()
        return True

    def _set(self, key: BoxKey, value: dict[str, Any], action: str) -> None:
        with self.store.transaction():
            self.box.set(key, value)
            self.jobs.note(None, None, key.value, value)
            self.audit.add(self.actor, action, {})
        self.ring()
