"""Builds the spec that a supervisor gets for an attempt."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.commands.placeholders import JobCommand, realised
from runner.config import job_environment
from runner.rundir import SCRATCH, AttemptSpec
from runner.supervisor.probe import GRACE_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.config.settings import Settings
    from runner.model import Job, JobSpec
    from runner.supervisor.probe_records import ProbeOrder

MIB = 1 << 20


def order(
    job: Job,
    attempt: int,
    gpus: tuple[str, ...],
    variables: Mapping[str, str],
    folder: str,
    settings: Settings,
    probe: ProbeOrder | None = None,
) -> tuple[AttemptSpec, str | None]:
    """Return the spec of an attempt, and the text of its script; None if the command needs no script file.

    `probe` says how to find its batch.
    """
    spec = job.spec
    folder_of_job = _work_folder(settings.run_root, spec) if spec.snapshot else spec.dir
    complete = job_environment.for_job(
        variables, spec.env, job_id=job.id, attempt=attempt, run_id=job.run_id, gpu_uuids=gpus,
        home=settings.home, folder=folder_of_job, batch_size=job.batch_size, submit_folder=spec.dir,
        cpus=spec.cpus, ram_mib=spec.ram_mib,
    )  # fmt: skip
    argv, script = realised(command_of(job), folder, {"run_id": job.run_id, "job_id": str(job.id)})
    grace_s = settings.stop_grace if spec.stop_grace_s is None else spec.stop_grace_s
    made = AttemptSpec(
        job_id=job.id,
        attempt=attempt,
        run_id=job.run_id,
        argv=tuple(argv),
        env={key: value for key, value in variables.items() if key in complete},
        env_file=spec.env_file,
        env_over={key: value for key, value in complete.items() if variables.get(key) != value or key in spec.env},
        dir=folder_of_job,
        umask=spec.umask,
        terminal=spec.terminal,
        time_limit_s=spec.time_limit_s,
        cpus=spec.cpus,
        ram_mib=spec.ram_mib,
        stop_grace_s=grace_s,
        log_limit_bytes=settings.log_limit * MIB,
        log_tail_bytes=settings.log_tail * MIB,
        probe=probe.to_json() if probe else None,
        progress=spec.progress,
        log=spec.log,
        stop_on=spec.stop_on,
    )
    return _trial(job, made, folder, settings.try_for, probe) if job.untried else (made, script)


def _trial(
    job: Job, spec: AttemptSpec, folder: str, for_s: float, probe: ProbeOrder | None
) -> tuple[AttemptSpec, str | None]:
    """Return the same attempt as a trial: for a short time, isolated like a probe. A probed job has its first batch."""
    run_id = f"{job.run_id}-try"
    variables = job_environment.isolated(run_id, os.path.join(folder, SCRATCH))
    values, added = {"run_id": run_id, "job_id": str(job.id)}, []
    if probe is not None:
        batch = probe.plan.settings.first
        values |= {"batch_size": str(batch), "grad_accum": "1"}
        variables |= {"NIGHTSHIFT_BATCH_SIZE": str(batch), "NIGHTSHIFT_GRAD_ACCUM": "1"}
        added = probe.profile.arguments(batch, run_id, probing=True, placed=probe.placed)
    argv, script = realised(command_of(job), folder, values, added)
    limit_s = for_s if spec.time_limit_s is None else min(for_s, spec.time_limit_s)
    return replace(
        spec, argv=tuple(argv), env_over={**spec.env_over, **variables}, time_limit_s=limit_s,
        stop_grace_s=min(GRACE_S, spec.stop_grace_s), probe=None, trial=True,
    ), script  # fmt: skip


def _work_folder(home: str, spec: JobSpec) -> str:
    """Return the job's folder in its snapshot. Raise ValueError if the snapshot is gone: the job can never run."""
    from runner.snapshot import code_copy

    folder = code_copy.work_folder(home, spec)
    if not os.path.isdir(folder):
        raise ValueError("its snapshot of the code is gone; submit it again")
    return folder


def command_of(job: Job) -> JobCommand:
    """Return the command as it was submitted."""
    return JobCommand(argv=job.spec.argv, text=job.spec.command, script=job.spec.script)
