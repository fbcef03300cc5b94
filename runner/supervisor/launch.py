"""Starts the job's first process from its spec."""

from __future__ import annotations

import contextlib
import os
import resource
import signal

from runner.config.env_file import read_env_file
from runner.errors import JobError, UserError
from runner.supervisor import left_behind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runner.rundir import AttemptSpec

EVERY_SIGNAL = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


def launch(spec: AttemptSpec, output: int) -> int:
    """Start the job with its output going to this descriptor, a pipe or its own terminal. Return its pid.

    Raises JobError with one sentence if it cannot be executed.
    """
    before = os.umask(spec.umask)
    try:
        environment = _environment(spec)
        os.chdir(spec.dir)
        with left_behind.marking(left_behind.mark_of(spec.job_id, spec.attempt, spec.run_id)) as fix_on:
            pid = _spawn(spec.argv, environment, output)
            fix_on(pid)
        return pid
    except (UserError, ValueError) as error:
        raise JobError(str(error)) from error
    except OSError as error:
        raise JobError(f"{error.strerror}: {error.filename or spec.argv[0]}") from error
    finally:
        os.umask(before)  # the job's umask must not make our own files unreadable


def _environment(spec: AttemptSpec) -> dict[str, str]:
    from_file = read_env_file(spec.env_file) if spec.env_file else {}
    merged = {**spec.env, **from_file, **spec.env_over}
    merged.pop("NIGHTSHIFT_TOKEN", None)  # a job with .env as its env file must not get the bot's token
    return merged


def limit_core_files() -> None:
    """Set the core-file limit: core files fill the disk. A job that wants one may raise the soft limit again."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def offer_to_oom_killer() -> None:
    """Set the OOM score that the job inherits, so that the kernel kills it before its supervisor."""
    _set_oom_score(b"500")


def _spawn(argv: tuple[str, ...], environment: dict[str, str], output: int) -> int:
    # the first terminal that a new session opens is its controlling terminal
    stdin = (os.ttyname(output), os.O_RDWR) if os.isatty(output) else ("/dev/null", os.O_RDONLY)
    try:
        return os.posix_spawn(
            _find(argv[0], environment.get("PATH", os.defpath)),
            argv,
            environment,
            file_actions=(
                (os.POSIX_SPAWN_OPEN, 0, *stdin, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ),
            setsid=True,
            setsigmask=(),
            setsigdef=EVERY_SIGNAL,
        )
    finally:
        _set_oom_score(b"0")


def _set_oom_score(value: bytes) -> None:
    with contextlib.suppress(OSError):
        file = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(file, value)
        finally:
            os.close(file)


def _find(program: str, path: str) -> str:
    """Return the file to execute, looked up in the job's PATH, not in ours."""
    if "/" in program:
        return program
    for folder in path.split(":"):
        candidate = os.path.join(folder, program)
        if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return candidate
    raise FileNotFoundError(2, "command not found in the job's PATH", program)
