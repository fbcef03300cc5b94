"""Runs any program as if it used a simulated GPU: it holds as much there as in RAM, times a factor.

The program does not notice. Its peak RAM counts, as with allocators that never give memory back. The GPU's load
follows the program's CPU load.
"""

from __future__ import annotations

import math
import os
import subprocess
import time
from typing import TYPE_CHECKING

from runner.errors import UserError
from runner.gpu.sim.load import Hold, hold

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOK_S = 0.1
BUSY_S = 0.5  # CPU times come in coarse ticks: a shorter window would be inexact
KIB_PER_MIB = 1024


def run(command: Sequence[str], times: float, gpu: int | None = None) -> int:
    """Run the program and return its exit code. If the GPU is full, kill it and raise SimulatedOutOfMemoryError."""
    with hold(memory_mib=0, gpu=gpu) as held:
        try:
            program = subprocess.Popen(command)
        except OSError as problem:
            raise UserError(f"{command[0]} cannot be run: {problem.strerror}") from None
        try:
            _follow(program, held, times)
        finally:
            program.kill()
            program.wait()
    return program.returncode if program.returncode >= 0 else 128 - program.returncode


def _follow(program: subprocess.Popen[bytes], held: Hold, times: float) -> None:
    seen_s, seen_at, load = 0.0, time.monotonic(), 0
    while program.poll() is None:
        memory_mib = max(held.memory_mib, math.ceil(_most_mib(program.pid) * times))
        before, now = load, time.monotonic()
        if now - seen_at >= BUSY_S:
            used_s = _cpu_s(program.pid)
            load = min(100, round(100 * (used_s - seen_s) / (now - seen_at)))
            seen_s, seen_at = used_s, now
        if memory_mib > held.memory_mib or load != before:
            held.resize(memory_mib, load)
        try:
            program.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            continue


def _most_mib(pid: int) -> float:
    """Return a process' peak RAM in MiB; 0 once it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            sizes = [line.split()[1] for line in file if line.startswith("VmHWM:")]
    except OSError:
        return 0.0
    return int(sizes[0]) / KIB_PER_MIB if sizes else 0.0


def _cpu_s(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            ticks = file.read().rpartition(")")[2].split()[11:13]
    except OSError:
        return 0.0
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
