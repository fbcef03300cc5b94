"""Looking at and moving in a queue of 100,000 jobs against one of 1,000, and a long output with its times.

`python -m benchmarks.long_queue`. No GPUs and no runner: only what reading and writing cost the processor.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.box import KEY, VARIABLES
from runner import rundir
from runner.api import Queue, job_spec
from runner.model import JobSpec, State
from runner.supervisor.output import INDEX_RECORD
from runner.terminal.log import Printer

SIZES, AT_ONCE, PAGE = (1_000, 100_000), 10_000, 8
OWNERS, PRIORITIES = ("ada", "bo", "cy"), ("low", "normal", "high")
LINE, LINES, INDEX_STEP = b"step 12345 loss 0.1234\n", 2_000_000, 4096


def main() -> None:
    found = {size: _measured(size) for size in SIZES}
    print("\nA long queue, median ms of the processor, by jobs queued (3 people, 3 priorities)")
    print(f"  {'':<24}" + "".join(f"{size:>12,}" for size in SIZES) + "       ratio")
    for name in found[SIZES[0]]:
        few, many = (found[size][name] for size in SIZES)
        print(f"  {name:<24}{few:>12.2f}{many:>12.2f}{many / few:>11.1f}×")
    print("  bound by: pages by the places before them, read from an index; moves by nothing; lists by their length")
    print(f"\nlog --times of {len(LINE) * LINES >> 20} MiB in {LINES:,} lines: {_log_s():.2f} s of the processor")


def _measured(size: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, Queue(f"{folder}/home", actor="bench") as queue:
        for first in range(0, size, AT_ONCE):
            specs = [_spec(number) for number in range(first, min(size, first + AT_ONCE))]
            queue.submit(specs, {KEY: VARIABLES})
        alike = len(OWNERS) * 4
        return {
            "first page": _ms(lambda: queue.listing.queued(PAGE)),
            "page in the middle": _ms(lambda: queue.listing.queued(PAGE, skip=size // 2)),
            "move across all": _ms(
                lambda: queue.order.move(1 + alike, "after", 1 + (size // alike - 2) * alike), rounds=1
            ),
            "move to the end": _ms(lambda: queue.order.move(1 + 2 * alike, "last"), rounds=1),
            "ls --json, by job": _ms(lambda: _list(queue), rounds=1) / size,
        }


def _spec(number: int) -> JobSpec:
    values = {"gpus": 1 + (number % 4 == 0), "priority": PRIORITIES[number % 3]}
    command, owner = f"python train.py --seed {number}", OWNERS[number % 3]
    return job_spec(values, command=command, owner=owner, folder="/", environment_key=KEY, umask=0o022)


def _list(queue: Queue) -> None:
    for described in queue.view.describe_rows(queue.listing.rows(list(State))):
        json.dumps(described)


def _ms(act: Callable[[], object], rounds: int = 5) -> float:
    times = []
    for _ in range(rounds):
        began = time.process_time()
        act()
        times.append(1e3 * (time.process_time() - began))
    return median(times)


def _log_s() -> float:
    """Each few thousand bytes came at a moment of their own."""
    with tempfile.TemporaryDirectory() as folder, Path("/dev/null").open("w") as nowhere:
        (Path(folder) / rundir.OUTPUT).write_bytes(LINE * LINES)
        moments = io.BytesIO()
        for second, position in enumerate(range(0, len(LINE) * LINES, INDEX_STEP)):
            moments.write(INDEX_RECORD.pack(position, 10**18 + 10**9 * second))
        (Path(folder) / rundir.TIMES).write_bytes(moments.getvalue())
        began = time.process_time()
        with contextlib.redirect_stdout(nowhere), contextlib.closing(Printer(folder, times=True, lines=None)) as out:
            out.catch_up()
        return time.process_time() - began


if __name__ == "__main__":
    main()
