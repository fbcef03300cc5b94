"""How far a job is, in words for the chat and the terminal. Pure.

Takes the dict that `ls --json` has under `progress`. Short forms fit a phone: 40 characters.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.text.words import coming_time, printable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

BAR = 8
MOST_METRICS = 2
NAME_WIDTH = 16
UNSURE_S, UNSURE_SHARE = 600.0, 0.25  # a range that is wider than both is shown as a range
LONGEST_S = 10 * 365 * 86400.0
_PHASES = {"eval": "evaluating", "prepare": "preparing", "download": "downloading"}
_HELD_OUT = {"val", "valid", "validation", "eval", "test", "dev"}
_SCORES = ("acc", "f1", "auc", "map", "reward", "return", "score", "ppl", "perplexity", "wer", "bleu", "psnr")
_SETTINGS = {
    "lr", "rate", "epoch", "epochs", "step", "steps", "iter", "norm", "time", "ms", "s", "sec", "second", "seconds",
    "eta", "mem", "memory", "tokens", "samples", "num",
}  # fmt: skip
_OTHER = 4


def progress_words(
    progress: Mapping[str, Any] | None, now: datetime, *, ended: bool = False, metrics: bool = True
) -> str:
    """Return all that people ask about a job: how far it is, whether the loss is sane, when it ends; "" if unknown.

    An ended job has no end to come. `metrics` is False where the output must not be shown.
    """
    if not progress:
        return ""
    shown = chosen_metrics(progress) if metrics else []
    end = "" if ended else end_words(progress, now)
    return _joined(
        _done(progress), _position(progress), _epoch(progress), "" if ended else _phase(progress), *shown, end
    )


def short_progress(progress: Mapping[str, Any] | None, now: datetime, *, metrics: bool = True, bar: bool = True) -> str:
    """Return the same for lists of running jobs: the share or else the position, one metric, the end."""
    if not progress:
        return ""
    shown = chosen_metrics(progress)[:1] if metrics else []
    done = _done(progress, bar=bar) or _position(progress)
    end = end_words(progress, now).replace("ends about", "ends")
    return _joined(done, _phase(progress), *([end, *shown] if not bar else [*shown, end]))


def percent(progress: Mapping[str, Any] | None) -> int | None:
    """Return how much is done. Rounded down: 100 only if all is done."""
    position, total = (progress or {}).get("position"), (progress or {}).get("total")
    return None if position is None or not total else max(0, min(100, math.floor(100 * position / total)))


def chosen_metrics(progress: Mapping[str, Any]) -> list[str]:
    """Return the metrics that say most, with their values: the loss first, then a loss or score on held-out data."""
    values: Mapping[str, Any] = progress.get("metrics") or {}
    ranked = sorted((rank, name) for name in values if (rank := _rank(name)) is not None)
    telling = [name for rank, name in ranked if rank < _OTHER] or [name for _, name in ranked]
    return [f"{printable(name)[:NAME_WIDTH]} {_number(float(values[name]))}" for name in telling[:MOST_METRICS]]


def _rank(name: str) -> int | None:
    """Return how much a metric says, 0 is most; None for settings and times."""
    lower = name.lower()
    parts = re.findall("[a-z]+", lower)
    if "loss" in lower:
        return 2 if _HELD_OUT.intersection(parts) else int(lower not in {"loss", "train_loss", "train/loss"})
    if any(part.startswith(_SCORES) for part in parts):
        return 3
    return None if _SETTINGS.intersection(parts) else _OTHER


def end_words(progress: Mapping[str, Any], now: datetime) -> str:
    """Return when the job ends, as a range if that is unsure; "" if unknown."""
    left = seconds_left(progress, now)
    if left is None:
        return ""
    low_s, about_s, high_s = (min(max(left_s, -LONGEST_S), LONGEST_S) for left_s in left)
    first, middle, last = (
        coming_time(now + timedelta(seconds=left_s), now) for left_s in (max(low_s, 0.0), about_s, high_s)
    )
    if high_s < 0:
        return f"was due {last}"
    if not is_sure(left) and first != last:
        return f"ends {first}–{last}"
    return f"ends about {middle if about_s > 0 else last}"


def is_sure(left: tuple[float, float, float]) -> bool:
    """Return whether a time left is narrow enough to be told as one moment."""
    low_s, about_s, high_s = left
    return high_s - low_s <= max(UNSURE_S, UNSURE_SHARE * max(about_s, 0.0))


def seconds_left(progress: Mapping[str, Any], now: datetime) -> tuple[float, float, float] | None:
    """Return how long the job still takes from now: at least, about and at most; None if unknown."""
    about_s, at = progress.get("eta_s"), clock.moment(progress.get("at"))
    if about_s is None or at is None:
        return None
    passed_s = max(0.0, (now - at).total_seconds())
    low_s, high_s = progress.get("eta_low_s"), progress.get("eta_high_s")
    low_s, high_s = about_s if low_s is None else low_s, about_s if high_s is None else high_s
    return low_s - passed_s, about_s - passed_s, high_s - passed_s


def _done(progress: Mapping[str, Any], *, bar: bool = True) -> str:
    done = percent(progress)
    if done is None:
        return ""
    full = done * BAR // 100
    return f"{'▓' * full}{'░' * (BAR - full)} {done} %" if bar else f"{done} %"


def _position(progress: Mapping[str, Any]) -> str:
    """Return the position; without a known total also the rate."""
    position, total = progress.get("position"), progress.get("total")
    unit = printable(progress.get("unit") or "")[:NAME_WIDTH]
    if position is None or (unit == "%" and total):
        return ""
    if total:
        return f"{unit} {_number(position)} of {_number(total)}".strip()
    return _joined(f"{unit} {_number(position)}".strip(), _rate(progress.get("rate"), unit or "step"))


def _rate(rate: float | None, unit: str) -> str:
    if not rate or not math.isfinite(rate):
        return ""
    if rate >= 1:
        return f"{_number(rate)} {unit}{'' if unit.endswith(('s', '%')) else 's'}/s"
    return f"{_number(1 / rate)} s/{unit}"


def _epoch(progress: Mapping[str, Any]) -> str:
    _, _, epoch = (progress.get("phase") or "").partition(", ")
    return printable(epoch) if progress.get("unit") != "epoch" else ""


def _phase(progress: Mapping[str, Any]) -> str:
    phase, _, _ = (progress.get("phase") or "").partition(", ")
    return _PHASES.get(phase, "")


def _number(value: float) -> str:
    """Return a number with three digits, or all digits of a count."""
    if not math.isfinite(value):
        return {math.inf: "inf", -math.inf: "-inf"}.get(value, "NaN")
    if abs(value) < 1e12 and (abs(value) >= 1000 or value == round(value)):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _joined(*parts: str) -> str:
    return " · ".join(part for part in parts if part)
