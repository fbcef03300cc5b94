"""Build the environment of a job's process."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PREFIX = "NIGHTSHIFT_"

# These describe one terminal at one moment and are wrong by the time the job runs. Variables that somebody set
# on purpose stay. That includes BASH_ENV: on clusters it makes `module load` work in a shell that is no login shell.
_OF_A_SHELL = {"_", "SHLVL", "PWD", "OLDPWD", "__PYVENV_LAUNCHER__"}
_OF_A_TERMINAL = {"COLUMNS", "LINES", "WINDOW", "WINDOWID", "STY", "TMUX", "TMUX_PANE", "GPG_TTY"}
_OF_A_LOGIN = {"SSH_TTY", "SSH_CLIENT", "SSH_CONNECTION"}
# Set by nightshift: a job sees the GPUs it holds, not the ones its submitter saw.
_UNWANTED = {"CUDA_VISIBLE_DEVICES"} | _OF_A_SHELL | _OF_A_TERMINAL | _OF_A_LOGIN
_OF_A_VENV = {"VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "PYTHONHOME"}

_LOGIN_LIMIT_S = 30.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def captured(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a submitter's environment without nightshift's own variables, its venv, and those of the terminal."""
    variables = {k: v for k, v in environ.items() if k not in _UNWANTED and not k.startswith(_PREFIX)}
    if not carries_own_venv(environ):
        return variables
    if _is_own_venv(variables.get("VIRTUAL_ENV", "")):
        variables = {k: v for k, v in variables.items() if k not in _OF_A_VENV and not k.startswith("_OLD_VIRTUAL_")}
    folders = [folder for folder in variables.get("PATH", "").split(":") if not _is_own_bin(folder)]
    return {**variables, "PATH": ":".join(folders) or _PATH}


def carries_own_venv(environ: Mapping[str, str]) -> bool:
    """Return whether nightshift's own virtual environment is active there. Jobs never get it."""
    folders = environ.get("PATH", "").split(":")
    return _is_own_venv(environ.get("VIRTUAL_ENV", "")) or any(map(_is_own_bin, folders))


def _is_own_venv(folder: str) -> bool:
    return sys.prefix != sys.base_prefix and _same(folder, sys.prefix)


def _is_own_bin(folder: str) -> bool:
    return sys.prefix != sys.base_prefix and _same(folder, os.path.join(sys.prefix, "bin"))


def _same(folder: str, other: str) -> bool:
    """Return whether two folders are the same by name or after resolving links. A missing folder still has a name."""
    if not os.path.isabs(folder):
        return False
    return os.path.normpath(folder) == os.path.normpath(other) or os.path.realpath(folder) == os.path.realpath(other)


def fingerprint(env: Mapping[str, str]) -> str:
    """Return a hash of an environment; equal environments have equal hashes."""
    from runner.digests import sha256

    items = "\0".join(f"{name}={value}" for name, value in sorted(env.items()))
    return sha256(items.encode("utf-8", "surrogatepass")).hexdigest()


def for_job(
    base: Mapping[str, str], over: Mapping[str, str], *, job_id: int, attempt: int, run_id: str,
    gpu_uuids: Sequence[str], home: str, folder: str | None = None, batch_size: int | None = None,
    submit_folder: str | None = None, cpus: int = 0, ram_mib: int = 0,
) -> dict[str, str]:  # fmt: skip
    """Return all variables of an attempt: captured ones, then the user's `--env`, then nightshift's own. Later wins."""
    env = {"PYTHONUNBUFFERED": "1", **base, **over}
    env |= {
        "NIGHTSHIFT_JOB_ID": str(job_id),
        "NIGHTSHIFT_RUN_ID": run_id,
        "NIGHTSHIFT_ATTEMPT": f"{job_id}.{attempt}.{run_id}",  # stray processes are found by this mark
        "NIGHTSHIFT_HOME": home,
        "CUDA_VISIBLE_DEVICES": ",".join(gpu_uuids),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "PATH": _with_command(env.get("PATH") or _PATH, home),
    }
    optional = {
        "NIGHTSHIFT_BATCH_SIZE": batch_size,
        "NIGHTSHIFT_JOB_CPUS": cpus or None,
        "NIGHTSHIFT_JOB_RAM_MIB": ram_mib or None,
        "NIGHTSHIFT_SUBMIT_DIR": submit_folder,
        "PWD": folder,
    }
    env |= {name: str(value) for name, value in optional.items() if value is not None}
    env.pop("NIGHTSHIFT_TOKEN", None)
    return env


