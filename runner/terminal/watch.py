"""`nightshift watch`: runs a process and ends it when the GPUs are idle, like gpu_idle_timeout."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
from typing import TYPE_CHECKING

import click

from runner.config import home
from runner.errors import OperatorError
from runner.idle.policy import IdlePolicy
from runner.idle_command.child import to_execute
from runner.idle_command.watch_loop import GpuReadings, IdleWatcher
from runner.terminal.session import say

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHORTEST_PERIOD_S = 0.05
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # the same codes as in a shell
LINES = "%(asctime)s: %(levelname)s: %(name)s: %(message)s"


@click.command("watch", context_settings={"allow_interspersed_args": False})
@click.option(
    "-t", "--threshhold-percentage", "--threshold-percentage", "threshold_percent",
    type=click.FloatRange(0, 100, min_open=True), default=1, show_default=True, metavar="PERCENT",
    help="A GPU counts as idle below this usage.",
)  # fmt: skip
@click.option(
    "-s", "--sample-freq", "period_s",
    type=click.FloatRange(_SHORTEST_PERIOD_S), default=5, show_default=True, metavar="SECONDS",
    help="Time between two samples; may be a fraction, like 0.5.",
)  # fmt: skip
@click.option(
    "-n", "--num-samples", "window",
    type=click.IntRange(1), default=60, show_default=True, metavar="N",
    help="Stop the process after this many samples in a row with all GPUs idle.",
)  # fmt: skip
@click.option(
    "-d", "--delay-samples", "delay",
    type=click.IntRange(0), default=12, show_default=True, metavar="N",
    help="Ignore this many samples at the start.",
)  # fmt: skip
@click.option("-x", "--debug", is_flag=True, help="Report the GPUs' usage at each sample.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND…")
def watch(
    threshold_percent: float, period_s: float, window: int, delay: int, debug: bool, command: Sequence[str]
) -> int:
    """Run a command and stop it when all GPUs stay idle. It needs no queue and no bot.

    The command is stopped with everything it has started, (DELAY + N - 1) x SECONDS after its start at the earliest.
    The exit code is then 1. Otherwise it is the command's own, or 128 plus the signal that ended it.

    All GPUs are watched, or those that CUDA_VISIBLE_DEVICES or NIGHTSHIFT_GPUS names. A GPU whose usage is unknown
    never counts as idle.

    Example: nightshift watch -n 120 python train.py
    """
    if not (math.isfinite(threshold_percent) and math.isfinite(period_s)):
        raise click.UsageError("-t and -s must be finite numbers.")
    _set_up_log(debug)
    with contextlib.closing(_readings()) as readings:
        return _run(IdlePolicy(threshold_percent, period_s, window, delay), readings, command)


def _run(policy: IdlePolicy, readings: GpuReadings, command: Sequence[str]) -> int:
    words = to_execute(command)
    try:
        return IdleWatcher(policy, readings).run(words)
    except OSError as error:
        say(f"cannot run {words[0]!r}: {error.strerror}")
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE


def _readings() -> GpuReadings:
    gpus = home.setting("GPUS") or "auto"
    if gpus == "none":
        raise OperatorError("NIGHTSHIFT_GPUS=none: there is nothing to watch. Set it to auto, or unset it.")
    return GpuReadings(home.state_folder(), gpus)


def _set_up_log(debug: bool) -> None:
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(logging.Formatter(LINES))
    log = logging.getLogger("gpu_idle_timeout")
    log.addHandler(lines)
    log.propagate = False
    log.setLevel(logging.DEBUG if debug else logging.INFO)
    logging.raiseExceptions = False  # do not report that the terminal is gone
