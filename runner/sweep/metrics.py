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

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
_MOST_PATTERN_BYTES = 4 << 20  # of memory that RE2 may use for a pattern
_OLD_NAME_START, _NAME_START = r"(?<![\w./@-])", r"(?:^|[^\w./@-])"
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
    def from_json(cls, data: Mapping[str, Any] | None) -> Metric | None:
        """Build a metric from the output of to_json. None gives None."""
        return cls(data["name"], data["pattern"], bool(data["largest"])) if data else None


class MetricValue(NamedTuple):
    """A value as it was printed. `number` is None if it cannot be compared (nan, inf)."""

    text: str
    number: float | None


class MetricValues(NamedTuple):
    """The last value of each job that printed one, and why others may be missing."""

    values: dict[int, MetricValue]
    trouble: str = ""


def parse_metric(text: str) -> tuple[str, str]:
    """Return name and pattern, from a plain name or from a pattern with the number in ( ). Raise UserError if wrong."""
    if _PLAIN.fullmatch(text) and len(text) <= LONGEST:
        return text, rf"{_NAME_START}{re.escape(text)}[\"']?\s*[=:]?\s*({_NUMBER})"
    if len(text) > LONGEST:
        raise UserError(f"a metric may have at most {LONGEST} characters: {_FORM}")
    try:
        groups = int(_compiled(text).groups)
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


def _compiled(pattern: str) -> Any:
    """Compile with RE2, which never takes quadratic time for one match. Raise UserError if it does not support this."""
    import re2

    options = re2.Options()
    options.log_errors, options.max_mem = False, _MOST_PATTERN_BYTES
    try:
        # patterns stored before RE2 was used have a lookbehind in front of a plain name
        return re2.compile(pattern.replace(_OLD_NAME_START, _NAME_START, 1), options)
    except (re2.error, UnicodeEncodeError) as error:
        raise UserError(f"{pattern!r} is not a pattern that can be searched for ({_reason(error)})") from None


def _reason(error: Exception) -> str:
    """Return RE2's own message. It calls a lookahead an invalid operator, so say what is not supported."""
    message = error.args[0] if error.args else ""
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    if text.startswith(("invalid perl operator", "invalid escape sequence")):
        return f"{text}; lookahead, lookbehind and backreferences are not supported"
    return text


class _LateError(Exception):
    """The time is up."""


def last_values(folders: Mapping[int, str], pattern: str, within_s: float = READ_S) -> MetricValues:
    """Search the output of these jobs, given by their run directories, for at most this long."""
    values: dict[int, MetricValue] = {}
    try:
        search = _Search(pattern, time.monotonic() + within_s)
        for job_id, folder in folders.items():
            if value := search.last_value(Log(folder)):
                values[job_id] = value
    except _LateError:
        trouble = f"not all output could be searched within {within_s:.0f} s; a plain name is quickest"
        return MetricValues(values, trouble)
    except UserError as error:
        return MetricValues({}, f"{error}; give another with --metric")
    return MetricValues(values)


class _Search:
    """Searches for a pattern until the time is up."""

    def __init__(self, pattern: str, until: float) -> None:
        self._pattern = _compiled(pattern)
        self._until = until

    def last_value(self, output: Log) -> MetricValue | None:
        """Return the last value in an output. Search from the end, where a little is nearly always enough."""
        size = STEP_BYTES
        while True:
            tail = output.tail(size)
            whole = len(tail) < size
            if value := self._last_in(tail, whole=whole):
                return value
            if whole or size >= FURTHEST_BYTES:
                return None
            size *= 16

    def _last_in(self, tail: bytes, *, whole: bool) -> MetricValue | None:
        lines = _LINE_END.split(_COLOURS.sub("", tail.decode("utf-8", "replace")))
        if not whole:
            del lines[0]  # it is cut, and so may be a number in it
        for line in reversed(lines):
            values = list(self._values(line[-LONGEST_LINE:]))
            if values:
                return values[-1]
        return None

    def _values(self, line: str) -> Iterator[MetricValue]:
        """Yield what the first group holds in each match, if it is a number. Raise _LateError if the time is up."""
        for match in self._pattern.finditer(line):
            self._check_time()
            if value := _value(match[1]):
                yield value
        self._check_time()

    def _check_time(self) -> None:
        if time.monotonic() > self._until:
            raise _LateError


def _value(text: str | None) -> MetricValue | None:
    printed = (text or "").strip().rstrip(".,;")
    try:
        number = float(printed)
    except ValueError:
        return None
    return MetricValue(printed[:32], number if math.isfinite(number) else None)


def main(_arguments: Sequence[str] = ()) -> None:
    """Read a question as JSON from stdin, write the values to stdout. A separate process: there may be much to read."""
    json.dump(last_values(**json.load(sys.stdin)), sys.stdout)
