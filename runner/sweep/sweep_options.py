"""The options of a sweep, in addition to those of its jobs, for the terminal and the chat. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from runner.config.options import Option
from runner.errors import UserError
from runner.sweep.metrics import metric_of, parse_metric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.sweep.metrics import Metric

GRID, SHUFFLED = "grid", "shuffled_grid"
NO_LIMIT = "none"


def _mode(text: str) -> str:
    if text not in (GRID, SHUFFLED):
        raise UserError(f"{text!r} is not an order: choose {GRID} or {SHUFFLED}")
    return text


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{text!r} is not a whole number") from None


def parse_at_most(text: str) -> int | None:
    """Parse how many jobs of a group may run at a time. `none` gives None: no limit."""
    if text.lower() == NO_LIMIT:
        return None
    if not re.fullmatch(r"0*[1-9][0-9]{0,5}", text):
        raise UserError(f"{text!r} is not a number of jobs: write 1, 2, 3 …, or {NO_LIMIT} for no limit")
    return int(text)


CHOOSING = (
    Option(("-n", "--n-samples"), "N", "samples", "pick this many combinations at random", _number),
    Option(("--sampling-mode",), GRID, "mode", f"order: {GRID}, or {SHUFFLED} (the default)", _mode),
    Option(("--seed",), "N", "seed", "make the choice and order repeatable", _number),
)
OF_A_GROUP = (
    Option(("--at-most",), "M", "at_most", "run at most this many at a time", parse_at_most),
    Option(("--metric",), "val_loss", "metric", "compare jobs by this number in their output", parse_metric),
    Option(("--smallest",), "", "smallest", "smallest is best (default, except for accuracies)", bool),
    Option(("--largest",), "", "largest", "largest is best", bool),
)


def metric_in(values: Mapping[str, Any]) -> Metric | None:
    """Return the metric that the options ask for, or None. Raise UserError if they contradict each other."""
    smallest, largest = bool(values.get("smallest")), bool(values.get("largest"))
    if smallest and largest:
        raise UserError("--smallest and --largest contradict each other: leave one of them out")
    if "metric" not in values:
        if smallest or largest:
            raise UserError(f"{'--smallest' if smallest else '--largest'} of what? Name it: --metric val_loss")
        return None
    return metric_of(values["metric"], largest if smallest or largest else None)
