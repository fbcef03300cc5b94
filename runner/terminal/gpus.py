"""`nightshift gpus`: what is known about each GPU, and which jobs use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from runner.terminal.session import AS_JSON, open_queue, print_json
from runner.text.table import Row, table_lines
from runner.text.words import gpu_label, printable

if TYPE_CHECKING:
    from runner.api import Queue

UNKNOWN = "–"
_COLOURS = {"free": "green", "busy": "cyan", "taken": "yellow", "held": "yellow", "lost": "red", "unknown": "red"}


@click.command("gpus")
@AS_JSON
def gpus(as_json: bool) -> None:
    """Show the load, memory, state and jobs of each GPU."""
    with open_queue() as queue:
        readings = queue.view.gpus()
        if as_json:
            print_json(readings)
        elif not readings:
            print(why_none(queue))
        else:
            _print_gpus(queue, readings)


def why_none(queue: Queue) -> str:
    """Return why no GPU is known."""
    from runner.gpu.availability import gpu_trouble

    if not queue.runner_is_up():
        return f"No GPU has been read yet: no runner is up for {queue.home}. Start one: nightshift up --detach"
    if (trouble := gpu_trouble(queue.home)) is not None:
        return f"No GPU can be read. {trouble}"
    return "This runner uses no GPUs (NIGHTSHIFT_GPUS=none): only jobs with --gpus 0 run."


def _print_gpus(queue: Queue, readings: list[dict[str, Any]]) -> None:
    print("\n".join(gpu_lines(readings)))
    for gpu in readings:
        if gpu["detail"]:
            print(f"GPU {gpu_label(gpu['node'], gpu['index'])}: {gpu['detail']}")
    if readings[0]["simulated"]:
        print("These GPUs are simulated.")
    if not queue.runner_is_up():
        print("No runner is up: these are the last readings of an earlier one.")


def gpu_lines(readings: list[dict[str, Any]]) -> list[str]:
    """Return the lines of the table of GPUs."""
    headers = ["GPU", "NAME", "STATE", "LOAD", "MEMORY", "TEMP", "POWER", "JOBS"]
    return table_lines(headers, [_row(gpu) for gpu in readings], cut=(1,), right=(3, 4, 5, 6))


def _row(gpu: dict[str, Any]) -> Row:
    return Row(
        [
            str(gpu_label(gpu["node"], gpu["index"])),
            printable(gpu["name"] or UNKNOWN),
            gpu["state"],
            _with_unit(gpu["utilization"], " %"),
            _memory(gpu["memory_used_mib"], gpu["memory_total_mib"]),
            _with_unit(gpu["temperature_c"], " °C"),
            _with_unit(gpu["power_w"], " W"),
            ", ".join(f"#{job_id}" for job_id in gpu["jobs"]),
        ],
        {2: _COLOURS.get(gpu["state"])},
    )


def _with_unit(value: float | None, unit: str) -> str:
    return UNKNOWN if value is None else f"{value:.0f}{unit}"


def _memory(used_mib: int | None, total_mib: int | None) -> str:
    used, total = (UNKNOWN if mib is None else f"{mib / 1024:.1f}" for mib in (used_mib, total_mib))
    return f"{used} / {total} GiB"
