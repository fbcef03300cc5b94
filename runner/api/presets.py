"""Presets: save a job under a name, and queue it again with other arguments or options."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runner.api.edits import Edit, edited
from runner.api.specs import refuse_terminal, with_changes
from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runner.api.queue import Queue
    from runner.config.workspace import Workspace
    from runner.model import JobSpec
    from runner.store.presets import Preset

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")  # what Telegram takes as a command


def save(queue: Queue, job_id: int, name: str) -> str:
    """Save a job as a preset of the queue's actor. Return a sentence about it."""
    name = name.lower()
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} is not a name for a preset: a letter first, then letters, digits or '_'.")
    spec = queue.job(job_id).spec
    refuse_terminal(spec, job_id)
    spec = replace(spec, again_of=None, after=(), after_ok=(), begin_at=None, group=None, parameters={})
    if spec.snapshot is not None:
        spec = replace(spec, snapshot={})  # a new one is taken for each job
    with queue.store.transaction():
        queue.presets.put(queue.actor, name, spec)
        queue.audit.add(queue.actor, "save", {"job": job_id, "preset": name})
    return f"Job {job_id} is saved as {name}."


def find(queue: Queue, name: str) -> Preset:
    """Return the preset that the queue's actor means. Raise UserError, with the names there are, if there is none."""
    preset = queue.presets.get(queue.actor, name.lower())
    if preset is None:
        names = ", ".join(dict.fromkeys(preset.name for preset in queue.presets.all())) or "none yet"
        raise UserError(f"There is no preset {name!r} (there is: {names}). To save a job as one: {_save_like(queue)}")
    return preset


def remove(queue: Queue, name: str) -> str:
    """Delete a preset of the queue's actor. Return a sentence about it."""
    with queue.store.transaction():
        if not queue.presets.remove(queue.actor, name.lower()):
            raise UserError(f"You have no preset {name!r}.")
        queue.audit.add(queue.actor, "delete preset", {"preset": name.lower()})
    return f"The preset {name.lower()} is deleted."


def spec_of(
    preset: Preset, owner: str, changes: Sequence[str], values: Mapping[str, Any],
    place: tuple[Workspace, str, Mapping[str, str]] | None,
) -> JobSpec:  # fmt: skip
    """Return the spec of a new job from a preset: some arguments changed, and these options set.

    `place` is the workspace that the options or the preset name, and its environment as it is now.
    """
    spec = replace(preset.spec, owner=owner, name=preset.spec.name or preset.name)
    if place is not None:
        spec = replace(spec, environment=place[1], env_file=place[0].env_file)
    if changes:
        spec = with_changes(spec, changes, f"the preset {preset.name}")
    moved = place if "workspace" in values else None
    edit = Edit(values=values, workspace=moved[0] if moved else None, environment=moved[1:] if moved else None)
    return edited(spec, edit)


def workspace_of(queue: Queue, preset: Preset, values: Mapping[str, Any]) -> str | None:
    """Return the workspace that the options name, else the preset's own if it still exists."""
    there = {workspace.name for workspace in queue.workspaces.all()}
    own = preset.spec.workspace if preset.spec.workspace in there else None
    return values.get("workspace") or own


def _save_like(queue: Queue) -> str:
    return queue.typed("save 12 as nano")
