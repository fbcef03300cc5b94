"""Ten nights on simulated GPUs: the share of GPU time that was spent on work that counted.

`python -m benchmarks.nights` prints the tables; with `--write` it puts them into docs/nights.md.
"""

from __future__ import annotations

import heapq
import math
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import mean

from benchmarks.night import CRASH, GPUS, NIGHT_S, OK, OOM, Night
from benchmarks.night_box import SHIPPED, Ours, oracle
from runner import hung

NIGHTS = 10
GOAL = 0.95
DOCUMENT = Path(__file__).parents[1] / "docs" / "nights.md"
BEGIN, END = "<!-- table: made by python -m benchmarks.nights --write -->", "<!-- end of table -->"

KILL = hung.parse_policy("kill")
ALL_THREE = replace(SHIPPED, hung=KILL, breaker=0, retry_host=True)
VARIANTS = {
    "as shipped": SHIPPED,
    "`HUNG=kill`": replace(SHIPPED, hung=KILL),
    "`RETRY_ON=HOST`": replace(SHIPPED, retry_host=True),
    "`HUNG=kill`, `RETRY_ON=HOST`, `BREAKER=0`": ALL_THREE,
    "the same, if hangs in a job's first two minutes were seen (not built)": replace(ALL_THREE, sees_early_hangs=True),
}


# -- the others ----------------------------------------------------------------------------------------------------


def simple_gpu_scheduler(night: Night) -> float:
    """A fixed list of GPUs, one command on each, in order; what hangs, hangs; gone with the host."""
    return _in_order(night, 0.0, 0.0)


def loop_of_seed_000(night: Night) -> float:
    """One loop for each GPU: look every 5 s, measure each command for two minutes, then run it."""
    return _in_order(night, 120.0, 2.5)


def _in_order(night: Night, before_s: float, poll_s: float) -> float:
    """It knows one GPU for each command: a job for two takes twice as long there, which is kind."""
    free = [(0.0, gpu) for gpu in range(GPUS)]
    counted_s = 0.0
    for job in sorted(night.jobs, key=lambda job: (job.filler, job.at_s, job.id)):
        free_s, gpu = heapq.heappop(free)
        start_s = max(free_s, job.at_s) + poll_s + before_s
        work_s = job.work_s * job.gpus
        ends_s, counts = start_s + work_s, True
        if job.fault in (CRASH, OOM):
            ends_s, counts = start_s + job.fault_s * job.gpus, False
        elif job.fault != OK:
            ends_s, counts = math.inf, False
        crowded_s = night.crowded_at_s((gpu,), job.mib, start_s)
        if crowded_s is not None and crowded_s < ends_s:
            ends_s, counts = crowded_s, False
        if job.filler:  # what it saved is there, though nobody goes on with it
            ends_s, counts = min(ends_s, night.reboot_s), True
            work_s = max(0.0, ends_s - start_s)
        if ends_s <= night.reboot_s and counts:
            counted_s += work_s
        heapq.heappush(free, (ends_s, gpu))
    return counted_s / (GPUS * NIGHT_S)


# -- the table -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    night: Night
    oracle: float
    simple: float
    loop: float
    ours: dict[str, float]
    lost: dict[str, dict[str, float]]  # by variant: GPU seconds by cause


@cache
def row(number: int) -> Row:
    night = Night.of(number)
    nights = {name: Ours(night, way) for name, way in VARIANTS.items()}
    found = {name: one.share() for name, one in nights.items()}
    lost = {name: one.wasted for name, one in nights.items()}
    return Row(night, oracle(night), simple_gpu_scheduler(night), loop_of_seed_000(night), found, lost)


def rows() -> tuple[Row, ...]:
    return tuple(row(number) for number in range(1, NIGHTS + 1))


def worst(made: tuple[Row, ...], variant: str) -> float:
    """Of the oracle's, in the worst night."""
    return min(row.ours[variant] / row.oracle for row in made)


SHIPPED_NAME, *_, BEST_NAME = VARIANTS
VARIANTS_SHOWN = SHIPPED_NAME, BEST_NAME


def tables(made: tuple[Row, ...]) -> str:
    nights = [
        "| night | jobs | oracle | nightshift, as shipped | of the oracle's | simple_gpu_scheduler | seed 000's loop |",
        "|---|---|---|---|---|---|---|",
        *(line_of(row) for row in made),
    ]
    settings = [
        "| nightshift | worst night, of the oracle's | mean |",
        "|---|---|---|",
        *(
            f"| {name} | {_percent(worst(made, name))} | {_percent(mean(r.ours[name] / r.oracle for r in made))} |"
            for name in VARIANTS
        ),
    ]
    first, last = VARIANTS_SHOWN
    causes = sorted({why for one in made for name in VARIANTS_SHOWN for why in one.lost[name]})
    losses = [
        f"| GPU time that did not count, mean of {len(made)} nights | {first} | {last} |",
        "|---|---|---|",
        *(
            f"| {why} | {_percent(_mean_loss(made, first, why))} | {_percent(_mean_loss(made, last, why))} |"
            for why in causes
        ),
    ]
    reached = worst(made, "as shipped")
    verdict = "reached" if reached >= GOAL else "NOT reached"
    goal = f"The goal of {100 * GOAL:.0f} % is {verdict}."
    said = f"As shipped, the worst night has {_percent(reached)} of what the oracle has. {goal}"
    return "\n".join([said, "", *nights, "", *settings, "", *losses])


def _mean_loss(made: tuple[Row, ...], variant: str, why: str) -> float:
    return sum(one.lost[variant].get(why, 0.0) for one in made) / len(made) / (GPUS * NIGHT_S)


def line_of(row: Row) -> str:
    shipped = row.ours["as shipped"]
    cells = [row.night.number, len(row.night.jobs), *map(_percent, (row.oracle, shipped, shipped / row.oracle))]
    return "| " + " | ".join(map(str, [*cells, _percent(row.simple), _percent(row.loop)])) + " |"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def written(document: str, made: tuple[Row, ...]) -> str:
    """The document with these tables in it."""
    before, after = document.split(BEGIN, maxsplit=1)[0], document.split(END)[1]
    return f"{before}{BEGIN}\n\n{tables(made)}\n\n{END}{after}"


def main() -> None:
    print("\n" + tables(rows()))
    if "--write" in sys.argv[1:]:
        DOCUMENT.write_text(written(DOCUMENT.read_text(), rows()))


if __name__ == "__main__":
    main()
