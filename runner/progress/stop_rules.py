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
from typing import TYPE_CHECKING

from runner.errors import UserError
from runner.progress.formats import NUMBER, clean_line, read_metrics

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
_NOT_FINITE = re.compile(rb"(?i:nan|inf)")
_VALUE = rf"[\"']?\s{{0,3}}[=:]?\s{{0,12}}[\"'\[(]{{0,2}}({NUMBER})"


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
        """Return quickly whether a block of output may hold a value that breaks the rule. Never misses one."""
        if not self.name:
            return _has_loss(block) and any(word in block for word in _SPELLINGS) and bool(_NOT_FINITE.search(block))
        name = self.name.encode()
        if name not in block:
            return False
        return b"\x1b" in block or any(
            _COMPARE[self.compare](float(n), self.limit) for n in self._values.findall(block)
        )

    @cached_property
    def _values(self) -> re.Pattern[bytes]:
        return re.compile((re.escape(self.name) + _VALUE).encode())

    def __str__(self) -> str:
        return f"{self.name}{self.compare}{self.limit:g}" if self.name else "nan"


_SPELLINGS = (b"nan", b"NaN", b"NAN", b"Nan", b"inf", b"Inf", b"INF")


def _has_loss(block: bytes) -> bool:
    return b"loss" in block or b"Loss" in block or b"LOSS" in block


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


def broken_in(rules: Sequence[StopRule], lines: Sequence[bytes]) -> tuple[StopRule, str] | None:
    """Return the first rule that a line of output breaks, and the metric. Every line counts, also between bars."""
    block = b"\n".join(lines)
    suspects = [rule for rule in rules if rule.may_break(block)]
    if not suspects:
        return None
    for line in lines:
        if any(rule.may_break(line) for rule in suspects):
            found = broken_rule(suspects, read_metrics(clean_line(line.decode("utf-8", "replace"))))
            if found:
                return found
    return None
