"""Profiles: named sets of what probing needs to know about a program.

`nanogpt` is built in, with the values of the blog post that the idea comes from. Your own are in `profiles.json` in the
state folder, an object of objects, with the field names below:

    {"vision": {"batch_arg": "--batch-size", "probe_args": ["--max-steps=30"], "margin": 0.9}}

JSON and not TOML, because Python 3.10 cannot read TOML without another package.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runner.batch.batch_settings import BatchSettings
from runner.errors import UserError
from runner.units import parse_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE = "profiles.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(BatchSettings):
    """How to pass a batch size to a program, and how to search for one."""

    probe_args: tuple[str, ...] = ()  # added to the command of a probe, to make it end soon
    batch_arg: str | None = None  # added as `ARG=N`; None: a placeholder, or only the environment variable
    run_id_arg: str | None = None

    def settings(self) -> BatchSettings:
        """Return only the settings of the batch search."""
        parts = {name: getattr(self, name) for name in _SETTINGS}
        return BatchSettings(**{**parts, "bounded": bool(self.probe_args)})

    def arguments(self, batch: int, run_id: str, *, probing: bool, placed: Sequence[str] = ()) -> list[str]:
        """Return the arguments to add to the command. `placed`: placeholders that the command already contains."""
        added = list(self.probe_args) if probing else []
        if self.batch_arg and "batch_size" not in placed:
            added.append(_with_value(self.batch_arg, str(batch)))
        if self.run_id_arg and "run_id" not in placed:
            added.append(_with_value(self.run_id_arg, run_id))
        return added


_SETTINGS = BatchSettings.__dataclass_fields__.keys()
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "probe_args": list,
    "batch_arg": (str, type(None)),
    "run_id_arg": (str, type(None)),
    "default": int,
    "margin": (int, float),
    "round_to": int,
    "round_from": int,
    "round_loss": (int, float),
    "cap": int,
    "limit_s": (int, float),
    "quiet_s": (int, float),
}


def _with_value(arg: str, value: str) -> str:
    """Return `--batch_size=24`. If the argument ends in `=` or a space, append the value directly."""
    return arg + value if arg.endswith(("=", " ")) else f"{arg}={value}"


def check(name: str, data: Any) -> None:
    """Raise UserError unless this is a name for a profile, and an object of its fields."""
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} is not a name for a profile: use at most 64 letters, digits, '.', '_' or '-'")
    if not isinstance(data, dict):
        raise UserError(f"profile {name}: it must be an object of settings, like {{'batch_arg': '--batch-size'}}")
    for field, value in data.items():
        if field not in _FIELDS:
            raise UserError(f"profile {name}: there is no setting {field!r}; choose from {', '.join(_FIELDS)}")
        if isinstance(value, bool) or not isinstance(value, _FIELDS[field]):
            raise UserError(f"profile {name}: {field} cannot be {value!r}")
    if not all(isinstance(word, str) for word in data.get("probe_args", ())):
        raise UserError(f"profile {name}: probe_args must be a list of words")
    try:
        Profile.from_json(data)
    except UserError as error:
        raise UserError(f"profile {name}: {error}") from None


SHIPPED: dict[str, dict[str, Any]] = {
    "nanogpt": {
        "probe_args": ["--max_tokens=1000000", "--wandb_log=False"],
        "batch_arg": "--batch_size",
        "run_id_arg": "--version",
        "default": 8,
        "margin": 0.9,
        "round_to": 8,
        "round_from": 8,  # the blog post rounds every size it finds
        "round_loss": 1.0,
        "cap": 4096,
    }
}
_SHORT = {"limit": "limit_s", "quiet": "quiet_s"}


def parse_settings(text: str) -> dict[str, Any]:
    """Parse settings as people type them: `default=16,margin=85%,cap=512,limit=3m`. Raise UserError if one is wrong."""
    settings = dict(_parse_setting(part) for part in text.split(",") if part.strip())
    if not settings:
        raise UserError("write settings and values, like margin=85%,cap=512")
    Profile(**settings)  # refuses values that are too small or too large
    return settings


def _parse_setting(text: str) -> tuple[str, Any]:
    name, _, value = (part.strip() for part in text.partition("="))
    field = _SHORT.get(name, name)
    if field not in _SETTINGS & _FIELDS.keys():
        short = {long: name for name, long in _SHORT.items()}
        names = ", ".join(short.get(field, field) for field in _FIELDS if field in _SETTINGS)
        raise UserError(f"there is no setting {name!r}; choose from {names}")
    try:
        if field.endswith("_s"):
            return field, parse_duration(value)
        if field in ("margin", "round_loss"):
            return field, float(value[:-1]) / 100 if value.endswith("%") else float(value)
        return field, int(value)
    except ValueError:
        raise UserError(f"{name} cannot be {value!r}") from None


def read(home: str) -> dict[str, dict[str, Any]]:
    """Return all profiles by name: the built-in ones, and those in the state folder, which may replace them.

    Each has only the fields that are set in it: the workspace and the box set the others.
    """
    path = os.path.join(home, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            own = json.load(file)
    except FileNotFoundError:
        return dict(SHIPPED)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    if not isinstance(own, dict):
        raise UserError(f"{path} must be a JSON object, with one object of settings per profile name")
    for name, data in own.items():
        check(name, data)
    return SHIPPED | own


def named(name: str, home: str) -> dict[str, Any]:
    """Return the profile with this name. Raise UserError that lists the existing ones."""
    profiles = read(home)
    if name not in profiles:
        raise UserError(f"there is no profile {name!r}; choose from {', '.join(sorted(profiles))}")
    return profiles[name]
