"""The probe settings of a submitted job, from its options, its profile and its workspace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.model import JobSpec

BATCH, ACCUMULATION = "{batch_size}", "{grad_accum}"


def probe_asked(
    values: Mapping[str, Any],
    *,
    command: str,
    argv: Sequence[str] | None,
    script: bool,
    workspace: Mapping[str, Any] | None = None,
) -> dict[str, Any] | None:
    """Return the probe settings of a job; None if no probe is asked for. Raise UserError if they cannot work.

    The job's options override its profile, and that overrides the workspace. Settings that none of them names are left
    out: the box's own are used when the job starts.
    """
    asked = values.get("probe")
    texts = [command] if argv is None else list(argv)
    placed = any(BATCH in text for text in texts)
    if asked is None and not placed:
        return None
    place, job = dict(workspace or {}), dict(asked or {})
    theirs, own = place.pop("profile", None), job.pop("profile", None)
    below = {} if own else _of_profile(theirs)  # two profiles at once would mix the settings of two programs
    found = {**below, **place, **_of_profile(own), **job}
    if found.get("batch_arg") and not placed and argv is None:
        _refuse_unappendable(command, script=script)
    return found


def _of_profile(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    from runner.config import home
    from runner.config.profiles import named

    chosen = named(name, home.state_folder())
    said = {key: getattr(chosen, key) for key in chosen.said}
    return {"profile": name, **{k: list(v) if isinstance(v, tuple) else v for k, v in said.items()}}


def _refuse_unappendable(command: str, *, script: bool) -> None:
    """Raise UserError if an argument added at the end of the command would not reach the program."""
    text = command.strip()
    if script or "\n" in text or "#" in text or text.endswith((";", "&", ")", "}")) or re.search(r"[^|]\|[^|]", text):
        raise UserError(
            f"No argument can be added to the end of this. Put {BATCH} where the batch belongs, or let the program "
            "read NIGHTSHIFT_BATCH_SIZE, and leave out --batch-arg and --profile, also those of the workspace."
        )


def refuse_unprobable(spec: JobSpec) -> None:
    """Raise UserError for a probe without a GPU, or for {grad_accum} without a probe."""
    if spec.probe is None:
        if any(ACCUMULATION in text for text in (spec.command, *(spec.argv or ()))):
            raise UserError(f"{ACCUMULATION} is known only with --probe, or {BATCH} in the command.")
        return
    if spec.gpus == 0:
        raise UserError("A batch is found by the memory of a GPU, and this job asks for none: leave --probe out.")
