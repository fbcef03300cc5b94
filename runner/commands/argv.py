"""From a command as it was given to the argument list that is executed. Light: the supervisor imports it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

LONGEST_ARGUMENT = 100_000  # the kernel takes 128 KiB in one argument; longer shell text goes into a file


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace exactly the placeholders we know; every other brace is the shell's."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def names_in(command: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Which of these placeholders a command has."""
    texts = [command["text"]] if command["argv"] is None else command["argv"]
    return [name for name in names if any(f"{{{name}}}" in text for text in texts)]


def realised(
    command: Mapping[str, Any], folder: str, values: Mapping[str, str], added: Sequence[str] = ()
) -> tuple[list[str], str | None]:
    """The argument list, and the script to lay into the run directory where the command is one.

    `command` has `argv`, or `text` for the shell and whether that is a whole `script`; `added` goes to its end.
    """
    if command["argv"] is not None:
        return [*(fill(word, values) for word in command["argv"]), *added], None
    text = fill(command["text"], values)
    if added:
        from shlex import join

        text = f"{text.rstrip()} {join(added)}"
    if not command["script"] and len(os.fsencode(text)) < LONGEST_ARGUMENT:
        return ["bash", "-c", "--", text], None  # text that begins with a dash is no option of bash's
    path = os.path.join(folder, "script")
    return ([path] if text.startswith("#!") else ["bash", path]), text
