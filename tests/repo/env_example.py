"""The text of .env.example, made from the settings. `python -m tests.repo.env_example` writes it."""

from __future__ import annotations

from pathlib import Path

from runner.settings import Settings

PATH = Path(__file__).parents[2] / ".env.example"
HEAD = """\
# Settings of nightshift. Copy this file to .env in the state folder (chmod 600), or name it with --env-file.
# The environment wins over the file. Durations are 2s, 10m, 6h, 3d; sizes 20G, 500M, a bare number is GiB.
"""


def text() -> str:
    parts = [HEAD]
    for name, field in Settings.model_fields.items():
        shown = (field.json_schema_extra or {}).get("shown_default")
        default = shown if shown is not None else field.default
        value = "" if default is None or " " in str(default) else str(default).removesuffix(".0")
        parts.append(f"# {field.description}\n#NIGHTSHIFT_{name.upper()}={value}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PATH.write_text(text())
