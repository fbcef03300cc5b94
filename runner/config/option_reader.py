"""Read the options at the start of a command line or of a chat message. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runner.config.options import OPTIONS
from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.config.options import Option


class _WordList:
    """Words as a shell passes them. A position counts words."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words

    def starts_option(self, at: int) -> bool:
        return at < len(self._words) and self._words[at].startswith("-") and self._words[at] != "-"

    def word(self, at: int) -> tuple[str, int] | None:
        return (self._words[at], at + 1) if at < len(self._words) else None


class _RawText:
    """A chat message. A position counts characters, so that the command stays exactly as typed."""

    def __init__(self, text: str) -> None:
        self._text = text

    def starts_option(self, at: int) -> bool:
        start = self._text[at:].lstrip()[:2]
        return start[:1] in ("-", "—", "–") and not (start[:1] == "-" and start[1:].strip() == "")

    def word(self, at: int) -> tuple[str, int] | None:
        from io import StringIO
        from shlex import shlex

        stream = StringIO(self._text[at:])
        lexer = shlex(stream, posix=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        try:
            word = lexer.get_token()
        except ValueError:
            raise UserError("the options have an open quote, or a backslash at the end") from None
        return None if word is None else (word, at + stream.tell())


def _typed_dashes(word: str) -> str:
    # Phones turn a typed "--" into one long dash.
    return "--" + word[1:] if word.startswith(("—", "–")) else word


def read_words(words: Sequence[str], extra: Sequence[Option] = ()) -> tuple[dict[str, Any], list[str], bool]:
    """Return the options before a command, the words of the command, and whether `--` stood between them."""
    values, at, separated = _read(_WordList(words), (*OPTIONS, *extra))
    return values, list(words[at:]), separated


def read_text(text: str, extra: Sequence[Option] = ()) -> tuple[dict[str, Any], str]:
    """Return the options at the start of a message, and the rest of it unchanged as shell text."""
    values, at, _ = _read(_RawText(text), (*OPTIONS, *extra))
    return values, text[at:].lstrip()


def take_lists(words: Sequence[str], *flags: str) -> tuple[list[list[str]], list[str]]:
    """Return the words after each of these flags up to the next option, and the remaining words.

    Like argparse, this takes a negative number as a value, not as an option. It ignores everything after `--`.
    """
    lists: list[list[str]] = []
    rest: list[str] = []
    taking = False
    for at, word in enumerate(words):
        if word == "--":
            return lists, [*rest, *words[at:]]
        flag, glued, value = word.partition("=")
        if flag in flags:
            lists.append([value] if glued else [])
            taking = True
        elif taking and (not word.startswith("-") or _is_number(word)):
            lists[-1].append(word)
        else:
            rest.append(word)
            taking = False
    return lists, rest


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _read(source: _WordList | _RawText, options: Sequence[Option]) -> tuple[dict[str, Any], int, bool]:
    table = {flag: option for option in options for flag in option.flags}
    values: dict[str, Any] = {}
    at = 0
    while source.starts_option(at) and (token := source.word(at)):
        word, at = _typed_dashes(token[0]), token[1]
        if word == "--":
            return _agreeing(values), at, True
        flag, text = _split(word, table)
        if text is None and table[flag].metavar:
            text, at = _value_after(flag, table, source.word(at))
        _add(values, table[flag], flag, text)
    return _agreeing(values), at, False


def _split(word: str, table: dict[str, Option]) -> tuple[str, str | None]:
    """Return the flag of a word, and its value if it is attached: `--gpus=2`, `-g2`, `-g=2`. Otherwise None."""
    flag, equals, text = word.partition("=")
    if not word.startswith("--"):
        flag, text = word[:2], word[2:].removeprefix("=")
    if flag not in table:
        raise UserError(_unknown(flag if word.startswith("--") else word, table))
    glued = bool(equals) if word.startswith("--") else len(word) > 2
    if glued and not table[flag].metavar:
        raise UserError(f"{flag} takes no value")
    return flag, text if glued else None


def _unknown(word: str, table: dict[str, Option]) -> str:
    from runner.text.words import did_you_mean

    hint = did_you_mean(word, table) or "."
    return f"there is no option {word}{hint} If your command begins with it, put -- before the command."


def _value_after(flag: str, table: dict[str, Option], token: tuple[str, int] | None) -> tuple[str, int]:
    if token is None or token[0] == "--" or token[0].partition("=")[0] in table:
        raise UserError(f"{flag} needs a value, like {flag} {table[flag].metavar}")
    return token


def _add(values: dict[str, Any], option: Option, flag: str, text: str | None) -> None:
    """Add one option. Unless it is repeatable, the last use wins, so that an alias can be overridden."""
    try:
        value: Any = option.parse(text or "") if text is not None or option.repeatable else True
    except UserError as error:
        raise UserError(f"{flag}: {error}") from None
    if option.repeatable and option.key in values:
        before = values[option.key]
        value = {**before, **value} if isinstance(value, dict) else (*before, *value)
    values[option.key] = value


def _agreeing(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values. Raise UserError if `--on` and `--gpus` contradict each other."""
    on, gpus = values.get("on"), values.get("gpus")
    if on is None or gpus is None:
        return values
    if gpus == 0:
        raise UserError("--gpus 0 asks for no GPU, but --on names some: leave one of them out")
    if gpus > len(on):
        raise UserError(f"--gpus {gpus} asks for more GPUs than --on names ({','.join(on)})")
    return values
