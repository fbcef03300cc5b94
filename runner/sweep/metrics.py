"""A number that jobs print, like a validation loss: how to find it, and its last value in a job's output."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.errors import UserError
from runner.supervisor.log_reader import Log
from runner.sweep.patterns import Pattern

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LONGEST = 300
LONGEST_LINE = 8192  # only the end of a longer line is searched: many matches in one line may take quadratic time
READ_S = 20.0  # for all jobs of a group together
STEP_BYTES, FURTHEST_BYTES = 64 << 10, 64 << 20  # how much of the end is searched at first, and at most
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b"
_PLAIN = re.compile(r"[A-Za-z_][\w./@-]*")
_LEADING = re.compile(r"[A-Za-z_][\w ./@-]*")
_GOOD_WHEN_LARGE = re.compile(r"acc|auc|f1|score|reward|return|precision|recall|bleu|rouge|iou|psnr|ssim|r2|throughput")
_LINE_END = re.compile(r"[\r\n]+")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_FORM = "write its name, like val_loss, or a pattern with ( ) around the number: 'val_loss=([0-9.e-]+)'"


class Metric(NamedTuple):
    """What to look for, what to call it, and which value is best."""

    name: str
    pattern: str
    largest: bool = False

    @property
    def best(self) -> str:
        """Return in a word which value is best."""
        return "largest" if self.largest else "smallest"

    def to_json(self) -> dict[str, Any]:
        """Return the metric as it is stored."""
        return self._asdict()

    @classmethod
    def from_json(cls, kept: Mapping[str, Any] | None) -> Metric | None:
        """Build a metric from the output of to_json. None gives None."""
        return cls(kept["name"], kept["pattern"], bool(kept["largest"])) if kept else None


class Reading(NamedTuple):
    """A value as it was printed. `number` is None if it cannot be compared (nan, inf)."""

    text: str
    number: float | None


def parse_metric(text: str) -> tuple[str, str]:
    """Return name and pattern, from a plain name or from a pattern with the number in ( ). Raise UserError if wrong."""
    if _PLAIN.fullmatch(text) and len(text) <= LONGEST:
        return text, rf"(?:^|[^\w./@-]){re.escape(text)}[\"']?\s*[=:]?\s*({_NUMBER})"
    if len(text) > LONGEST:
        raise UserError(f"a metric has {LONGEST} characters at most: {_FORM}")
    try:
        groups = Pattern(text).groups
    except UserError as error:
        raise UserError(f"{error}: {_FORM}") from None
    if groups == 0:
        raise UserError(f"{text!r} has no ( ) around the number: {_FORM}")
    leading = _LEADING.match(text)
    return (leading[0].strip(" .") if leading else "") or "metric", text


def metric_of(named: tuple[str, str], largest: bool | None) -> Metric:
    """Build a metric. Without `largest`, guess by the name: large is best for accuracies and the like, else small."""
    guessed = bool(_GOOD_WHEN_LARGE.search(named[0].lower())) if largest is None else largest
    return Metric(*named, guessed)


class Readings(NamedTuple):
    """The last value of each job that printed one, and why others may be missing."""

    found: dict[int, Reading]
    trouble: str = ""


class _LateError(Exception):
    """The time is up."""


def readings(folders: Mapping[int, str], pattern: str, within_s: float = READ_S) -> Readings:
    """Search the output of these jobs, given by their run directories, for at most this long."""
    found: dict[int, Reading] = {}
    try:
        search = _Search(Pattern(pattern), time.monotonic() + within_s)
        for job_id, folder in folders.items():
            if reading := search.last_reading(Log(folder)):
                found[job_id] = reading
    except _LateError:
        return Readings(found, f"not all output could be searched within {within_s:.0f} s; a plain name is quickest")
    except UserError as error:
        return Readings({}, f"{error}; give another with --metric")
    return Readings(found)


class _Search:
    """Searches for a pattern until the time is up."""

    def __init__(self, pattern: Pattern, until: float) -> None:
        self._pattern = pattern
        self._until = until

    def last_reading(self, output: Log) -> Reading | None:
        """Return the last value in an output. Search from the end, where a little is nearly always enough."""
        size = STEP_BYTES
        while True:
            kept = output.tail(size)
            whole = len(kept) < size
            if found := self._last(kept, whole=whole):
                return found
            if whole or size >= FURTHEST_BYTES:
                return None
            size *= 16

    def _last(self, kept: bytes, *, whole: bool) -> Reading | None:
        lines = _LINE_END.split(_COLOURS.sub("", kept.decode("utf-8", "replace")))
        if not whole:
            del lines[0]  # it is cut, and so may be a number in it
        for line in reversed(lines):
            found = None
            for value in self._pattern.values(line[-LONGEST_LINE:]):
                self._check_time()
                found = _reading(value) or found
            if found:
                return found
            self._check_time()
        return None

    def _check_time(self) -> None:
        if time.monotonic() > self._until:
            raise _LateError


def _reading(text: str | None) -> Reading | None:
    printed = (text or "").strip().rstrip(".,;")
    try:
        number = float(printed)
    except ValueError:
        return None
    return Reading(printed[:32], number if math.isfinite(number) else None)


def main(_arguments: Sequence[str] = ()) -> None:
    """Read JSON from stdin and write the readings to stdout. A separate process, as there may be much to read."""
    asked = json.load(sys.stdin)
    json.dump(readings(asked["folders"], asked["pattern"], asked["within_s"]), sys.stdout)
