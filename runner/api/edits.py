"""Edit the spec of a queued job: set the named options, clear others, keep the rest. Writes nothing."""

from __future__ import annotations

import os
import shlex
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.api.specs import BATCH, NO_RETRIES, probe_settings
from runner.config.options import OPTIONS, Option
from runner.errors import UserError
from runner.model import JobSpec, Priority

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from runner.config.workspace import Workspace

COMMAND, PLACE = "command", "workspace"
_ALWAYS_THERE = frozenset({"dir", "workspace"})
_BY_THEMSELVES = frozenset({"env", "probe", "workspace", "snapshot"})  # need more than replacing the old value
_NAMES: dict[str, str] = {}  # field of the spec -> name of its option
_CLEARED: dict[str, str] = {}  # what --clear takes -> field of the spec
for _option in OPTIONS:
    _long = [flag[2:] for flag in _option.flags if flag.startswith("--")]
    if _NAMES.setdefault(_option.key, _long[0]) in _long and _option.key not in _ALWAYS_THERE:
        _CLEARED |= dict.fromkeys(_long, _option.key)
_NAMES |= dict.fromkeys(("command", "argv", "script", "parameters"), COMMAND)
_NAMES |= dict.fromkeys(("environment", "env_file"), PLACE)
_DEFAULTS = {part.name: part.default for part in fields(JobSpec) if part.default is not MISSING} | {"env": {}}
_PROBED = frozenset({"command", "argv", "script", "dir", "environment", "env", "env_file", "gpus", "probe"})
_LONGEST_SHOWN = 60


def _clear(text: str) -> tuple[str, ...]:
    names = [part.strip().lstrip("-") for part in text.split(",")]
    for name in names:
        if name not in _CLEARED:
            raise UserError(f"{name!r} cannot be cleared: choose from {', '.join(sorted(_CLEARED))}")
    return tuple(_CLEARED[name] for name in names)


