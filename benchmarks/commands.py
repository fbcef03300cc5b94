"""The commands that people type all day: how long each call takes, beside an empty Python program."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.box import COMMAND

ROUNDS = 40


def measured(rounds: int = ROUNDS) -> dict[str, float]:
    """Median milliseconds of each call. They take turns."""
    with tempfile.TemporaryDirectory(prefix="nsbench") as home:
        environ = {**os.environ, "NIGHTSHIFT_HOME": home}
        calls = {
            "python": [sys.executable, "-c", "pass"],
            "submit": [*COMMAND, "submit", "--", "true"],
            "ls": [*COMMAND, "ls"],
        }
        times: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(rounds + 1):
            for name, words in calls.items():
                began = time.perf_counter()
                subprocess.run(
                    words, env=environ, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )  # fmt: skip
                if number:  # the first call makes the queue
                    times[name].append((time.perf_counter() - began) * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    calls = measured()
    print("\nCommands, one call, median ms: " + "   ".join(f"{name} {ms:.1f}" for name, ms in calls.items()))
    print("  bound by: Python's own start, and the modules of the queue, most of all its dataclasses")


if __name__ == "__main__":
    main()
