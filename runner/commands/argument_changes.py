"""Changes some arguments of a command and leaves everything else exactly as it was. Pure."""

from __future__ import annotations

import os
import re
import shlex
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from runner.commands.shell_parser import Piece, UnreadableError, pieces, split
from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLAG = re.compile(r"(--?[A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_SETTING = re.compile(r"([+~]{0,2})([A-Za-z_][\w./@:-]*)=(.*)", re.DOTALL)
_LONG = re.compile(r"--[A-Za-z]")
_PYTHON = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed|uv|poetry")
_SHELL = re.compile(r"(?:ba|da|z|k)?sh")
_OF_PYTHON = frozenset({"-m", "-c"})
_WHOLE = "Send the whole command with /submit instead."


class Argument(NamedTuple):
    """A flag or setting of a command, with its value."""

    name: str
    value: str
    setting: bool = False

    @property
    def text(self) -> str:
        """The argument as people read it: `--lr 1e-3` or `lr=1e-3`."""
        return f"{self.name}={self.value}" if self.setting else f"{self.name} {self.value}"


class _Change(NamedTuple):
    """A change: a flag like `--lr 3e-4` or `--wandb`, or a setting like `lr=3e-4`."""

    name: str
    values: tuple[str, ...]
    setting: bool = False

    @property
    def words(self) -> list[str]:
        return [f"{self.name}={self.values[0]}"] if self.setting else [self.name, *self.values]


class _Word(NamedTuple):
    """A word of a command without its quotes, and its position in the command."""

    plain: str
    start: int
    end: int


def changed(command: str, argv: Sequence[str] | None, changes: Sequence[str]) -> tuple[str, list[str] | None]:
    """Return command and argv with these flags and settings replaced or added. Raise UserError if that is unclear."""
    if argv is None:
        return _changed(command, changes), None
    if not changes:
        return command, list(argv)
    text = _changed(shlex.join(argv), changes)
    return text, split(text)


def arguments(command: str) -> list[Argument]:
    """Return the flags and settings of a command that have one value and can be changed; none if it cannot be read."""
    try:
        words = [word for simple in _simple_commands(command) for word in simple[1:]]
    except UnreadableError:
        return []
    there: list[Argument] = []
    for word, following in pairwise([*words, None]):
        assert word is not None
        flag, setting = _FLAG.fullmatch(word.plain), _SETTING.fullmatch(word.plain)
        if flag and flag[2] is not None:
            there.append(Argument(flag[1], flag[2]))
        elif flag and following is not None and not _FLAG.fullmatch(following.plain) and flag[1] not in _OF_PYTHON:
            there.append(Argument(flag[1], following.plain))
        elif setting and not flag:
            there.append(Argument(setting[2], setting[3], setting=True))
    names = [argument.name for argument in there]
    return [argument for argument in there if names.count(argument.name) == 1]


def _changed(command: str, changes: Sequence[str]) -> str:
    for change in _read(changes):
        try:
            command = _with_setting(command, change) if change.setting else _with_flag(command, change)
        except UnreadableError:
            raise UserError(f"This command cannot be read well enough to change it. {_WHOLE}") from None
    return command


def _read(words: Sequence[str]) -> list[_Change]:
    changes: dict[str, _Change] = {}
    last = ""
    for word in words:
        if change := _begun(word):
            last = change.name
            if last in changes:
                raise UserError(f"{last} is given twice.")
            changes[last] = change
        elif last and not changes[last].setting:
            changes[last] = changes[last]._replace(values=(*changes[last].values, word))
        else:
            raise UserError(f"“{word}” is neither a flag nor a setting. Send changes like --lr 3e-4 or lr=3e-4.")
    return list(changes.values())


def _begun(word: str) -> _Change | None:
    if flag := _FLAG.fullmatch(word):
        return _Change(flag[1], () if flag[2] is None else (flag[2],))
    if setting := _SETTING.fullmatch(word):
        return _Change(setting[1] + setting[2], (setting[3],), setting=True)
    if word.startswith("-") and not re.match(r"-\.?\d", word):
        raise UserError(f"“{word}” is not a flag. Send changes like --lr 3e-4 or lr=3e-4.")
    return None


def _with_flag(command: str, change: _Change) -> str:
    places = [
        (simple, at)
        for simple in _simple_commands(command)
        for at, word in enumerate(simple)
        if at and (word.plain == change.name or word.plain.startswith(f"{change.name}="))
    ]
    if not places:
        return _added(command, change)
    _only(places, change.name)
    simple, at = places[0]
    if not change.values:
        return command
    if "=" in simple[at].plain:
        if len(change.values) > 1:
            raise UserError(_other_count(change, 1))
        return _put(command, [simple[at]], [f"{change.name}={change.values[0]}"])
    return _with_values(command, simple, at, change)


def _with_values(command: str, simple: list[_Word], at: int, change: _Change) -> str:
    """Replace the values after a flag. A single value replaces only the first word after it, whatever follows."""
    end = at + 1
    while end < len(simple) and not _FLAG.fullmatch(simple[end].plain) and not _SETTING.fullmatch(simple[end].plain):
        end += 1
    following = simple[at + 1 : end]
    if len(change.values) == 1:
        following = following[:1]
    if following and len(following) != len(change.values):
        raise UserError(_other_count(change, len(following)))
    if following:
        return _put(command, following, change.values)
    return _put_after(command, simple[at], change.values)


def _other_count(change: _Change, count: int) -> str:
    return f"You sent {len(change.values)} values for {change.name}, but it has {count} in this command. {_WHOLE}"


def _with_setting(command: str, change: _Change) -> str:
    name = change.name.lstrip("+~")
    words = [word for simple in _simple_commands(command) for word in simple[1:]]
    places = [word for word in words if (setting := _SETTING.fullmatch(word.plain)) and setting[2] == name]
    if not places:
        assignments = [_word(piece) for piece in pieces(command) if piece.role == "assignment"]
        places = [word for word in assignments if word.plain.startswith(f"{name}=")]
    if not places and (flag := _flag_called(name, words)):
        return _with_flag(command, change._replace(name=flag, setting=False))
    if not places:
        return _added(command, change)
    _only(places, name)
    sign = "" if change.name != name else places[0].plain[: places[0].plain.index(name)]
    return _put(command, places, [f"{sign}{change.words[0]}"])


def _flag_called(name: str, words: Sequence[_Word]) -> str | None:
    """Return the flag that a setting stands for, if the command has it: `--lr` for lr=3e-4."""
    flags = [flag[1] for word in words if (flag := _FLAG.fullmatch(word.plain))]
    return next((flag for flag in flags if flag.lstrip("-").replace("_", "-") == name.replace("_", "-")), None)


def _only(places: Sequence[object], name: str) -> None:
    if len(places) > 1:
        raise UserError(f"{name} is in this command {len(places)} times. {_WHOLE}")


def _added(command: str, change: _Change) -> str:
    """Append the change to the one simple command it can be meant for. Raise UserError if that is unclear."""
    target = _target(_simple_commands(command))
    if target is None:
        raise UserError(f"It is not clear to which part of this command {change.name} belongs. {_WHOLE}")
    for word, following in pairwise(target):
        if _SHELL.fullmatch(os.path.basename(word.plain)) and re.match(r"-\w*c", following.plain):
            raise UserError(f"This command passes its text to another shell, so nothing can be added to it. {_WHOLE}")
    return _put_after(command, target[-1], change.words)


def _target(simples: list[list[_Word]]) -> list[_Word] | None:
    """Return the only command; else the only one with long flags; else, if none has, the only one that runs Python."""
    flagged = [simple for simple in simples if any(_LONG.match(word.plain) for word in simple)]
    running = [simple for simple in simples if _PYTHON.fullmatch(os.path.basename(simple[0].plain))]
    for candidates in (simples, flagged, [] if flagged else running):
        if len(candidates) == 1:
            return candidates[0]
    return None


def _simple_commands(command: str) -> list[list[_Word]]:
    """Return the words of each simple command, its name first, without redirections and leading assignments."""
    simples: list[list[_Word]] = []
    for piece in pieces(command):
        if piece.role == "command":
            simples.append([_word(piece)])
        elif piece.role == "argument":
            simples[-1].append(_word(piece))
    return simples


def _word(piece: Piece) -> _Word:
    try:
        plain = split(piece.text)
    except ValueError:
        plain = []
    return _Word(plain[0] if len(plain) == 1 else piece.text, piece.start, piece.end)


def _put(command: str, words: Sequence[_Word], values: Sequence[str]) -> str:
    """Replace these words in the command, the last one first so that earlier positions stay valid."""
    for word, value in reversed(list(zip(words, values, strict=True))):
        command = command[: word.start] + _quoted(value) + command[word.end :]
    return command


def _put_after(command: str, word: _Word, values: Sequence[str]) -> str:
    return command[: word.end] + "".join(f" {_quoted(value)}" for value in values) + command[word.end :]


def _quoted(value: str) -> str:
    """Quote a value as one shell word. A leading `~/` stays unquoted, so that the shell expands it."""
    if value.startswith("~/"):
        return f"~/{shlex.quote(value[2:])}" if value[2:] else value
    return shlex.quote(value)
