"""Parses what people type on a phone, or raises a UserError that says what to send. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from difflib import get_close_matches
from itertools import accumulate
from textwrap import dedent
from typing import TYPE_CHECKING

from bot.text.html import LOOSE_JOINER, quoted
from runner.api.chat import parse_job_range
from runner.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MOST_JOBS = 100

_EXACT = frozenset({"code", "pre"})
_BLANKS = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_UNSEEN = "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2061\u2062\u2063\u2064"
_UNSEEN += "\u2066\u2067\u2068\u2069\ufeff"
_SAME_MEANING = str.maketrans(
    {
        **dict.fromkeys("“”„‟«»＂", '"'),
        **dict.fromkeys("‘’‚‛＇", "'"),
        **dict.fromkeys("‐‑−﹣－", "-"),
        **dict.fromkeys("―⸺⸻", "—"),
        **dict.fromkeys("\u2028\u2029", "\n"),
        **dict.fromkeys(_BLANKS, " "),
        **dict.fromkeys(_UNSEEN, ""),
        "…": "...",
    }
)
_LONG_DASH = re.compile(r"(?<!-)-*[–—][-–—]*")
_INSIDE = re.compile(r"\w", re.UNICODE)
_COMMAND = re.compile(r"/([A-Za-z0-9_]{1,64})(?:@([A-Za-z0-9_]{1,64}))?(?:\s+|$)")
_RANGE_SIGN = re.compile(r"(?:(?<!\s)\s+)?(?:[-–—]{1,2}|\.{2,3}|…)\s*")
_OF_A_SCRIPT = re.compile(
    r"(?<!<)<<(?!<)-?[ \t]*['\"\\]?[A-Za-z_]"  # a heredoc
    r"|(?:[{(|]|&&)[ \t]*$"  # a line that continues on the next
    r"|^(?:for|while|until|if|case|select)\b(?!.*\b(?:done|fi|esac)\b)|^(?:do|done|then|elif|else|fi|esac|[})])(?!\S)"
    r"|^(?:cd|export|source|set)(?:[ \t][^&;|\n]*)?$|^[A-Za-z_]\w*=\S*$",  # alone on its line: for the lines below it
    re.MULTILINE,
)
_ASK_NUMBERS = "send job numbers like 12, 12 13 or 12-15"


def straighten(text: str, entities: Sequence[tuple[str, int, int]] = ()) -> str:
    """Undo what a phone's keyboard does to quotes, dashes and spaces. Code is left exactly as typed.

    Entities are (type, offset, length) in UTF-16 units, as Telegram gives them.
    """
    done, at = "", 0
    for start, end in _exact_stretches(text, entities):
        done += _straight(text[at:start], done[-1:]) + text[start:end]
        at = end
    return done + _straight(text[at:], done[-1:])


def _exact_stretches(text: str, entities: Sequence[tuple[str, int, int]]) -> list[tuple[int, int]]:
    """Return where code is, in characters: sorted and without overlaps."""
    exact = sorted((offset, offset + length) for kind, offset, length in entities if kind in _EXACT)
    places = [0, *accumulate(1 + (char > "\uffff") for char in text)] if exact else []
    stretches: list[tuple[int, int]] = []
    for offset, ending in exact:
        start, end = (max(bisect_right(places, place) - 1, 0) for place in (offset, ending))
        start = max(start, stretches[-1][1] if stretches else 0)
        if end > start:
            stretches.append((start, end))
    return stretches


def _straight(part: str, before: str) -> str:
    part = LOOSE_JOINER.sub("", part.translate(_SAME_MEANING))
    return _LONG_DASH.sub(lambda dash: _dash(dash[0], part[dash.start() - 1] if dash.start() else before), part)


def _dash(run: str, before: str) -> str:
    """Return the hyphens that a long dash stands for: one for an en dash after a letter or digit, otherwise two."""
    return "-" if run == "–" and _INSIDE.match(before) else "--"


def command_of(text: str, bot_username: str) -> tuple[str, str] | None:
    """Return a command's name and the text after it; None if there is no command, or it is for another bot."""
    text = text.lstrip()
    match = _COMMAND.match(text)
    if match is None or (match[2] or bot_username).lower() != bot_username.lower():
        return None
    return match[1].lower(), text[match.end() :]


def job_numbers(
    text: str, exists: Callable[[int], bool] = lambda _: True, named: Callable[[str], int | None] = lambda _: None
) -> list[int]:
    """Return job numbers from `12`, `#12`, `12 13,14`, `12-15` or names, each once, in the order given.

    A range skips numbers that no job has. A single number is returned even if no job has it. `named` returns the job
    that a name means.
    """
    words = [word for word in re.split(r"[\s,;]+", _RANGE_SIGN.sub("-", text)) if word]
    if not words:
        raise UserError(f"Which job? {_ASK_NUMBERS.capitalize()}.")
    numbers: dict[int, None] = {}
    for word in words:
        numbers |= dict.fromkeys(_span(word, exists, named))
        if len(numbers) > MOST_JOBS:
            raise UserError(f"That is more than {MOST_JOBS} jobs at once; send fewer.")
    return list(numbers)


def _span(word: str, exists: Callable[[int], bool], named: Callable[[str], int | None]) -> list[int]:
    ends = parse_job_range(word)
    if ends is None and (number := named(word)) is not None:
        return [number]
    if ends is None:
        raise UserError(f"“{quoted(word)}” is not a job number, nor a job's name; {_ASK_NUMBERS}.")
    first, last = ends
    if last < first:
        raise UserError(f"“{word}” goes from high to low; {_ASK_NUMBERS}.")
    if last - first >= MOST_JOBS:
        raise UserError(f"“{word}” is more than {MOST_JOBS} jobs at once; send fewer.")
    there = [number for number in range(first, last + 1) if first == last or exists(number)]
    if not there:
        raise UserError(f"There are no jobs {word}. /status lists the latest.")
    return there


def lines(text: str) -> list[str]:
    """Return the commands, one per line: no blank lines or comments, and lines that end in a backslash joined."""
    commands: list[str] = []
    begun: list[str] = []
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.rstrip()
        if not begun and line.lstrip().startswith("#"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun += [line[:-1]] if line[:-1] else []
            continue
        commands.append("".join([*begun, line]).strip())
        begun = []
    return [line for line in [*commands, "".join(begun).strip()] if line]


def belong_together(text: str) -> bool:
    """Return whether lines look like one script: a loop, heredoc, continued or indented line, `cd`, `X=1` and so on."""
    joined = dedent(text.replace("\\\n", " "))
    below = joined.split("\n")[1:]
    return bool(_OF_A_SCRIPT.search(joined)) or any(line[:1].isspace() and line.strip() for line in below)


def suggestion(word: str, names: Iterable[str]) -> str | None:
    """Return the name that was probably meant; None if none is close."""
    by_name = {name.lower(): name for name in names}
    meant = word.lower()[:64]
    begins = [name for name in by_name if len(meant) >= 2 and name.startswith(meant)]
    near = begins if len(begins) == 1 else get_close_matches(meant, by_name, n=1, cutoff=0.6)
    return by_name[near[0]] if near else None
