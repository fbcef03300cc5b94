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

from benchmarks.night import CRASH, GPUS, OK, OOM, Night
from benchmarks.night_box import FORESIGHT, ORACLE, PROBING_ORACLE, SHIPPED, Ours, Way
from runner.idle import hung_rule

NIGHTS = 10
OTHER_NIGHTS = range(11, 31)  # no rule was chosen by them
PRINTING = (0.0, 0.5, 0.9)  # shares of the jobs that print their progress
GOAL = 0.95
DOCUMENT = Path(__file__).parents[1] / "docs" / "nights.md"
BEGIN, END = "<!-- table: made by python -m benchmarks.nights --write -->", "<!-- end of table -->"

VARIANTS = {
    "as shipped": SHIPPED,
    "`HUNG=alert`": replace(SHIPPED, hung=hung_rule.parse_policy("alert")),
    "`BREAKER=0`": replace(SHIPPED, breaker=0),
    "`RETRY_ON=HOST`": replace(SHIPPED, retry_host=True),
}
STRETCHES = {1: "a night of 10 hours", 2: "20 hours", 4: "40 hours", 6: "a weekend of 60 hours"}


# -- the others ----------------------------------------------------------------------------------------------------


def simple_gpu_scheduler(night: Night) -> float:
    """A fixed list of GPUs, one command on each, in order; what hangs, hangs; gone with the host."""
    return _in_order(night, 0.0, 0.0)


def probing_loop(night: Night) -> float:
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
    return counted_s / (GPUS * night.length_s)


# -- the table -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    night: Night
    oracle: float
    foresight: float
    simple: float
    loop: float
    ours: float
    lost: dict[str, float]  # GPU seconds by cause
    lost_by_oracle: dict[str, float]


@cache
def row(number: int) -> Row:
    night = Night.of(number)
    ours, oracle = Ours(night, SHIPPED), Ours(night, ORACLE)
    shares = oracle.share(), Ours(night, FORESIGHT).share(), simple_gpu_scheduler(night), probing_loop(night)
    return Row(night, *shares, ours.share(), ours.wasted, oracle.wasted)


def rows() -> tuple[Row, ...]:
    return tuple(row(number) for number in range(1, NIGHTS + 1))


@cache
def share_of(number: int, stretch: int, way: Way, printing: float = 0.0) -> float:
    """The share in a night whose jobs are so many times as long, and some of which print their progress."""
    return Ours(Night.of(number, stretch).with_progress(printing), way).share()


def of_oracle(number: int, stretch: int, oracle: Way = ORACLE, printing: float = 0.0) -> float:
    """As shipped, beside an oracle, which needs no progress."""
    return share_of(number, stretch, SHIPPED, printing) / share_of(number, stretch, oracle)


def tables(made: tuple[Row, ...]) -> str:
    parts = [_verdict(made), _by_night(made), _by_progress(made), _by_setting(made), _by_length(made), _by_cause(made)]
    return "\n\n".join(parts)


def _verdict(made: tuple[Row, ...]) -> str:
    worst = {stretch: min(of_oracle(one.night.number, stretch) for one in made) for stretch in STRETCHES}
    reached = [f"{STRETCHES[stretch]}: {_percent(share)}" for stretch, share in worst.items() if share >= GOAL]
    missed = [f"{STRETCHES[stretch]}: {_percent(share)}" for stretch, share in worst.items() if share < GOAL]
    goal = f"The goal is {100 * GOAL:.0f} % of the oracle's in the worst of {len(made)} nights."
    parts = [
        goal,
        f"NOT reached: {', '.join(missed)}." if missed else "",
        f"Reached: {', '.join(reached)}." if reached else "",
    ]
    return " ".join(part for part in parts if part)


def _by_night(made: tuple[Row, ...]) -> str:
    columns = "night", "jobs", "oracle", "nightshift", "of the oracle's", "of foresight's"
    head = f"| {' | '.join(columns)} | simple_gpu_scheduler | the blog's loop |"
    return "\n".join([head, "|---" * 8 + "|", *(line_of(row) for row in made)])


def line_of(row: Row) -> str:
    shares = (row.oracle, row.ours, row.ours / row.oracle, row.ours / row.foresight, row.simple, row.loop)
    return "| " + " | ".join(map(str, [row.night.number, len(row.night.jobs), *map(_percent, shares)])) + " |"


def _by_progress(made: tuple[Row, ...]) -> str:
    lines = []
    for printing in PRINTING:
        nights = [one.night.number for one in made], OTHER_NIGHTS
        shares = [[of_oracle(number, 1, printing=printing) for number in some] for some in nights]
        cells = [_percent(of(found)) for found in shares for of in (min, mean)]
        lines.append("| " + " | ".join([f"{100 * printing:.0f} %", *cells]) + " |")
    head = "| jobs that print their progress | worst night, of the oracle's | mean |"
    return "\n".join([f"{head} worst of {len(OTHER_NIGHTS)} other nights | mean |", "|---" * 5 + "|", *lines])


def _by_setting(made: tuple[Row, ...]) -> str:
    shares = {name: [Ours(one.night, way).share() / one.oracle for one in made] for name, way in VARIANTS.items()}
    lines = [f"| {name} | {_percent(min(found))} | {_percent(mean(found))} |" for name, found in shares.items()]
    return "\n".join(["| nightshift | worst night, of the oracle's | mean |", "|---|---|---|", *lines])


def _by_length(made: tuple[Row, ...]) -> str:
    lines = []
    for stretch, name in STRETCHES.items():
        jobs = [job for one in made for job in one.night.jobs if not job.filler]
        minutes = stretch * mean(job.work_s for job in jobs) / 60
        shares = [[of_oracle(one.night.number, stretch, way) for one in made] for way in (ORACLE, PROBING_ORACLE)]
        cells = [_percent(of(found)) for found in shares for of in (min, mean)]
        lines.append("| " + " | ".join([name, f"{minutes:.0f} min", *cells]) + " |")
    head = "| the same jobs, longer, in | a job, on average | worst, of the oracle's | mean |"
    return "\n".join([f"{head} worst, if the oracle probed too | mean |", "|---" * 6 + "|", *lines])


def _by_cause(made: tuple[Row, ...]) -> str:
    ours, oracle = [one.lost for one in made], [one.lost_by_oracle for one in made]
    causes = sorted({why for lost in ours + oracle for why in lost})
    gpu_s = GPUS * made[0].night.length_s
    lines = [f"| {why} | {_mean_loss(ours, why, gpu_s)} | {_mean_loss(oracle, why, gpu_s)} |" for why in causes]
    head = f"| GPU time that did not count, mean of {len(made)} nights | nightshift | oracle |"
    return "\n".join([head, "|---|---|---|", *lines])


def _mean_loss(lost: list[dict[str, float]], why: str, gpu_s: float) -> str:
    return _percent(mean(one.get(why, 0.0) for one in lost) / gpu_s)


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
