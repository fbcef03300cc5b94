"""What an idle box costs: processor time and memory of all our processes."""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.box import a_box

SECONDS = 30


def main() -> None:
    with a_box("sim:2x24GiB") as box:
        time.sleep(3)  # what starting up leaves behind is not idling
        pids = box.pids()
        before = sum(map(_cpu_s, pids))
        time.sleep(SECONDS)
        used = sum(map(_cpu_s, pids)) - before
        memory = {_name(pid): _pss_mib(pid) for pid in pids}
        total = sum(_pss_mib(pid) for pid in pids)
    share = 100 * used / SECONDS
    print(f"\nIdle for {SECONDS} s, two simulated GPUs: {share:.2f} % of a core", end="")
    print(f" (required below 0.5: {'yes' if share < 0.5 else 'NO'}), {total:.0f} MiB in {len(pids)} processes")
    print("  " + "   ".join(f"{name} {mib:.0f} MiB" for name, mib in memory.items()))
    print("  bound by: one reading of the GPUs every two seconds, and the Python interpreters' memory")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _name(pid: int) -> str:
    return f"{Path(f'/proc/{pid}/comm').read_text().strip()}[{pid}]"


if __name__ == "__main__":
    main()
