"""What others may call: the terminal and the chat reach jobs through here alone."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

from runner import clock, doorbell, home, presence, rundir
from runner.errors import UserError
from runner.gpu.published import read_published
from runner.leaving import refuse_leaving
from runner.logs import Log
from runner.model import FINAL_STATES, GpuHealth, Job, JobSpec, Priority, Reason, State
from runner.schedule import Room, choose, never_fits
from runner.store.audit import Audit
from runner.store.box import Box
from runner.store.connection import open_store
from runner.store.jobs import CPU, Jobs
from runner.store.outbox import Outbox
from runner.store.workspaces import Workspaces

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runner.gpu.standing import Standing
    from runner.model import Snapshot
    from runner.store.jobs import Lease

LONGEST_COMMAND = 1_000_000


class Queue:
    """The queue of one state folder, as one caller uses it."""

    def __init__(self, folder: str | None = None, *, actor: str) -> None:
        self.home = folder or home.state_folder()
        self.actor = actor
        self.store = open_store(self.home, backup_dir=home.backup_folder())
        self.jobs, self.outbox, self.box = Jobs(self.store), Outbox(self.store), Box(self.store)
        self.audit, self.workspaces = Audit(self.store), Workspaces(self.store)

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    # -- submitting --------------------------------------------------------------------------------

    def submit(self, specs: Sequence[JobSpec], variables: Mapping[str, Mapping[str, str]]) -> list[int]:
        """Queue jobs, all or none; `variables` holds the captured environments by key. Durable on return."""
        for spec in specs:
            self.check(spec)
        with self.store.transaction():
            for key, captured in variables.items():
                self.jobs.keep_environment(key, captured)
            ids = [self.jobs.add(spec) for spec in specs]
            self.audit.add(self.actor, "submit", {"jobs": ids})
        self.ring()
        return ids

    def check(self, spec: JobSpec) -> None:
        """Refuse at once what could never run."""
        if not spec.command.strip():
            raise UserError("There is no command. Try: nightshift submit -- python train.py")
        for text in (spec.command, *(spec.argv or ()), spec.dir, *spec.env, *spec.env.values()):
            _refuse_unusable(text)
        if len(spec.command) > LONGEST_COMMAND:
            raise UserError("A command may have a million characters. Put the rest into a file that it reads.")
        if spec.argv is None and _is_shell(spec):
            refuse_leaving(spec.command)
        if not os.path.isdir(spec.dir):
            raise UserError(f"The folder {spec.dir} does not exist (any more). Submit it from another, or with --dir.")
        known = self.snapshot()
        if known is not None:
            reason = never_fits(spec.gpus, spec.on, _existing(known[0]), int(self.box.get("cpu slots", 1)))
            if reason:
                raise UserError(reason)
        elif home.setting("GPUS") == "none" and spec.gpus:
            raise UserError("This box is set up without GPUs (NIGHTSHIFT_GPUS=none). Use --gpus 0.")

    def rerun(self, job_id: int) -> int:
        """The same job again: a new number and a new run id."""
        job = self.job(job_id)
        self.check(job.spec)
        with self.store.transaction():
            new = self.jobs.add(job.spec)
            self.audit.add(self.actor, "rerun", {"job": job_id, "as": new})
        self.ring()
        return new

    # -- looking -----------------------------------------------------------------------------------

    def job(self, job_id: int) -> Job:
        """One job; UserError if there is none of that number."""
        found = self.jobs.get(job_id)
        if found is None:
            raise UserError(f"There is no job {job_id}. `nightshift ls` lists the jobs there are.")
        return found

    def describe(self, jobs: Iterable[Job]) -> list[dict[str, Any]]:
        """Jobs for programs: the keys of the JSON output."""
        jobs = list(jobs)
        reasons = self.waiting_reasons(jobs)
        return [_described(job, reasons.get(job.id)) for job in jobs]

    def waiting_reasons(self, jobs: Iterable[Job]) -> dict[int, str]:
        """Why each queued job among these waits."""
        queued = [job for job in jobs if job.state is State.QUEUED]
        if not queued:
            return {}
        general = self._why_nothing_starts()
        if general:
            return {job.id: general for job in queued}
        leases = self.jobs.leases()
        cpu_slots = int(self.box.get("cpu slots", 1))
        cpu_taken = sum(lease.resource == CPU for lease in leases)
        rooms = self._standing(leases).rooms()
        # Those at the front keep what they wait for from the ones behind them, whichever of them were asked about.
        front = self.jobs.waiting(per_lane=cpu_slots + sum(room.slots for room in rooms))
        asked = {job.id: _Asked(job) for job in queued} | {waiting.id: waiting for waiting in front}
        in_order = sorted(asked.values(), key=lambda one: one.order)
        plan = choose(in_order, rooms, range(cpu_taken, cpu_slots))
        return {job.id: plan.waiting.get(job.id, "starts next") for job in queued}

    def _why_nothing_starts(self) -> str | None:
        return self.held() if self.runner_is_up() else "no runner is up"

    def held(self) -> str | None:
        """Who or what holds the queue, and how it goes on; None if nothing does."""
        paused = self.box.get("paused")
        if paused and paused["by"] == "breaker":
            return f"the queue is paused, because {paused['why']}; `nightshift resume` goes on"
        if paused:
            return f"the queue is paused by {paused['by']}; `nightshift resume` goes on"
        if self.box.get("draining"):
            return "the box is draining, and no more jobs start; `nightshift resume` goes on"
        return None

    def snapshot(self) -> tuple[Snapshot, float] | None:
        """The last known GPUs, and how old that knowledge is in seconds."""
        return read_published(self.home)

    def gpus(self) -> list[dict[str, Any]]:
        """The GPUs for programs; what is not known, or no longer known, is None."""
        return self._standing(self.jobs.leases()).described()

    def _standing(self, leases: Sequence[Lease]) -> Standing:
        from runner.gpu.standing import Rules, Standing

        free = self.box.get("free", {})
        return Standing(self.snapshot(), leases, Rules(slots=int(self.box.get("slots", 1)), **free))

    def log(self, job_id: int, attempt: int | None = None) -> Log:
        """The output of a job's latest attempt, or of the one named."""
        job = self.job(job_id)
        number = attempt or job.attempt
        if number == 0:
            raise UserError(f"Job {job_id} has not started yet: there is no output.")
        return Log(rundir.folder_of(self.home, job_id, number))

    def runner_is_up(self) -> bool:
        """Whether a runner holds this state folder."""
        return presence.holder(self.home, home.RUNNER_LOCK) is not None

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

    def _set(self, name: str, value: dict[str, Any], action: str) -> None:
        with self.store.transaction():
            self.box.set(name, value)
            self.jobs.note(None, None, name, value)
            self.audit.add(self.actor, action, {})
        self.ring()

    def ring(self) -> None:
        """Wake the runner, if there is one."""
        doorbell.ring(self.home, home.RUNNER_BELL)


