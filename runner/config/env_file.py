"""Read files of KEY=VALUE lines. Nothing in them is expanded or executed."""

from __future__ import annotations

import os
import re

from runner.errors import UserError

_MAX_BYTES = 1024 * 1024

# Compiled only when used, so that clients that only need is_variable_name start faster.
_LINE = r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)"
_REST = r"\s*(?:\s#.*)?"
_SINGLE = rf"'([^']*)'{_REST}"
_DOUBLE = rf'"((?:[^"\\]|\\.)*)"{_REST}'
_BARE = rf"""((?:[^\s'"]|\s+(?![\s#]))*){_REST}"""


def is_variable_name(text: str) -> bool:
    """Return whether a shell accepts this text as the name of a variable."""
    return text.isascii() and text.isidentifier()


def read_env_file(path: str) -> dict[str, str]:
    """Return the variables that a file sets. A later line wins over an earlier one."""
    variables: dict[str, str] = {}
    for number, line in enumerate(_content(path).split("\n"), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, value = _variable(line, f"{path}, line {number}")
            variables[name] = value
    return variables


def write_variable(path: str, name: str, value: str) -> None:
    """Set a variable in a file that only this account may read. All other lines stay as they are."""
    from runner.rundir import write_atomically

    target = os.path.realpath(path)
    before = _content(target) if os.path.exists(target) else ""
    kept = [line for line in before.splitlines() if not _sets(line, name)]
    body = "\n".join([*kept, f"{name}={value}"]) + "\n"
    write_atomically(target, body.encode("utf-8", "surrogateescape"))


def _sets(line: str, name: str) -> bool:
    """Return whether a line sets this variable."""
    return line.strip().removeprefix("export ").lstrip().startswith(f"{name}=")


def _variable(line: str, place: str) -> tuple[str, str]:
    # The message never repeats the line, because the line may hold a secret.
    match = re.fullmatch(_LINE, line, re.DOTALL)
    if match is None or "\0" in line:
        raise UserError(f"{place}: not of the form KEY=VALUE")
    value = _value(match[2])
    if value is None:
        raise UserError(f"{place}: the quotes must enclose the whole value of {match[1]}: '…' or \"…\"")
    return match[1], value


def _value(text: str) -> str | None:
    """Return the value without its quotes and the comment after it, or None if the quotes do not match."""
    if re.match(r"\s+#", text):
        return ""
    text = text.strip()
    if single := re.fullmatch(_SINGLE, text, re.DOTALL):
        return single[1]
    if double := re.fullmatch(_DOUBLE, text, re.DOTALL):
        return re.sub(r'\\(["\\$`])', r"\1", double[1])
    bare = re.fullmatch(_BARE, text, re.DOTALL)
    return bare[1] if bare else None


def _content(path: str) -> str:
    try:
        with open(path, "rb", opener=_open) as file:
            content = file.read(_MAX_BYTES + 1) or b""
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a file name"
        raise UserError(f"cannot read the env file {path}: {reason}") from None
    if len(content) > _MAX_BYTES:
        raise UserError(f"cannot read the env file {path}: it is larger than 1 MiB")
    return content.decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n")


def _open(path: str, flags: int) -> int:
    # Opening a pipe without a writer must not block the runner.
    return os.open(path, flags | os.O_NONBLOCK)
