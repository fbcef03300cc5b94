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
    values: Mapping[str, Any], *, command: str, argv: Sequence[str] | None, script: bool
) -> dict[str, Any] | None:
    """What is asked for, with the profile's settings; None where nothing is. Raises UserError.

    Only what was said is kept: the rest is the box's own, and is settled when the job starts.
    """
    asked = values.get("probe")
    texts = [command] if argv is None else list(argv)
    placed = any(BATCH in text for text in texts)
    if asked is None and not placed:
        return None
    found = {**_of_profile(asked), **{key: value for key, value in (asked or {}).items() if key != "profile"}}
    if found.get("batch_arg") and not placed and argv is None:
        _refuse_unappendable(command, script=script)
    return found


def _of_profile(asked: Mapping[str, Any] | None) -> dict[str, Any]:
    if not asked or "profile" not in asked:
        return {}
    from runner import home
    from runner.profiles import named

    chosen = named(asked["profile"], home.state_folder())
    said = {key: getattr(chosen, key) for key in chosen.said}
    return {"profile": asked["profile"], **{k: list(v) if isinstance(v, tuple) else v for k, v in said.items()}}


def _refuse_unappendable(command: str, *, script: bool) -> None:
    """An argument goes to the end of the command, which must then be the end of the program's own words."""
    text = command.strip()
    if script or "\n" in text or "#" in text or text.endswith((";", "&", ")", "}")) or re.search(r"[^|]\|[^|]", text):
        raise UserError(
            f"No argument can be added to the end of this. Put {BATCH} where the batch belongs, or let the program "
            "read NIGHTSHIFT_BATCH_SIZE, and leave out --batch-arg and --profile."
        )


def refuse_unprobable(spec: JobSpec) -> None:
    """UserError for a probe that could never measure anything."""
    if spec.probe is None:
        if any(ACCUMULATION in text for text in (spec.command, *(spec.argv or ()))):
            raise UserError(f"{ACCUMULATION} is known only with --probe, or {BATCH} in the command.")
        return
    if spec.gpus == 0:
        raise UserError("A batch is found by the memory of a GPU, and this job asks for none: leave --probe out.")
