"""Patterns written by users, searched with RE2, which never takes quadratic time for one match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEMORY = 4 << 20
_BEHIND = r"(?<![\w./@-])"
_BEFORE = r"(?:^|[^\w./@-])"


class Pattern:
    """A pattern with at least one group. The first group is the value."""

    def __init__(self, text: str) -> None:
        """Compile the pattern. Raise UserError if it is wrong, or needs something that RE2 does not support."""
        import re2

        options = re2.Options()
        options.log_errors, options.max_mem = False, _MEMORY
        try:
            # patterns stored before RE2 was used have a lookbehind in front of a plain name
            self._compiled: Any = re2.compile(text.replace(_BEHIND, _BEFORE, 1), options)
        except (re2.error, UnicodeEncodeError) as error:
            raise UserError(f"{text!r} is not a pattern that can be searched here ({_reason(error)})") from None

    @property
    def groups(self) -> int:
        """Return how many groups it has."""
        return int(self._compiled.groups)

    def values(self, line: str) -> Iterator[str | None]:
        """Yield what the first group holds, for each match in a line."""
        for found in self._compiled.finditer(line):
            yield found[1]


def _reason(error: Exception) -> str:
    """Return RE2's own message. It calls a lookahead an invalid operator, so say what is not supported."""
    said = error.args[0] if error.args else ""
    words = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    if words.startswith(("invalid perl operator", "invalid escape sequence")):
        return f"{words}; lookahead, lookbehind and backreferences are not supported"
    return words
