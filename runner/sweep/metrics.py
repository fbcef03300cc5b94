"""A number that jobs print, like a validation loss: which it is, and its last value in a job's output."""

from __future__ import annotations

import json
import math
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.errors import UserError
from runner.logs import Log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LONGEST = 300
LONGEST_LINE = 8192  # of more, its end is searched: some patterns take the square of it
STEP_BYTES, FURTHEST_BYTES = 64 << 10, 64 << 20  # how much of the end is searched at first, and at most
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b"
_PLAIN = re.compile(r"[A-Za-z_][\w./@-]*")
_LEADING = re.compile(r"[A-Za-z_][\w ./@-]*")
_GOOD_WHEN_LARGE = re.compile(r"acc|auc|f1|score|reward|return|precision|recall|bleu|rouge|iou|psnr|ssim|r2|throughput")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_FORM = "write its name, like val_loss, or a pattern with ( ) around the number: 'val_loss=([0-9.e-]+)'"


class Metric(NamedTuple):
    """What to look for, what to call it, and which value is best."""

    name: str
    pattern: str
    largest: bool = False

    @property
    def best(self) -> str:
        """Which value is best, in a word."""
        return "largest" if self.largest else "smallest"

    def to_json(self) -> dict[str, Any]:
        """As it is kept."""
        return self._asdict()

    @classmethod
    def from_json(cls, kept: Mapping[str, Any] | None) -> Metric | None:
        """The inverse of to_json; None for none."""
        return cls(kept["name"], kept["pattern"], bool(kept["largest"])) if kept else None


class Reading(NamedTuple):
    """A value as it was printed; without a number where it is none that can be compared."""

    text: str
    number: float | None


def parse_metric(text: str) -> tuple[str, str]:
    """Name and pattern from a plain name, or from a pattern with the number in parentheses. Raises UserError."""
    if _PLAIN.fullmatch(text) and len(text) <= LONGEST:
        return text, rf"(?<![\w./@-]){re.escape(text)}[\"']?\s*[=:]?\s*({_NUMBER})"
    if len(text) > LONGEST:
        raise UserError(f"a metric has {LONGEST} characters at most: {_FORM}")
    try:
        groups = re.compile(text).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise UserError(f"{text!r} is not a pattern ({error}): {_FORM}") from None
    if groups == 0:
        raise UserError(f"{text!r} has no ( ) around the number: {_FORM}")
    leading = _LEADING.match(text)
    return (leading[0].strip(" .") if leading else "") or "metric", text


def metric_of(named: tuple[str, str], largest: bool | None) -> Metric:
    """Where nobody says which value is best, an accuracy is best when it is large, all else when it is small."""
    guessed = bool(_GOOD_WHEN_LARGE.search(named[0].lower())) if largest is None else largest
    return Metric(*named, guessed)


def last_reading(output: Log, pattern: str) -> Reading | None:
    """The last value in an output; searched from its end, of which a little nearly always is enough."""
    wanted, size = re.compile(pattern), STEP_BYTES
    while True:
        kept = output.tail(size)
        whole = len(kept) < size
        if found := _last(wanted, kept, whole=whole):
            return found
        if whole or size >= FURTHEST_BYTES:
            return None
        size *= 16


def _last(wanted: re.Pattern[str], kept: bytes, *, whole: bool) -> Reading | None:
    lines = re.split(r"[\r\n]+", _COLOURS.sub("", kept.decode("utf-8", "replace")))
    if not whole:
        del lines[0]  # it is cut, and so may be a number in it
    for line in reversed(lines):
        found = None
        for match in wanted.finditer(line[-LONGEST_LINE:]):
            found = _reading(match[1]) or found
        if found:
            return found
    return None


def _reading(text: str | None) -> Reading | None:
    printed = (text or "").strip().rstrip(".,;")
    try:
        number = float(printed)
    except ValueError:
        return None
    return Reading(printed[:32], number if math.isfinite(number) else None)


def readings(folders: Mapping[int, str], pattern: str) -> dict[int, Reading]:
    """The last value of each job that printed one, by its run directory."""
    found = {job_id: last_reading(Log(folder), pattern) for job_id, folder in folders.items()}
    return {job_id: reading for job_id, reading in found.items() if reading is not None}


def main(_arguments: Sequence[str] = ()) -> None:
    """In a process of its own, for a pattern may take for ever: JSON on stdin, and on stdout what was found."""
    asked = json.load(sys.stdin)
    json.dump(readings(asked["folders"], asked["pattern"]), sys.stdout)
