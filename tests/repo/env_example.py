"""The text of .env.example, made from the settings. `python -m tests.repo.env_example` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bot.settings import ChatSettings
from runner.config.settings import Settings

PATH = Path(__file__).parents[2] / ".env.example"
HEAD = """\
# Settings of nightshift. Copy this file to .env in the state folder (chmod 600), or name it with --env-file.
# The environment wins over the file. Durations are 2s, 10m, 6h, 3d; sizes 20G, 500M, a bare number is GiB.
"""
FIELDS = {**ChatSettings.model_fields, **Settings.model_fields}
SECTIONS = {
    "The box and its jobs": list(Settings.model_fields),
    "The bot": [name for name in ChatSettings.model_fields if name not in Settings.model_fields],
}


def text() -> str:
    parts = [HEAD]
    for title, names in SECTIONS.items():
        parts.append(f"# -- {title} {'-' * (96 - len(title))}\n")
        parts += [
            f"# {FIELDS[name].description}\n#NIGHTSHIFT_{name.upper()}={_default(FIELDS[name])}\n" for name in names
        ]
    return "\n".join(parts)


def _default(field: Any) -> str:
    shown = (field.json_schema_extra or {}).get("shown_default")
    default = shown if shown is not None else field.default
    if isinstance(default, bool):
        return "yes" if default else "no"
    return "" if default in (None, ()) or " " in str(default) else str(default).removesuffix(".0")


if __name__ == "__main__":
    PATH.write_text(text())
