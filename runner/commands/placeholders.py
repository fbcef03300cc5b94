"""Builds the argument list that is executed for a command. Cheap to import: the supervisor uses it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from runner.model import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LONGEST_ARGUMENT = 100_000  # bytes; the kernel allows 128 KiB per argument, so longer shell text goes into a file


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCommand(Record):
    """A command as it was submitted: an exact argument list, or text for the shell."""

    argv: tuple[str, ...] | None = None
    text: str = ""
    script: bool = False  # the text is a whole file


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace only the placeholders named in `values`; every other brace belongs to the shell."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def names_in(command: JobCommand, names: Sequence[str]) -> tuple[str, ...]:
    """Return which of these placeholders the command contains."""
    texts = (command.text,) if command.argv is None else command.argv
    return tuple(name for name in names if any(f"{{{name}}}" in text for text in texts))


def realised(
    command: JobCommand, folder: str, values: Mapping[str, str], added: Sequence[str] = ()
) -> tuple[list[str], str | None]:
    """Return the argument list, and the text of the script file that it runs, or None if it needs none.

    `added` is appended to it. Long shell text becomes a script too.
    """
    if command.argv is not None:
        return [*(fill(word, values) for word in command.argv), *added], None
    text = fill(command.text, values)
    if added:
        from shlex import join

        text = f"{text.rstrip()} {join(added)}"
    if not command.script and len(os.fsencode(text)) < LONGEST_ARGUMENT:
        return ["bash", "-c", "--", text], None  # after `--`, text that begins with a dash is not an option
    path = os.path.join(folder, "script")
    return ([path] if text.startswith("#!") else ["bash", path]), text
