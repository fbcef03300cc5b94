"""Sweeps: one command for many values of its parameters. Pure.

A command names its parameters in braces: `python train.py --lr {lr}`. Each has a list of values, or a range to draw
from. `{{lr}}` stands for `{lr}` itself. All other braces belong to the shell.
"""

from __future__ import annotations

import math
import random
import re
import sys
from typing import TYPE_CHECKING, NamedTuple

from runner.commands.shell_parser import split
from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LARGEST = 100_000  # commands in one sweep; more is a typing error
_SHUFFLED_AS_A_WHOLE = 1_000_000  # a larger grid is not built as a list

_NAME = r"[A-Za-z_]\w*(?:[.-]\w+)*"
_PLACE = re.compile(rf"\{{\{{({_NAME})\}}\}}|(?<!\$)\{{({_NAME})\}}")
_LATER = ("batch_size", "run_id", "job_id", "grad_accum")  # filled in when a job starts
_RANGE = re.compile(r"(lin|log):(?=\S+\Z)(\S+?)\.\.(\S+)")
_BARE_RANGE = re.compile(r"(?=\S+\Z)(\S+?)\.{2,3}(\S+?)(?::\S+)?")
_RANGE_FORM = "write a range like lin:0..1 or log:1e-5..1e-2"
_TEXT_FORM = "write the values after a semicolon: python train.py --lr {lr} --bs {bs} ; lr=1e-3,5e-4 bs=32,64"
# words and values in a message: plain characters, escaped ones, and text in quotes
_ATOM = r"""(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^%s'"\\])"""
_SPACES, _COMMA = " \t\n", ","


class Range(NamedTuple):
    """All numbers between two."""

    low: float
    high: float
    logarithmic: bool = False

    def at(self, share: float) -> float:
        """Return the number at a share of the way from the low end (0) to the high end (1)."""
        if self.logarithmic:
            low, high = math.log(self.low), math.log(self.high)
            value = math.exp(low + (high - low) * share)
        else:
            value = self.low * (1 - share) + self.high * share
        return min(max(value, self.low), self.high)


Values = tuple[str, ...] | Range


class Sweep(NamedTuple):
    """A command and the values of its parameters."""

    command: str
    parameters: dict[str, Values]


# -- reading -----------------------------------------------------------------------------------------------------


def values_of(name: str, words: Sequence[str]) -> Values:
    """Return a parameter's values: a list without duplicates, or a range like `log:1e-5..1e-2`. Raise UserError."""
    if not re.fullmatch(_NAME, name):
        raise UserError(f"{name!r} is not the name of a parameter: begin with a letter, like lr or weight_decay")
    if not words:
        raise UserError(f"the parameter {name} has no values")
    if any("\0" in word for word in words):
        raise UserError(f"there is a NUL byte in a value of {name}")
    if len(words) == 1 and words[0].startswith(("lin:", "log:")):
        return parse_range(words[0])
    if len(words) == 1:
        _refuse_bare_range(name, words[0])
    if ranges := [word for word in words if _RANGE.fullmatch(word)]:
        raise UserError(f"{ranges[0]!r} is a range, so it must be the only value of {name}")
    return tuple(dict.fromkeys(words))


def _refuse_bare_range(name: str, word: str) -> None:
    """Raise UserError for `1..9`: nobody means it literally, and it would waste a whole night."""
    match = _BARE_RANGE.fullmatch(word)
    if match and as_number(match[1]) is not None and as_number(match[2]) is not None:
        between = f"{match[1]}..{match[2]}"
        raise UserError(
            f"{name}={word} is one value, not a range: for numbers in between write lin:{between} or log:{between} and"
            f" say how many (-n 20); for a few values list them ({name}=1,2,3)"
        )


def parse_range(text: str) -> Range:
    """Parse a range like `lin:0..1` or `log:1e-5..1e-2`. Raise UserError if it is not one."""
    match = _RANGE.fullmatch(text)
    low, high = (as_number(match[2]), as_number(match[3])) if match else (None, None)
    if match is None or low is None or high is None:
        raise UserError(f"{text!r} is not a range: {_RANGE_FORM}")
    if low >= high:
        raise UserError(f"{text!r} does not go from low to high: {_RANGE_FORM}")
    logarithmic = match[1] == "log"
    if logarithmic and low <= 0:
        raise UserError(f"{text!r} begins at {match[2]}, but a logarithmic range must begin above 0")
    return Range(low, high, logarithmic)


def parse_text(text: str) -> Sweep:
    """Parse a sweep in one message: `python train.py --lr {lr} ; lr=1e-3,5e-4`. Raise UserError if it is wrong."""
    command, semicolon, tail = text.rpartition(";")
    words = _words(tail)
    if not semicolon or not command.strip() or not words:
        raise UserError(_TEXT_FORM[0].upper() + _TEXT_FORM[1:])
    parameters: dict[str, Values] = {}
    for word in words:
        name, equals, values = word.partition("=")
        if not equals:
            raise UserError(f"{word!r} is not a parameter with values: {_TEXT_FORM}")
        if name in parameters:
            raise UserError(f"the parameter {name} is given twice: put all its values into one list")
        parameters[name] = values_of(name, [_value(name, piece) for piece in _split(values, _COMMA)])
    sweep = Sweep(command.strip(), parameters)
    check([sweep.command], parameters)
    return sweep


