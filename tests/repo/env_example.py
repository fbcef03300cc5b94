"""The text of .env.example, made from the settings. `python -m tests.repo.env_example` writes it."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from bot.settings import ChatSettings
from runner.config.settings import Mebibytes, Seconds, Settings

PATH = Path(__file__).parents[2] / ".env.example"
HEAD = """\
# Settings of nightshift. Copy this file to .env in the state folder (chmod 600), or name it with
# --env-file. Variables of the environment win over the file. Each line shows the default.
# Write durations like 2s, 10m, 6h or 3d, and sizes like 20G or 500M (a bare number is GiB).
"""
FIELDS = {**ChatSettings.model_fields, **Settings.model_fields}
ORDER = dict.fromkeys((*Settings.model_fields, *ChatSettings.model_fields))
SECTIONS = {  # the first setting of each
    "home": "The box",
    "gpus": "GPUs, CPUs and memory",
    "gpus_each": "Shares and limits",
    "retry_on": "Jobs that fail",
    "idle": "Jobs that are idle or hang",
    "probe_batch": "Batch sizes",
    "log_limit": "Output and disk",
    "token": "Telegram",
    "admins": "People",
    "log_text": "Messages",
    "heartbeat_url": "Monitoring",
    "chat": "The chat page",
}
SECONDS, MEBIBYTES = Seconds.__metadata__[0], Mebibytes.__metadata__[0]


def text() -> str:
    parts = [HEAD]
    for name in ORDER:
        if title := SECTIONS.get(name):
            parts.append(f"# -- {title} {'-' * (94 - len(title))}\n")
        comment = textwrap.fill(FIELDS[name].description, 98, initial_indent="# ", subsequent_indent="# ")
        parts.append(f"{comment}\n#NIGHTSHIFT_{name.upper()}={_default(FIELDS[name])}\n")
    return "\n".join(parts)


def _default(field: Any) -> str:
    default = None if field.default_factory else field.default
    if default in (None, ()):
        return ""
    if isinstance(default, bool):
        return "yes" if default else "no"
    if SECONDS in field.metadata:
        return _in_largest_unit(default, {"d": 86400, "h": 3600, "m": 60, "s": 1})
    if MEBIBYTES in field.metadata:
        return _in_largest_unit(default, {"G": 1024, "M": 1})
    return str(default).removesuffix(".0")


def _in_largest_unit(value: float, units: dict[str, int]) -> str:
    unit = next(unit for unit, size in units.items() if value % size == 0)
    return f"{value / units[unit]:g}{unit}"


if __name__ == "__main__":
    PATH.write_text(text())
