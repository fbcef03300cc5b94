"""Submitting and dispatching with 100,000 jobs queued against 100: it should not matter."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.box import Box, a_box, until

ROUNDS = 60


def main() -> None:
    small, large = _measured(100), _measured(100_000)
    print("\nWith 100 and with 100,000 jobs queued, median ms")
    for name in small:
        ratio = large[name] / small[name]
        verdict = "flat" if ratio <= 1.2 else "NOT flat"
        print(f"  {name:<34} {small[name]:7.2f} {large[name]:7.2f}   {ratio:.2f}× (required ≤ 1.2: {verdict})")


def _measured(queued: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, a_box("sim:2x24GiB") as box:
        (blocker,) = box.submit(box.spec("sleep 1000", gpus=1, on=("1",)))
        until(lambda: box.is_running(blocker))
        for _ in range(0, queued, 10_000):
            box.submit(*[box.spec("true", gpus=1, on=("1",)) for _ in range(min(queued, 10_000))])
        result = _times(box, Path(folder))
        box.queue.stop(blocker)
        until(lambda: box.is_over(blocker))
        box.queue.pause()
        return result


def _times(box: Box, folder: Path) -> dict[str, float]:
    submits, starts, looks = [], [], []
    for number in range(ROUNDS):
        mark = folder / str(number)
        began = time.time()
        (job_id,) = box.submit(box.spec(f"echo ${{EPOCHREALTIME/./}} > {mark}", gpus=1, on=("0",)))
        committed = time.time()
        until(lambda mark=mark: mark.exists() and mark.read_text().endswith("\n"))
        starts.append(int(mark.read_text()) / 1e6 - committed)
        submits.append(committed - began)
        until(lambda job_id=job_id: box.is_over(job_id))
        began = time.perf_counter()
        box.queue.view.describe([box.queue.job(job_id)])
        looks.append(time.perf_counter() - began)
    named = {"submit (durable)": submits, "commit → first instruction": starts, "show one job": looks}
    return {name: statistics.median(values) * 1e3 for name, values in named.items()}


if __name__ == "__main__":
    main()
