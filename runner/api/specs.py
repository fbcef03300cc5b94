"""Make a spec from options, and refuse specs that could never run."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

from runner.api.probe_options import probe_asked, refuse_unprobable
from runner.commands.background_check import refuse_leaving
from runner.config.options import OPTIONS
from runner.errors import UserError
from runner.model import JobSpec, Priority

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LONGEST_COMMAND = 1_000_000
# these options have the name and the value of a field of the spec
_AS_GIVEN = {option.key for option in OPTIONS} - {"dir", "env", "gpus", "priority", "probe", "snapshot", "workspace"}
_AS_GIVEN |= {"parameters"}
NO_RETRIES = "--retry-on says when a job is tried again, and --retries how often: add --retries 2"


def job_spec(
    values: Mapping[str, Any], *, command: str, argv: Sequence[str] | None = None, script: bool = False, owner: str,
    folder: str, environment_key: str, umask: int, workspace: Any = None,
) -> JobSpec:  # fmt: skip
    """Return a spec from options as `runner.config.options` reads them. Raise UserError if options contradict each
    other, or one needs another."""
    if values.get("retry_on") and not values.get("retries"):
        raise UserError(NO_RETRIES)
    if values.get("gpus") == 0 and (values.get("gpu_mem_mib") or values.get("gpu_type")):
        raise UserError("--gpus 0 asks for no GPU, yet --gpu-mem or --gpu-type says which: leave one of them out")
    as_given: dict[str, Any] = {
        key: tuple(values[key]) if isinstance(values[key], list) else values[key] for key in _AS_GIVEN & values.keys()
    }
    return JobSpec(
        **as_given,
        command=shlex.join(argv) if argv is not None else command,
        argv=tuple(argv) if argv is not None else None,
        script=script,
        owner=owner,
        workspace=workspace.name if workspace else None,
        dir=os.path.abspath(os.path.join(folder, os.path.expanduser(values["dir"]))) if "dir" in values else folder,
        snapshot={} if values.get("snapshot") else None,
        environment=environment_key,
        env=dict(values.get("env", {})),
        env_file=workspace.env_file if workspace else None,
        umask=umask,
        gpus=values.get("gpus", len(values.get("on", ())) or 1),
        priority=Priority(values.get("priority", "normal")),
        probe=probe_asked(
            values, command=command, argv=argv, script=script, workspace=workspace.probe if workspace else None
        ),
    )


def refuse_unrunnable(spec: JobSpec) -> None:
    """Raise UserError for a spec that could not run on any box."""
    for text in (spec.command, *(spec.argv or ()), spec.dir, *spec.env, *spec.env.values()):
        _refuse_unusable(text)
    if len(spec.command) > LONGEST_COMMAND:
        raise UserError("A command may have a million characters. Put the rest into a file that it reads.")
    if spec.argv is None and _is_shell(spec):
        refuse_leaving(spec.command)
    refuse_unprobable(spec)
    if not os.path.isdir(spec.dir):
        raise UserError(f"The folder {spec.dir} does not exist (any more). Submit it from another, or with --dir.")


def _refuse_unusable(text: str) -> None:
    """Raise UserError for text that cannot be an argument or variable of a process."""
    if "\0" in text:
        raise UserError("There is a NUL byte in it; send text.")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise UserError("There is half a character in it (a lone surrogate); send it again.") from None


def _is_shell(spec: JobSpec) -> bool:
    """Return whether the command is run by a shell. A script in another language is not checked for `&`."""
    first = spec.command.partition("\n")[0]
    return not (spec.script and first.startswith("#!") and not first.rstrip().endswith("sh"))
