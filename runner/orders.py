"""From a job to the spec its supervisor is given."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from runner import environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.model import Job
    from runner.settings import Settings

MIB = 1 << 20
LONGEST_ARGUMENT = 100_000  # the kernel takes 128 KiB in one argument; longer shell text goes into a file


def order(
    job: Job,
    attempt: int,
    gpus: tuple[str, ...],
    variables: Mapping[str, str],
    folder: str,
    settings: Settings,
) -> tuple[dict[str, Any], str | None]:
    """The spec of an attempt, and the script to lay beside it where the command is one."""
    spec = job.spec
    complete = environment.for_job(
        variables, spec.env, job_id=job.id, attempt=attempt, run_id=job.run_id, gpu_uuids=gpus,
        home=settings.home, folder=spec.dir, batch_size=job.batch_size,
    )  # fmt: skip
    argv, script = _command(job, folder)
    grace_s = settings.stop_grace if spec.stop_grace_s is None else spec.stop_grace_s
    return {
        "job_id": job.id,
        "attempt": attempt,
        "run_id": job.run_id,
        "argv": argv,
        # what the env file says comes between the two: over the environment, under what was asked for
        "env": {key: value for key, value in variables.items() if key in complete},
        "env_file": spec.env_file,
        "env_over": {key: value for key, value in complete.items() if variables.get(key) != value or key in spec.env},
        "dir": spec.dir,
        "umask": spec.umask,
        "time_limit_s": spec.time_limit_s,
        "stop_grace_s": grace_s,
        "log_limit_bytes": settings.log_limit * MIB,
        "log_tail_bytes": settings.log_tail * MIB,
    }, script


def _command(job: Job, folder: str) -> tuple[list[str], str | None]:
    if job.spec.argv is not None:
        return [fill(word, job) for word in job.spec.argv], None
    text = fill(job.spec.command, job)
    if not job.spec.script and len(os.fsencode(text)) < LONGEST_ARGUMENT:
        return ["bash", "-c", text], None
    path = os.path.join(folder, "script")
    return ([path] if text.startswith("#!") else ["bash", path]), text


def fill(text: str, job: Job) -> str:
    """Replace exactly the placeholders we know; every other brace is the shell's."""
    return text.replace("{run_id}", job.run_id).replace("{job_id}", str(job.id))