def _words(text: str) -> list[str]:
    """Return the words of a message unchanged, but join a word that ends in a comma with the next one."""
    words: list[str] = []
    for word in filter(None, _split(text, _SPACES)):
        if words and words[-1].endswith(",") and not words[-1].endswith("\\,"):
            words[-1] += word
        else:
            words.append(word)
    return words


def _split(text: str, separators: str) -> list[str]:
    """Return the pieces between these characters. Inside quotes they do not separate."""
    atoms = re.compile(f"{_ATOM % separators}*", re.DOTALL)
    pieces, at = [], 0
    while True:
        atom = atoms.match(text, at)
        assert atom is not None
        pieces.append(atom[0])
        at = atom.end() + 1
        if at > len(text):
            return pieces
        if text[at - 1] not in separators:
            raise UserError("the values have an open quote, or a backslash at the end")


def _value(name: str, piece: str) -> str:
    if not piece:
        raise UserError(f"the parameter {name} has an empty value; write '' if you mean that")
    return "".join(split(piece))


# -- filling in --------------------------------------------------------------------------------------------------


def check(texts: Sequence[str], parameters: Mapping[str, Values]) -> None:
    """Raise UserError unless the parameters in the command are those that have values."""
    named = [place[2] for text in texts for place in _PLACE.finditer(text) if place[2]]
    for name in named:
        if name not in parameters and name not in _LATER:
            raise UserError(
                f"There are no values for {{{name}}}. If these braces are for the shell or the program, double "
                f"them: {{{{{name}}}}}"
            )
    for name in parameters:
        if name not in named:
            own = any(f"${{{name}}}" in text for text in texts)
            why = f" ${{{name}}} is a variable of the shell." if own else ""
            raise UserError(f"There are values for {name}, but no {{{name}}} in the command.{why}")


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return the text with these values filled in unchanged. If a value needs quotes, the text must have them."""
    return _PLACE.sub(lambda place: f"{{{place[1]}}}" if place[1] else values.get(place[2], place[0]), text)


def as_number(text: str) -> float | None:
    """Return a value as a number, or None if it is not a finite number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


# -- choosing ----------------------------------------------------------------------------------------------------


def combinations(
    parameters: Mapping[str, Values], *, samples: int | None = None, shuffled: bool = True, seed: int | None = None
) -> list[dict[str, str]]:
    """Return different combinations of values: all, or `samples` of them if there are more. Raise UserError.

    Shuffled or not, the order for a given seed is that of simple_hypersearch. Samples are spread evenly over a range.
    """
    if samples is not None and samples < 1:
        raise UserError(f"-n {samples} asks for nothing: write 1 or more, or leave it out for all combinations")
    rng = random.Random(seed)  # noqa: S311 - not used for secrets
    lists = {name: values for name, values in parameters.items() if not isinstance(values, Range)}
    ranges = {name: values for name, values in parameters.items() if isinstance(values, Range)}
    total = math.prod(len(values) for values in lists.values())
    if not ranges:
        count = total if samples is None else min(samples, total)
        _refuse_too_many(count)
        chosen = _indices(total, count, rng) if shuffled else range(count)
        return [_cell(lists, index) for index in chosen]
    if samples is None or not shuffled:
        name = next(iter(ranges))
        raise UserError(
            f"{name} is a range: say before the command how many samples to draw from it (-n 20)"
            if shuffled
            else f"{name} is a range, which has no grid: list its values, or leave out --sampling-mode grid"
        )
    _refuse_too_many(samples)
    drawn = {name: _drawn(name, drawn_from, samples, rng) for name, drawn_from in ranges.items()}
    cells: list[int] = []
    while len(cells) < samples:
        cells += _indices(total, min(total, samples - len(cells)), rng)
    rows = [_cell(lists, cell) | {name: drawn[name][at] for name in ranges} for at, cell in enumerate(cells)]
    return [{name: row[name] for name in parameters} for row in rows]


def _refuse_too_many(count: int) -> None:
    if count > LARGEST:
        raise UserError(
            f"That would be {count:,} commands, but a sweep may have at most {LARGEST:,}: give fewer values, or "
            "take a sample of them (-n 100)"
        )


def _indices(total: int, count: int, rng: random.Random) -> Sequence[int]:
    """Return this many different indices of a grid, in random order."""
    if total <= _SHUFFLED_AS_A_WHOLE:
        order = list(range(total))
        rng.shuffle(order)
        return order[:count]
    if total <= sys.maxsize:
        return rng.sample(range(total), count)
    indices: dict[int, None] = {}
    while len(indices) < count:
        indices[rng.randrange(total)] = None
    return list(indices)


def _cell(lists: dict[str, tuple[str, ...]], index: int) -> dict[str, str]:
    """Return the combination at this index of the grid. The last parameter changes fastest."""
    cell = {}
    for name, values in reversed(lists.items()):
        index, at = divmod(index, len(values))
        cell[name] = values[at]
    return {name: cell[name] for name in lists}


def _drawn(name: str, drawn_from: Range, count: int, rng: random.Random) -> list[str]:
    """Return this many different numbers, one from each of as many equal parts of a range, in random order."""
    parts = list(range(count))
    rng.shuffle(parts)
    numbers: dict[str, None] = {}
    for part in parts:
        number = drawn_from.at((part + rng.random()) / count)
        text = f"{number:.6g}"
        if text in numbers or not drawn_from.low <= float(text) <= drawn_from.high:
            text = repr(number)
        if text in numbers:
            raise UserError(f"the range of {name} is too narrow for {count:,} different numbers")
        numbers[text] = None
    return list(numbers)