def isolated(run_id: str, scratch: str) -> dict[str, str]:
    """Return the variables that keep a probe or a trial from spoiling what the real run writes."""
    return {
        "NIGHTSHIFT_PROBE": "1",
        "WANDB_MODE": "disabled",
        "NIGHTSHIFT_RUN_ID": run_id,
        "NIGHTSHIFT_SCRATCH": scratch,
    }


def _with_command(path: str, home: str) -> str:
    """Return PATH with nightshift's command appended, so that it hides no program of the user's."""
    folder = os.path.join(home, "bin")
    return path if folder in path.split(":") else f"{path}:{folder}"


def login_environment(folder: str, activate: str | None) -> dict[str, str]:
    """Return the environment after a fresh login shell has entered the folder and run the activate line."""
    from tempfile import TemporaryDirectory

    if not os.path.isdir(folder):
        raise UserError(f"there is no folder {folder}")
    # Files, not pipes: an agent started by a profile would keep a pipe open for ever. The environment gets a file
    # of its own, so that nothing the profile prints can get into it.
    with TemporaryDirectory(prefix="nightshift-") as scratch:
        result, output = os.path.join(scratch, "environment"), os.path.join(scratch, "output")
        code = _run_login_shell(folder, _login_script(folder, activate, result), output)
        if code != 0 or not os.path.exists(result):
            raise UserError(_login_failure(folder, activate, code, output))
        return captured(_read_environment(result))


def _login_script(folder: str, activate: str | None, result: str) -> str:
    from shlex import quote

    # eval, not another shell: `conda activate` is a function that changes the shell it runs in. The line is not a
    # positional parameter either: scripts that are sourced would take it for their own.
    lines = [f"cd -- {quote(folder)} || exit $?"]
    if activate:
        lines.append(f"eval {quote(activate)} || exit $?")
    return "\n".join([*lines, f"exec /usr/bin/env -0 >| {quote(result)}"])


def _run_login_shell(folder: str, script: str, output: str) -> int | None:
    """Run a script in a login shell. Return its exit code, or None if it was killed after the time limit."""
    import subprocess
    from signal import SIGKILL

    with open(output, "wb") as file:
        for shell in ("bash", "sh"):
            try:
                process = subprocess.Popen(
                    [shell, "-lc", script], cwd=folder, env=_bare_environment(), stdin=subprocess.DEVNULL,
                    stdout=file, stderr=file, start_new_session=True,
                )  # fmt: skip
                return process.wait(_LOGIN_LIMIT_S)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise UserError(f"cannot start a shell in {folder}: {error.strerror}") from None
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, SIGKILL)
                process.wait()
                return None
    raise UserError("there is neither bash nor sh on this box")


def _bare_environment() -> dict[str, str]:
    """Return the environment that a login starts from, without the other variables of this process."""
    from pwd import getpwuid

    try:
        entry = getpwuid(os.getuid())
        user = {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name, "SHELL": entry.pw_shell}
    except KeyError:  # a container may run under a user id that has no name
        user = {"HOME": "/"}
    inherited = {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME", "SHELL") if os.environ.get(name)}
    return {**user, **inherited, "LANG": os.environ.get("LANG") or "C.UTF-8", "PATH": _PATH}


def _read_environment(path: str) -> dict[str, str]:
    with open(path, "rb") as file:
        items = os.fsdecode(file.read()).split("\0")
    return dict(item.split("=", 1) for item in items if "=" in item)


def _login_failure(folder: str, activate: str | None, code: int | None, output: str) -> str:
    with open(output, "rb") as file:
        lines = file.read().decode("utf-8", "replace").splitlines()
    lines = "\n".join(line for line in lines if line.strip())[-1000:].splitlines()[-5:]
    how = f"took longer than {_LOGIN_LIMIT_S:g} s" if code is None else f"failed (exit {code})"
    what = f"the activate line {how}: {activate}" if activate else f"the login shell {how} in {folder}"
    return "\n".join([what, *lines])