CLEAR = Option(("--clear",), "time,after", "clear", "remove these options from the job", _clear, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What to change: options as `runner.config.options` reads them, with CLEAR among them, and perhaps the
    command."""

    values: Mapping[str, Any] = field(default_factory=dict)
    command: str | None = None
    argv: Sequence[str] | None = None
    script: bool = False
    workspace: Workspace | None = None  # set if `values` names another one; `environment` is the one captured for it
    environment: tuple[str, Mapping[str, str]] | None = None
    copies: Mapping[str, dict[str, Any]] = field(default_factory=dict)  # snapshots, by the folder they were taken of

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to change."""
        return not self.values and self.command is None and self.argv is None


def edited(spec: JobSpec, edit: Edit) -> JobSpec:
    """Return the edited spec. Raise UserError if its options contradict each other."""
    values = edit.values
    changed: dict[str, Any] = {key: _DEFAULTS[key] for key in values.get("clear", ())}
    changed |= {key: values[key] for key in values if key in _DEFAULTS and key not in _BY_THEMSELVES}
    if "priority" in changed:
        changed["priority"] = Priority(changed["priority"])
    if "env" in values:
        changed["env"] = {**changed.get("env", spec.env), **values["env"]}
    changed |= _placed(spec, edit)
    if edit.argv is not None:
        changed |= {"command": shlex.join(edit.argv), "argv": tuple(edit.argv), "script": False}
    elif edit.command is not None:
        changed |= {"command": edit.command, "argv": None, "script": edit.script}
    if changed.get("command", spec.command) != spec.command:
        changed["parameters"] = {}  # a sweep's parameters belong to the old command
    after = replace(spec, **changed)
    if values.get("snapshot") or (after.snapshot and after.dir != spec.dir):
        after = replace(after, snapshot=edit.copies.get(after.dir, {}))
    _refuse_contradictions(after)
    if values.get("retry_on") and not after.retries:
        raise UserError(NO_RETRIES)
    return replace(after, probe=_probe(spec, after, edit))


def to_copy(spec: JobSpec, edit: Edit) -> str | None:
    """Return the folder that needs a snapshot before this edit can be made; None if no snapshot is needed."""
    after = edited(spec, edit)
    return after.dir if after.snapshot == {} else None


def _placed(spec: JobSpec, edit: Edit) -> dict[str, Any]:
    """Return the changes of workspace and folder. A relative folder starts at the workspace's folder, or the job's."""
    changed: dict[str, Any] = {}
    folder = spec.dir
    if edit.workspace is not None and edit.environment is not None:
        folder = edit.workspace.dir
        changed = {"workspace": edit.workspace.name, "env_file": edit.workspace.env_file}
        changed |= {"environment": edit.environment[0], "dir": folder}
    if "dir" in edit.values:
        changed["dir"] = os.path.abspath(os.path.join(folder, os.path.expanduser(edit.values["dir"])))
    return changed


def _refuse_contradictions(spec: JobSpec) -> None:
    named, count = ",".join(spec.on), len(spec.on)
    if spec.on and spec.gpus == 0:
        raise UserError(
            f"--gpus 0 asks for no GPU, but --on names some ({named}): add --gpus {count} to use them, or --clear on"
        )
    if spec.gpus == 0 and (spec.gpu_mem_mib or spec.gpu_type):
        raise UserError(
            "--gpus 0 asks for no GPU, but the job sets --gpu-mem or --gpu-type: add --clear gpu-mem,gpu-type"
        )
    if spec.on and spec.gpus > count:
        raise UserError(
            f"The job asks for {spec.gpus} GPUs, but --on names only {named}: add --gpus {count}, name more with --on,"
            " or --clear on"
        )


def _probe(before: JobSpec, after: JobSpec, edit: Edit) -> dict[str, Any] | None:
    """Return the probe settings of the edited job."""
    asked, old = edit.values.get("probe"), after.probe
    same = (before.command, before.argv, before.script) == (after.command, after.argv, after.script)
    if asked is None and same and "probe" not in edit.values.get("clear", ()):
        return old
    if old is not None and _asks(before) and not _asks(after) and not old.get("batch_arg"):
        old = None  # only the placeholder asked for a probe, and it is gone
    if asked is not None and "profile" in asked:
        old = None  # two profiles at once would mix the settings of two programs
    wanted = None if asked is None and old is None else {**(old or {}), **(asked or {})}
    return probe_settings(wanted, after.command, after.argv, script=after.script)


def _asks(spec: JobSpec) -> bool:
    return any(BATCH in text for text in ([spec.command] if spec.argv is None else spec.argv))


def differences(before: JobSpec, after: JobSpec) -> dict[str, tuple[Any, Any]]:
    """Return old and new value of each field that differs, as JSON types; for environment variables only names."""
    old, new = before.to_json(), after.to_json()
    changed = {key: (old[key], new[key]) for key in old if old[key] != new[key]}
    if "env" in changed:
        changed["env"] = (_without(old["env"], new["env"]), _without(new["env"], old["env"]))
    return changed


def _without(variables: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    """Return the names of variables that the others lack or have with another value."""
    return sorted(name for name in variables if others.get(name) != variables[name])


def affects_probe(changed: Mapping[str, Any]) -> bool:
    """Return whether the change makes earlier memory measurements invalid."""
    return not _PROBED.isdisjoint(changed)


def in_words(changed: Mapping[str, tuple[Any, Any]]) -> str:
    """Return the changes in words: `time 6h → 4h, priority normal → high`. A command itself is not shown."""
    words: dict[str, str] = {}
    for key, (before, after) in changed.items():
        name = _NAMES[key]
        if name == COMMAND:
            words[name] = "another command"
        elif name == PLACE and key != "workspace":
            words.setdefault(name, "the workspace's environment as it is now")
        elif key == "env":
            words[name] = _variables(before, after)
        elif key == "snapshot" and after:
            words[name] = "a copy of the code as it is now"
        else:
            words[name] = f"{name} {as_typed(key, before)} → {as_typed(key, after)}"
    return ", ".join(words.values())


def _variables(before: Sequence[str], after: Sequence[str]) -> str:
    removed = [name for name in before if name not in after]
    parts = [("set", after), ("removed", removed)]
    return ", ".join(f"env {', '.join(names)} {what}" for what, names in parts if names)


def as_typed(key: str, value: Any) -> str:
    """Return the value of an option as one would type it."""
    if key in _TYPED:
        return _TYPED[key](value)
    if not value and value != 0:
        return "none"
    if isinstance(value, (list, tuple)):
        return ",".join(str(part) for part in value)
    text = str(value.value if isinstance(value, Priority) else value)
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def _size(mib: int | None) -> str:
    if not mib:
        return "none"
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"


def _moment(stored: str | None) -> str:
    moment = clock.moment(stored)
    return f"{clock.local(moment):%Y-%m-%dT%H:%M}" if moment else "none"


def _switch(on: bool) -> str:
    return "yes" if on else "no"


def _settings(probe: Mapping[str, Any] | None) -> str:
    if probe is None:
        return "none"
    return ",".join(f"{name}={part}" for name, part in probe.items()) or "yes"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "none"
    left_ms, text = round(seconds * 1000), ""
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        if count := left_ms // unit_ms:
            text += f"{count}{unit}"
        left_ms %= unit_ms
    return text or "0s"


_TYPED: dict[str, Callable[[Any], str]] = {
    "time_limit_s": _duration,
    "stop_grace_s": _duration,
    "gpu_mem_mib": _size,
    "ram_mib": _size,
    "begin_at": _moment,
    "preemptible": _switch,
    "trial": _switch,
    "snapshot": lambda copy: _switch(bool(copy)),
    "probe": _settings,
    "retry_on": lambda reasons: ",".join(reasons).lower() or "none",
}


def options_of(spec: JobSpec) -> str:
    """Return a job's options that are not the defaults, as one would type them; variables without their values."""
    words = []
    for key in dict.fromkeys(option.key for option in OPTIONS):
        value = getattr(spec, key)
        if key == "dir" or value == _DEFAULTS.get(key):
            continue
        if key in {"preemptible", "probe", "snapshot", "trial"}:
            words.append(f"--{_NAMES[key]}")
        elif key == "env":
            words += [f"--env {name}=…" for name in spec.env]
        elif key == "slurm":
            words += [f"--{name} {text}" for name, text in spec.slurm.items()]
        else:
            words.append(f"--{_NAMES[key]} {as_typed(key, value)}")
    return " ".join(words)