def _refuse_unusable(text: str) -> None:
    """What no process can be given as an argument or a variable."""
    if "\0" in text:
        raise UserError("There is a NUL byte in it; send text.")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise UserError("There is half a character in it (a lone surrogate); send it again.") from None


def _is_shell(spec: JobSpec) -> bool:
    """A script may be another language's; what ends in & there is none of our business."""
    first = spec.command.partition("\n")[0]
    return not (spec.script and first.startswith("#!") and not first.rstrip().endswith("sh"))


class _Asked:
    """A queued job as the scheduler wants to see it."""

    def __init__(self, job: Job) -> None:
        self.id, self.gpus, self.on = job.id, job.spec.gpus, job.spec.on
        self.order = (-job.spec.priority.rank, job.id)


def _existing(snapshot: Snapshot) -> list[Room]:
    usable = [gpu for gpu in snapshot.gpus if gpu.health is not GpuHealth.UNSUPPORTED]
    return [Room(index=gpu.index, uuid=gpu.uuid, free_slots=(0,), slots=1) for gpu in usable]


def _described(job: Job, waiting_for: str | None) -> dict[str, Any]:
    spec = job.spec
    return {
        "id": job.id,
        "name": spec.name,
        "command": spec.command,
        "owner": spec.owner,
        "workspace": spec.workspace,
        "dir": spec.dir,
        "priority": spec.priority.value,
        "gpus_wanted": spec.gpus,
        "on": list(spec.on),
        "time_limit_s": spec.time_limit_s,
        "state": job.state.value,
        "reason": job.reason.value if job.reason else None,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "phase": job.phase.value if job.phase else None,
        "attempt": job.attempt,
        "gpus": list(job.gpus),
        "batch_size": job.batch_size,
        "run_id": job.run_id,
        "submitted_at": clock.text(job.submitted_at),
        "started_at": clock.text(job.started_at) if job.started_at else None,
        "finished_at": clock.text(job.finished_at) if job.finished_at else None,
        "stop": {"reason": job.stop.reason.value, "by": job.stop.by, "at": clock.text(job.stop.at)}
        if job.stop
        else None,
        "waiting_for": waiting_for,
    }


def job_spec(
    values: Mapping[str, Any], *, command: str, argv: Sequence[str] | None = None, script: bool = False, owner: str,
    folder: str, environment_key: str, umask: int, workspace: Any = None,
) -> JobSpec:  # fmt: skip
    """A spec from options as `runner.options` reads them."""
    return JobSpec(
        command=shlex.join(argv) if argv is not None else command,
        argv=tuple(argv) if argv is not None else None,
        script=script,
        owner=owner,
        name=values.get("name"),
        workspace=workspace.name if workspace else None,
        dir=os.path.abspath(os.path.join(folder, os.path.expanduser(values["dir"]))) if "dir" in values else folder,
        environment=environment_key,
        env=dict(values.get("env", {})),
        env_file=workspace.env_file if workspace else None,
        umask=umask,
        gpus=values.get("gpus", 1),
        on=tuple(values.get("on", ())),
        time_limit_s=values.get("time_limit_s"),
        priority=Priority(values.get("priority", "normal")),
        retries=values.get("retries", 0),
        stop_grace_s=values.get("stop_grace_s"),
    )


__all__ = ["Queue", "job_spec"]
