"""Patterns that people write: searched by RE2, whose time grows with the length of a text and never with its square."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEMORY = 4 << 20
_BEHIND = r"(?<![\w./@-])"
_BEFORE = r"(?:^|[^\w./@-])"


class Pattern:
    """A pattern with at least one group, which is what is wanted of a text."""

    def __init__(self, text: str) -> None:
        """Compile it; UserError if it is not one, or if it can only be searched by trying everything."""
        import re2

        options = re2.Options()
        options.log_errors, options.max_mem = False, _MEMORY
        try:
            # groups made before RE2 was used have a lookbehind in front of a plain name
            self._compiled: Any = re2.compile(text.replace(_BEHIND, _BEFORE, 1), options)
        except (re2.error, UnicodeEncodeError) as error:
            raise UserError(f"{text!r} is not a pattern that can be searched here ({_reason(error)})") from None

    @property
    def groups(self) -> int:
        """How many groups it has."""
        return int(self._compiled.groups)

    def values(self, line: str) -> Iterator[str | None]:
        """What the first group holds, each time the pattern is found in a line."""
        for found in self._compiled.finditer(line):
            yield found[1]


def _reason(error: Exception) -> str:
    """RE2's own words, in which a lookahead is an invalid operator."""
    said = error.args[0] if error.args else ""
    words = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    if words.startswith(("invalid perl operator", "invalid escape sequence")):
        return f"{words}; lookahead, lookbehind and backreferences are not supported"
    return words
