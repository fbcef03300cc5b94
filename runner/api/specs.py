"""Make a job's spec from options, and refuse specs that can never run: on any box, or on this one."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner.config import home
from runner.config.options import OPTIONS
from runner.errors import UserError
from runner.gpu.published import read_published
from runner.model import GpuHealth, JobSpec, Priority, State
from runner.schedule.request import request_of
from runner.store.box import BoxKey, box_limits
from runner.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.api.queue import Queue
    from runner.config.workspace import Workspace
    from runner.model import Snapshot
    from runner.schedule.room import Room

LONGEST_COMMAND = 1_000_000
BATCH, ACCUMULATION = "{batch_size}", "{grad_accum}"
# these options have the name and the value of a field of the spec
_AS_GIVEN = {option.key for option in OPTIONS} - {"dir", "env", "gpus", "priority", "probe", "snapshot", "workspace"}
_AS_GIVEN |= {"parameters", "terminal"}
NO_RETRIES = "--retry-on says when to retry, but not how often: add --retries 2"


def job_spec(
    values: Mapping[str, Any], *, command: str, argv: Sequence[str] | None = None, script: bool = False, owner: str,
    folder: str, environment_key: str, umask: int, workspace: Workspace | None = None,
) -> JobSpec:  # fmt: skip
    """Return a spec from options as `runner.config.options` reads them. Raise UserError if options contradict each
    other, or one needs another."""
    if values.get("retry_on") and not values.get("retries"):
        raise UserError(NO_RETRIES)
    if values.get("gpus") == 0 and (values.get("gpu_mem_mib") or values.get("gpu_type")):
        raise UserError("--gpus 0 asks for no GPU: leave out --gpu-mem and --gpu-type, or ask for at least 1 GPU")
    as_given: dict[str, Any] = {
        key: tuple(values[key]) if isinstance(values[key], list) else values[key] for key in _AS_GIVEN & values.keys()
    }
    if workspace and workspace.progress:
        as_given.setdefault("progress", workspace.progress)
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
        probe=probe_settings(values.get("probe"), command, argv, script=script, workspace=workspace),
    )


def probe_settings(
    asked: Mapping[str, Any] | None, command: str, argv: Sequence[str] | None, *, script: bool,
    workspace: Workspace | None = None,
) -> dict[str, Any] | None:  # fmt: skip
    """Return the probe settings of a job; None if no probe is asked for. Raise UserError if they cannot work.

    The job's options override its profile, and that overrides the workspace. Settings that none of them names are left
    out: the box's own are used when the job starts.
    """
    has_placeholder = any(BATCH in text for text in ([command] if argv is None else argv))
    if asked is None and not has_placeholder:
        return None
    place, job = dict(workspace.probe if workspace else {}), dict(asked or {})
    theirs, own = place.pop("profile", None), job.pop("profile", None)
    below = {} if own else _of_profile(theirs)  # two profiles at once would mix the settings of two programs
    settings = {**below, **place, **_of_profile(own), **job}
    if settings.get("batch_arg") and not has_placeholder and argv is None:
        _refuse_unappendable(command, script=script)
    return settings


def _of_profile(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    from runner.config.profiles import named

    return {"profile": name, **named(name, home.state_folder())}


def refuse_terminal(spec: JobSpec, job_id: int) -> None:
    """Raise UserError for a job that had a terminal: it cannot run again without one."""
    if spec.terminal:
        raise UserError(f"Job {job_id} had a terminal. To get another one, type at a terminal: nightshift run")


def with_changes(spec: JobSpec, changes: Sequence[str], called: str) -> JobSpec:
    """Return the spec with some arguments of its command changed. `called` names it in an error."""
    from runner.commands.argument_changes import changed  # imported late: few jobs need it

    if spec.script:
        what = called[:1].upper() + called[1:]
        raise UserError(f"{what} is a script, so its arguments cannot be changed. Change the file and submit it.")
    command, argv = changed(spec.command, spec.argv, changes)
    return replace(spec, command=command, argv=None if argv is None else tuple(argv), parameters={}, again_of=None)


# -- specs that could not run on any box -------------------------------------------------------------


def refuse_unrunnable(spec: JobSpec) -> None:
    """Raise UserError for a spec that could not run on any box."""
    for text in (spec.command, *(spec.argv or ()), spec.dir, *spec.env, *spec.env.values()):
        _refuse_unusable(text)
    if len(spec.command) > LONGEST_COMMAND:
        raise UserError("The command is longer than a million characters. Put a part of it into a file that it reads.")
    if spec.argv is None and _is_shell(spec):
        from runner.commands.background_check import refuse_leaving  # imported late: it parses shell text

        refuse_leaving(spec.command)
    _refuse_unprobable(spec)
    if spec.terminal and (spec.probe is not None or spec.retries or spec.preemptible or spec.trial):
        unfit = "--probe, {batch_size}, --retries, --preemptible and --try"
        raise UserError(f"A job with a terminal runs once: leave out {unfit}.")
    if not os.path.isdir(spec.dir):
        raise UserError(f"The folder {spec.dir} does not exist. Submit the job from another folder, or with --dir.")


def _refuse_unusable(text: str) -> None:
    """Raise UserError for text that cannot be an argument or variable of a process."""
    if "\0" in text:
        raise UserError("The command, the folder or a variable contains a NUL byte. Remove it.")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise UserError(
            "The command, the folder or a variable contains half a character (a lone surrogate). Type it again."
        ) from None


def _is_shell(spec: JobSpec) -> bool:
    """Return whether the command is run by a shell. A script in another language is not checked for `&`."""
    first = spec.command.partition("\n")[0]
    return not (spec.script and first.startswith("#!") and not first.rstrip().endswith("sh"))


def _refuse_unappendable(command: str, *, script: bool) -> None:
    """Raise UserError if an argument added at the end of the command would not reach the program."""
    text = command.strip()
    if script or "\n" in text or "#" in text or text.endswith((";", "&", ")", "}")) or re.search(r"[^|]\|[^|]", text):
        raise UserError(
            f"No argument can be added to the end of this command. Put {BATCH} where the batch size belongs, or let the"
            " program read NIGHTSHIFT_BATCH_SIZE. Leave out --batch-arg and --profile, in the workspace too."
        )


def _refuse_unprobable(spec: JobSpec) -> None:
    """Raise UserError for a probe without a GPU, or for {grad_accum} without a probe."""
    if spec.probe is None:
        if any(ACCUMULATION in text for text in (spec.command, *(spec.argv or ()))):
            raise UserError(f"{ACCUMULATION} needs --probe, or {BATCH} in the command.")
    elif spec.gpus == 0:
        raise UserError(f"A probe measures GPU memory, but this job asks for no GPU: leave out --probe and {BATCH}.")


# -- specs that cannot run on this box ---------------------------------------------------------------


class SpecChecks:
    """What this box adds to a spec, and what it refuses."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def with_time_limit(self, spec: JobSpec) -> JobSpec:
        """Return the spec, with the box's default time limit if it names none."""
        usual_s = self._queue.box.get(BoxKey.TIMES, {}).get("usual_s")
        return replace(spec, time_limit_s=usual_s) if spec.time_limit_s is None and usual_s is not None else spec

    def check(self, spec: JobSpec) -> None:
        """Raise UserError for a job that could never run here."""
        if not spec.command.strip():
            raise UserError(f"There is no command. Try: {self._queue.typed('submit -- python train.py')}")
        refuse_unrunnable(spec)
        self._refuse_on_engine(spec)
        self._refuse_too_long(spec)
        self.refuse_unmet(spec)
        published = read_published(self._queue.home)
        snapshot = published[0] if published else None
        is_blind = snapshot is not None and snapshot.trouble is not None and not snapshot.gpus
        if snapshot is not None and not (spec.gpus and is_blind):  # GPUs that cannot be read may come back
            self._refuse_too_large(spec, snapshot)
        elif home.setting("GPUS") == "none" and spec.gpus:
            raise UserError("This box is set up without GPUs (NIGHTSHIFT_GPUS=none). Use --gpus 0.")

    def _refuse_too_large(self, spec: JobSpec, snapshot: Snapshot) -> None:
        from runner.schedule.feasibility import never_fits  # imported late: without a runner no GPUs are known

        box = self._queue.box
        rooms = _existing(snapshot, int(box.get(BoxKey.SLOTS, 1)))
        limits = box_limits(self._queue.store)
        slots: dict[str | None, int] = {None: int(box.get(BoxKey.CPU_SLOTS, 1))}
        if box.get(BoxKey.ENGINE) is not None:
            limits, slots = replace(limits, cpus=None, ram_mib=None), {None: 1}  # Slurm's nodes, not this host
        if reason := never_fits(request_of(spec), rooms, slots, limits):
            raise UserError(_why_unsupported(snapshot) if spec.gpus and not rooms and snapshot.gpus else reason)

    def _refuse_on_engine(self, spec: JobSpec) -> None:
        """Raise UserError for what this box's engine cannot do."""
        engine = self._queue.box.get(BoxKey.ENGINE)
        if engine is None:
            if spec.slurm:
                option = f"--{next(iter(spec.slurm))}"
                raise UserError(
                    f"{option} is for Slurm, but this box runs jobs itself (NIGHTSHIFT_ENGINE). Leave it out."
                )
            return
        if spec.on:
            raise UserError("Slurm chooses the GPUs: use --gpus N, and --gpu-type or --constraint, instead of --on.")
        if spec.gpu_mem_mib:
            raise UserError("Slurm does not know the memory of GPUs: choose them by --gpu-type or --constraint.")
        if spec.preemptible:
            raise UserError("On Slurm, its own rules decide who is preempted: choose a --qos or --partition for that.")
        if engine["account"] is not None:
            self._refuse_second_person(spec.owner, engine["account"])

    def _refuse_second_person(self, owner: str, account: str) -> None:
        """Raise UserError if Slurm would charge a job to somebody else. The account's owner may use one chat, too."""
        box = self._queue.box
        if owner != account and box.get(BoxKey.SLURM_PERSON) is None:
            box.set(BoxKey.SLURM_PERSON, owner)
        if owner not in (account, box.get(BoxKey.SLURM_PERSON)):
            raise UserError(
                f"Jobs of this box run under the Slurm account {account}, which would be charged for yours. Run"
                " your own nightshift, or ask the admin to allow it: NIGHTSHIFT_SLURM_SHARED_ACCOUNT=yes"
            )

    def _refuse_too_long(self, spec: JobSpec) -> None:
        longest_s = self._queue.box.get(BoxKey.TIMES, {}).get("longest_s")
        if longest_s is not None and (spec.time_limit_s is None or spec.time_limit_s > longest_s):
            raise UserError(f"Jobs may run for {format_duration(longest_s)} here. Set --time to that or less.")

    def refuse_unmet(self, spec: JobSpec) -> None:
        """Raise UserError if a job it depends on does not exist, or ended without the success it needs."""
        for other in (*spec.after, *spec.after_ok):
            state = self._queue.job(other).state
            if other in spec.after_ok and state.final and state is not State.SUCCEEDED:
                raise UserError(
                    f"Job {other} has ended ({state.value.lower()}), so a job that needs its success would never start."
                    f" Run it again: {self._queue.typed(f'rerun {other}')}. Or use --after {other}: any end will do."
                )

    def refuse_snapshot_missing(self, spec: JobSpec) -> None:
        """Raise UserError if the snapshot that a job is to run from has been removed."""
        if spec.snapshot:
            from runner.snapshot import code_copy

            code_copy.refuse_gone(self._queue.home, spec)


def _existing(snapshot: Snapshot, slots: int) -> list[Room]:
    """Return the usable GPUs as if nothing ran on them."""
    from runner.gpu.availability import room_of

    usable = [gpu for gpu in snapshot.gpus if gpu.health is not GpuHealth.UNSUPPORTED]
    return [room_of(replace(gpu, memory_used_mib=0), (), slots, None) for gpu in usable]


def _why_unsupported(snapshot: Snapshot) -> str:
    """Return why no GPU of the box can be used for jobs, in the driver's words."""
    details = ". ".join(f"GPU {gpu.index} {gpu.detail}" for gpu in snapshot.gpus)
    return f"This box has no GPU for jobs. {details}. For a job that needs none: --gpus 0"
