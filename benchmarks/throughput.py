"""Many no-ops on two slots."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.box import a_box, until
from benchmarks.peers import HYPERQUEUE, TSP, hyperqueue_rate, scheduler, tsp


def ours(count: int) -> float:
    with a_box("sim:2x24GiB") as box:
        box.queue.pause()
        box.submit(*[box.spec("true") for _ in range(count)])
        box.queue.resume()
        began = time.monotonic()
        until(lambda: box.finished() == count, 1200)
        return count / (time.monotonic() - began)


def theirs(count: int) -> float:
    began = time.monotonic()
    with scheduler(2) as peer:
        for _ in range(count):
            peer.submit("true")
    return count / (time.monotonic() - began)


def spooled(count: int) -> float:
    """The last job is the witness of all: with two slots the other slot's last may still run."""
    with tempfile.TemporaryDirectory() as folder, tsp(folder, 2) as spooler:
        began = time.monotonic()
        for _ in range(count - 1):
            spooler.submit("true")
        spooler.submit(f"touch {folder}/last")
        until((Path(folder) / "last").exists)
        return count / (time.monotonic() - began)


def main() -> None:
    print("\nNo-ops on two slots, jobs per second (ours: every one of them durable, started and ended)")
    for count in (1_000, 10_000):
        rates = {"nightshift": ours(count), "simple_gpu_scheduler": theirs(count)}
        if TSP:
            rates["tsp (submitting included)"] = spooled(count)
        if HYPERQUEUE:
            with tempfile.TemporaryDirectory() as folder:
                rates["HyperQueue (in memory)"] = hyperqueue_rate(count, folder)
        print(f"  {count:>6}: " + "   ".join(f"{name} {rate:.0f}" for name, rate in rates.items()))
    if not HYPERQUEUE:
        print("  HyperQueue is left out: it needs `pip install hyperqueue`, and root for a network of its own")
    print("  bound by: the runner's 2.5 ms of Python a job (SQL and its loop), two commits, and a reading of the GPU")


if __name__ == "__main__":
    main()
