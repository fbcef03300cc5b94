"""From the commit to the job's first instruction, and from one job on a GPU to the next."""

from __future__ import annotations

import itertools
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.box import a_box, until
from benchmarks.peers import TSP, scheduler, tsp


def measured(rounds: int = 150) -> dict[str, list[float]]:
    """Milliseconds of each start. Interleaved: each round starts one job in every system."""
    times: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        a_box("sim:1x24GiB") as box,
        scheduler(1) as peer,
        tsp(folder, 1) as spooler,
    ):
        for number in range(rounds):
            _round(folder, number, box, spooler, peer, times)
    return times


def show() -> None:
    times = measured()
    print("\nStart of one job on an idle box: time to its first instruction (bash's own clock), ms")
    for name, values in times.items():
        print(f"  {name:<44} p50 {statistics.median(values):6.2f}   p90 {_p90(values):6.2f}")
    ours, theirs = statistics.median(times["nightshift: commit → first"]), statistics.median(times["tsp: call → first"])
    print(f"  ratio to tsp: {ours / theirs:.2f} (aim 2); required at most 5 ms: {'yes' if ours <= 5 else 'NO'}")
    print("  bound by: two fsyncs (the claim's commit, started.json), two wake-ups, bash's own start")


def _round(folder, number, box, spooler, peer, times) -> None:  # type: ignore[no-untyped-def]
    def first(mark: Path) -> float:
        until(lambda: mark.exists() and mark.read_text().endswith("\n"))
        return int(mark.read_text()) / 1e6

    def stamp(name: str) -> tuple[Path, str]:
        mark = Path(folder) / f"{name}{number}"
        return mark, f"echo ${{EPOCHREALTIME/./}} > {mark}"

    mark, command = stamp("bare")
    began = time.time()
    subprocess.run(["bash", "-c", command], check=True)
    times.setdefault("bare spawn of bash", []).append((first(mark) - began) * 1e3)

    mark, command = stamp("ours")
    spec = box.spec(command)
    began = time.time()
    (job_id,) = box.submit(spec)
    committed = time.time()
    times.setdefault("nightshift: submit call (durable)", []).append((committed - began) * 1e3)
    times.setdefault("nightshift: commit → first", []).append((first(mark) - committed) * 1e3)
    times.setdefault("nightshift: call → first", []).append((first(mark) - began) * 1e3)
    until(lambda: box.is_over(job_id))

    mark, command = stamp("tsp")
    began = time.time()
    spooler.submit(command)
    times.setdefault("tsp: call → first", []).append((first(mark) - began) * 1e3)

    mark, command = stamp("sgs")
    began = time.time()
    peer.submit(command)
    times.setdefault("simple_gpu_scheduler: write → first", []).append((first(mark) - began) * 1e3)


def gaps(jobs: int = 200) -> dict[str, float]:
    """Median milliseconds from start to start of no-ops queued on one GPU."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        line = "echo ${EPOCHREALTIME/./} >> " + folder
        for _ in range(3):
            with a_box("sim:1x24GiB") as box:
                box.queue.pause()
                box.submit(*[box.spec(f"{line}/ours") for _ in range(jobs)])
                box.queue.resume()
                until(lambda box=box: box.finished() == jobs)
            with scheduler(1) as peer:
                for _ in range(jobs):
                    peer.submit(f"{line}/sgs")
            with tsp(folder, 1) as spooler:
                for _ in range(jobs):
                    spooler.submit(f"{line}/tsp")
                until(lambda: len((Path(folder) / "tsp").read_text().split()) % jobs == 0)
        for name in ("ours", "sgs", "tsp"):
            stamps = [int(word) for word in (Path(folder) / name).read_text().split()]
            found[name] = statistics.median(b - a for a, b in itertools.pairwise(stamps)) / 1e3
    return found


def show_gaps() -> None:
    found = gaps()
    print("\nGap between two queued no-ops on one GPU, start to start, median ms")
    print(f"  nightshift {found['ours']:.2f}   simple_gpu_scheduler {found['sgs']:.2f}   tsp {found['tsp']:.2f}")
    print("  bound by: the job's own 1 ms; exit.json and the outcome made durable, the GPU read again, then a start")


def _p90(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.9)]


def main() -> None:
    if TSP is None:
        print("tsp is not installed (Debian: task-spooler); nothing to compare with")
        return
    show()
    show_gaps()


if __name__ == "__main__":
    main()
