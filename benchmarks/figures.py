"""The figures that docs/benchmarks.md keeps, to compare with: starts, gaps, throughput and commands beside the peers.

`python -m benchmarks.figures` prints them in about a minute; `--write` puts them into docs/benchmarks.md. Add `10000`
for 10,000 no-ops too. Ours and the peers take turns in one run, so the ratios hold on a machine with other work.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks import commands, start, throughput
from benchmarks.peers import HYPERQUEUE, TSP, hyperqueue_rate

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- table: made by python -m benchmarks.figures --write -->", "<!-- end of table -->"
TURNS = 3


class Figure(NamedTuple):
    """One row: ours, what it is compared with, and the mark."""

    what: str
    ours: float
    peer: str
    theirs: float
    mark: str


def figures(counts: tuple[int, ...] = (1_000,)) -> list[Figure]:
    times = {name: statistics.median(values) for name, values in start.measured().items()}
    gaps = start.gaps()
    calls = commands.measured()
    tsp_start = times["tsp: call → first"]
    return [
        *[figure for count in counts for figure in _rates(count)],
        Figure("commit → first instruction, ms", times["nightshift: commit → first"], "tsp", tsp_start, "≤ 5"),
        Figure("gap on one GPU, ms", gaps["ours"], "tsp", gaps["tsp"], "≤ 5"),
        Figure("`nightshift submit`, ms", calls["submit"], "`python -c pass`", calls["python"], "≤ 45"),
        Figure("`nightshift ls`, ms", calls["ls"], "`python -c pass`", calls["python"], "≤ 60"),
    ]


def _rates(count: int) -> list[Figure]:
    """Run ours and each peer in turn, and take the median of each."""
    peers: dict[str, Callable[[int], float]] = {"simple_gpu_scheduler": throughput.theirs}
    if TSP:
        peers["tsp"] = throughput.spooled
    if HYPERQUEUE:
        peers["HyperQueue"] = _hyperqueue
    systems = {"ours": throughput.ours, **peers}
    rates: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(TURNS):
        for name, run in systems.items():
            rates[name].append(run(count))
    middle = {name: statistics.median(values) for name, values in rates.items()}
    what = f"{count:,} no-ops on two GPUs, jobs/s"
    marks = {"HyperQueue": "≥ 1×"}
    return [Figure(what, middle["ours"], name, middle[name], marks.get(name, "–")) for name in reversed(peers)]


def _hyperqueue(count: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return hyperqueue_rate(count, folder)


def table(made: list[Figure], date: str) -> str:
    rows = [
        f"| {one.what} | {one.ours:.1f} | {one.peer} {one.theirs:.1f} | {one.ours / one.theirs:.2f}× | {one.mark} |"
        for one in made
    ]
    heads = ["| what | ours | peer | ratio | mark |", "|---|---|---|---|---|"]
    return "\n".join([f"Measured with the commit of {date}.\n", *heads, *rows])


def written(document: str, text: str) -> str:
    """The document with this table in it."""
    before, after = document.split(BEGIN, maxsplit=1)[0], document.split(END)[1]
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def main() -> None:
    words = sys.argv[1:]
    counts = (1_000, 10_000) if "10000" in words else (1_000,)
    date = subprocess.run(
        ["git", "log", "-1", "--format=%cs"], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE
    ).stdout.strip()
    text = table(figures(counts), date)
    print(text)
    if "--write" in words:
        DOCUMENT.write_text(written(DOCUMENT.read_text(), text))


if __name__ == "__main__":
    main()
