"""What a submission asks for of a batch size: options and profile, as the spec keeps them."""

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
    """What is asked for, over the job's profile, over what its workspace says; None where nothing is. Raises UserError.

    Only what was said is kept: the rest is the box's own, and is settled when the job starts.
    """
    asked = values.get("probe")
    texts = [command] if argv is None else list(argv)
    placed = any(BATCH in text for text in texts)
    if asked is None and not placed:
        return None
    place, job = dict(workspace or {}), dict(asked or {})
    theirs, own = place.pop("profile", None), job.pop("profile", None)
    below = {} if own else _of_profile(theirs)  # two profiles at once would mix two programs
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
    """An argument goes to the end of the command, which must then be the end of the program's own words."""
    text = command.strip()
    if script or "\n" in text or "#" in text or text.endswith((";", "&", ")", "}")) or re.search(r"[^|]\|[^|]", text):
        raise UserError(
            f"No argument can be added to the end of this. Put {BATCH} where the batch belongs, or let the program "
            "read NIGHTSHIFT_BATCH_SIZE, and leave out --batch-arg and --profile, also those of the workspace."
        )


def refuse_unprobable(spec: JobSpec) -> None:
    """UserError for a probe that could never measure anything."""
    if spec.probe is None:
        if any(ACCUMULATION in text for text in (spec.command, *(spec.argv or ()))):
            raise UserError(f"{ACCUMULATION} is known only with --probe, or {BATCH} in the command.")
        return
    if spec.gpus == 0:
        raise UserError("A batch is found by the memory of a GPU, and this job asks for none: leave --probe out.")
