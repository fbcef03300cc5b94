"""`nightshift shell`: opens a shell in a job's folder, with its environment and GPUs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from runner import rundir
from runner.config.env_file import read_env_file
from runner.errors import UserError
from runner.snapshot import code_copy
from runner.store.box import BoxKey
from runner.terminal.job_table import gpu_indices
from runner.terminal.session import JOB, open_queue, say
from runner.text.words import gpu_words, printable, state_words

if TYPE_CHECKING:
    from runner.api import Queue
    from runner.model import Job

# The variable by which stray processes of the job are found and ended, and the bot's token.
_NOT_FOR_A_GUEST = ("NIGHTSHIFT_ATTEMPT", "NIGHTSHIFT_TOKEN")
_OF_THIS_TERMINAL = ("TERM", "COLORTERM", "COLUMNS", "LINES", "SSH_TTY", "SSH_CONNECTION", "TMUX", "TMUX_PANE")


@click.command("shell", context_settings={"allow_interspersed_args": False})
@click.argument("job_id", type=JOB, metavar="N")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND…]")
def shell(job_id: int, command: tuple[str, ...]) -> None:
    """Open a shell in the folder of job N, with its environment and its GPUs.

    With a COMMAND, run that instead and exit with its code. One argument is shell text; several are an exact list of
    arguments. The job may be running, waiting or ended. The queue does not count what the shell uses.

    Example: nightshift shell 12 -- nvidia-smi
    """
    with open_queue() as queue:
        job = queue.job(job_id)
        if queue.box.get(BoxKey.ENGINE) is not None:
            raise UserError(
                f"Job {job_id} runs on another host. Where the cluster allows it: srun --overlap --jobid N --pty bash,"
                " with its number from squeue"
            )
        folder = _folder(queue, job)
        variables = guest_environment(queue, job)
        where = _where(queue, job, folder)
    _enter(job, folder)
    say(printable(where))
    _become(_words(command[1:] if command[:1] == ("--",) else command, variables), variables)


def guest_environment(queue: Queue, job: Job) -> dict[str, str]:
    """Return the job's environment with this terminal's variables, without the job's mark and the bot's token."""
    from runner.config import settings
    from runner.engines import attempt_spec

    folder = rundir.folder_of(queue.home, job.id, job.attempt)
    spec = rundir.read_spec(folder)
    if spec is None:
        captured = queue.jobs.environment(job.spec.environment)
        spec, _ = attempt_spec.order(job, job.attempt, job.gpus, captured, folder, settings.load())
    from_file = read_env_file(spec.env_file) if spec.env_file else {}
    here = {name: os.environ[name] for name in _OF_THIS_TERMINAL if name in os.environ}
    merged = {**spec.env, **from_file, **spec.env_over, **here}
    return {name: value for name, value in merged.items() if name not in _NOT_FOR_A_GUEST}


def _folder(queue: Queue, job: Job) -> str:
    if not job.spec.snapshot:
        return job.spec.dir
    code_copy.refuse_gone(queue.home, job.spec)
    return code_copy.work_folder(queue.home, job.spec)


def _where(queue: Queue, job: Job, folder: str) -> str:
    what = f"job {job.id} ({state_words(job)}), folder {folder}"
    if not job.gpus:
        return f"{what}, no GPU"
    others = sorted(
        {lease.job_id for lease in queue.line.leases() if lease.resource in job.gpus and lease.job_id != job.id}
    )
    in_use = f" (now used by {', '.join(f'#{other}' for other in others)})" if others else ""
    return f"{what}, GPU {gpu_words(job, gpu_indices(queue))}{in_use}"


def _enter(job: Job, folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        raise UserError(f"Cannot enter the folder of job {job.id}: {error.strerror}: {folder}") from error
    os.umask(job.spec.umask)


def _words(command: tuple[str, ...], variables: dict[str, str]) -> list[str]:
    if len(command) == 1:
        return ["bash", "-c", command[0]]
    return list(command) or [os.environ.get("SHELL") or variables.get("SHELL") or "bash"]


def _become(words: list[str], variables: dict[str, str]) -> NoReturn:
    """Replace this process with the program: its exit code becomes ours."""
    sys.stdout.flush()
    try:
        os.execvpe(words[0], words, variables)  # noqa: S606 - a shell is what is asked for
    except OSError as error:
        raise UserError(f"Cannot run {words[0]!r}: {error.strerror}") from error
