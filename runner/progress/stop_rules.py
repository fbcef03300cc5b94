"""Rules that end a job by its metrics: `--stop-on nan` and `--stop-on 'loss>10'`. Pure.

`nan` means a metric whose name contains `loss` is NaN or infinite. Other metrics do not count: mixed-precision training
skips steps whose gradient norm is NaN and goes on.
"""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import re2

from runner.errors import UserError
from runner.progress.formats import clean_line, read_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FORM = "write nan, a limit like loss>10 or accuracy<0.1, or several with commas: nan,loss>10"
MOST_RULES, LONGEST_NAME = 8, 64
_RULE = re.compile(r"([A-Za-z_][\w./@' -]{0,80}?)\s{0,8}(<=|>=|<|>)\s{0,8}([-+]?[\d.]{1,20}(?:[eE][-+]?\d{1,3})?)")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_LOSS_NOT_FINITE = re2.compile(rb"(?i)loss[^\r\n]*[^a-z](?:nan|inf|infinity)(?:[^a-z]|$)")
_BEFORE = rb"[\"']?\s{0,3}[=:]?\s{0,12}[\"'\[(]{0,2}"
_VALUE = _BEFORE + rb"([-+.\d][-+.\deE]{0,30}|(?i:[-+]?nan|[-+]?inf))"
_COLOURS = re.compile(rb"\x1b\[[0-9;?]{0,32}[A-Za-z]")


@dataclass(frozen=True)
class StopRule:
    """One rule. Without a name: no loss may be NaN or infinite."""

    name: str = ""
    compare: str = ""
    limit: float = math.nan

    def broken_by(self, metrics: Mapping[str, float]) -> str | None:
        """Return the metric that breaks the rule, like `loss=nan`; None if none does."""
        for name, value in metrics.items():
            if self._is_broken(name, value):
                return f"{name}={value:g}"
        return None

    def _is_broken(self, name: str, value: float) -> bool:
        if not self.name:
            return "loss" in name.lower() and not math.isfinite(value)
        return name == self.name and _COMPARE[self.compare](value, self.limit)

    def may_break(self, block: bytes) -> bool:
        """Return quickly whether output may hold a value that breaks the rule. Never misses one."""
        if not self.name:
            small = block.lower()
            return (b"nan" in small or b"inf" in small) and bool(_LOSS_NOT_FINITE.search(block))
        if self.name.encode() not in block or (self._large and not self._large.search(block)):
            return False
        try:
            values = list(map(float, self._values.findall(block)))
        except ValueError:
            return True
        worst = (max if ">" in self.compare else min)(values, default=self.limit)
        return math.isnan(worst) or _COMPARE[self.compare](worst, self.limit)

    @cached_property
    def _values(self) -> re.Pattern[bytes]:
        return re.compile(re.escape(self.name.encode()) + _VALUE)

    @cached_property
    def _large(self) -> Any:
        """Return a quick pattern for values above the limit: they have as many digits, an exponent or no number."""
        if ">" not in self.compare or not 1 <= self.limit < 1e15:
            return None
        digits = len(str(int(self.limit)))
        above = rb"(?:[-+]{0,2}[0-9]{%d}|[-+.0-9]{1,30}[eE]|(?i:[-+]?nan|[-+]?inf))" % digits
        return re2.compile(re2.escape(self.name).encode() + _BEFORE.replace(rb"\s", rb"[ \t\r\n\f\v]") + above)

    def __str__(self) -> str:
        return f"{self.name}{self.compare}{self.limit:g}" if self.name else "nan"


def parse_rules(text: str) -> tuple[StopRule, ...]:
    """Parse rules like `nan,loss>10`. Raise UserError that says what to write instead."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > MOST_RULES:
        raise UserError(f"at most {MOST_RULES} rules for --stop-on: {FORM}")
    return tuple(dict.fromkeys(_parse(part) for part in parts))


def _parse(part: str) -> StopRule:
    if part.lower() == "nan":
        return StopRule()
    match = _RULE.fullmatch(part)
    if match is None or len(match[1]) > LONGEST_NAME:
        raise UserError(f"{part!r} is not a rule for --stop-on: {FORM}")
    try:
        limit = float(match[3])
    except ValueError:
        raise UserError(f"{match[3]!r} in {part!r} is not a number: {FORM}") from None
    return StopRule(match[1], match[2], limit)


def format_rules(rules: Sequence[StopRule]) -> str:
    """Return the text that parse_rules reads as these rules."""
    return ",".join(map(str, rules))


def broken_rule(rules: Sequence[StopRule], metrics: Mapping[str, float]) -> tuple[StopRule, str] | None:
    """Return the first rule that the metrics break, and the metric; None if they keep all."""
    return next(((rule, why) for rule in rules if (why := rule.broken_by(metrics))), None)


def broken_in(rules: Sequence[StopRule], block: bytes) -> tuple[StopRule, str] | None:
    """Return the first rule that whole lines of output break, and the metric. Every line counts, also between bars."""
    if b"\x1b" in block:
        block = _COLOURS.sub(b"", block)
    suspects = [rule for rule in rules if rule.may_break(block)]
    if not suspects:
        return None
    lines = (line for line in re.split(rb"[\r\n]+", block) if any(rule.may_break(line) for rule in suspects))
    texts = (clean_line(line.decode("utf-8", "replace")) for line in lines)
    return next((broken for text in texts if (broken := broken_rule(suspects, read_metrics(text)))), None)
