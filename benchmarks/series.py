"""How large the series get, and what writing them costs: 30 days of 8 GPUs and 1,000 jobs, point by point."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import closing
from pathlib import Path
from random import Random

from runner.store import series
from runner.store.connection import connect
from runner.store.series import POINT_S, NewPoint, SeriesFile, Span

GPUS, JOBS, DAYS = 8, 1000, 30
METRICS = 8
ALLOWED_MB = 100


def main() -> None:
    writes, per_job = DAYS * 86400 // POINT_S, DAYS * 86400 // POINT_S * GPUS // JOBS
    chance, first = Random(1), int(time.time()) // POINT_S * POINT_S - DAYS * 86400
    with tempfile.TemporaryDirectory(prefix="nsseries") as home:
        file, took_s, longest_s = SeriesFile(home), 0.0, 0.0
        for number in range(writes):
            points = [_of_gpu(chance, gpu, first + number * POINT_S) for gpu in range(GPUS)]
            points += [_of_job(chance, gpu, number, per_job, first) for gpu in range(GPUS)]
            at = time.thread_time()
            file.write(points, lambda _subject: True)
            took_s, longest_s = took_s + time.thread_time() - at, max(longest_s, time.thread_time() - at)
        file.close()
        _report(home, writes, took_s, longest_s)


def _report(home: str, writes: int, took_s: float, longest_s: float) -> None:
    size_mb = sum(path.stat().st_size for path in Path(home).iterdir()) / 1e6
    with closing(connect(os.path.join(home, series.FILE))) as database:
        (rows,) = database.execute("SELECT count(*) FROM points").fetchone()
        (jobs,) = database.execute("SELECT count(*) FROM subjects WHERE subject NOT LIKE 'GPU %'").fetchone()
    print(f"\nSeries of {DAYS} days: {GPUS} GPUs, {jobs} jobs with {METRICS} metrics, {rows} points")
    print(f"  {size_mb:.1f} MB (required below {ALLOWED_MB}: {'yes' if size_mb < ALLOWED_MB else 'NO'})")
    print(f"  {took_s / writes * 1e6:.0f} µs of processor time for each ten seconds, {1000 * longest_s:.0f} ms at most")


def _of_gpu(chance: Random, gpu: int, start: int) -> NewPoint:
    names = "utilization", "memory_used_mib", "power_w", "temperature_c"
    return NewPoint(series.gpu_subject(f"GPU-{gpu:032d}"), start, {f"gpu {name}": _span(chance) for name in names})


def _of_job(chance: Random, gpu: int, number: int, per_job: int, first: int) -> NewPoint:
    start = first + number * POINT_S
    spans = dict(_of_gpu(chance, gpu, start).spans)
    spans |= {f"metric {n}": _span(chance) for n in range(METRICS)}
    position = float(number % per_job)
    spans[series.POSITION] = Span(position, position, position)
    return NewPoint(series.job_subject(1 + number // per_job * GPUS + gpu, "a1b2c3d4"), start, spans)


def _span(chance: Random) -> Span:
    low = chance.random()
    return Span(low, low + 0.5, low + 1.0)


if __name__ == "__main__":
    main()
