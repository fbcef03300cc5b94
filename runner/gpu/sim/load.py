"""Load for simulated GPUs: how much of their memory a job holds and how busy it keeps them.

A Python trainer uses `with hold(memory_mib=8000, load=90) as gpu:`. Any other program runs `nightshift sim-load`
beside it or, with `--mirror`, around it. The memory is freed when the process ends, however it ends.

With `--mirror`, the program holds as much of the GPU as of RAM, times a factor, and does not notice. Its peak RAM
counts, as with allocators that never give memory back. The GPU's load follows the program's CPU load.
"""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from runner.errors import UserError
from runner.gpu.sim import state
from runner.gpu.sim.state import Card, Claim

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

VISIBLE = "CUDA_VISIBLE_DEVICES"
LOOK_S = 0.1
BUSY_S = 0.5  # CPU times come in coarse ticks: a shorter window would be inexact
KIB_PER_MIB = 1024

_numbers = itertools.count()


class SimulatedOutOfMemoryError(RuntimeError):
    """A simulated GPU has less memory left than was asked for."""

    def __init__(self, ordinal: int, card: Card, wanted_mib: int, free_mib: int) -> None:
        super().__init__(
            f"CUDA out of memory. Tried to allocate {wanted_mib / 1024:.2f} GiB. GPU {ordinal} has a total"
            f" capacity of {card.total_mib / 1024:.2f} GiB, of which {free_mib / 1024:.2f} GiB are free"
            " (simulated)."
        )


class Hold:
    """Memory and load on some simulated GPUs, the same on each. A context manager."""

    def __init__(self, folder: str, cards: list[Card], memory_mib: int, load: int) -> None:
        self.cards = cards
        self.memory_mib = 0
        self._folder = folder
        self._load, self._spins = load, False
        self._pid = os.getpid()
        number = next(_numbers)  # one process may have several holds
        suffix = f"{self._pid}.{number}" if number else str(self._pid)
        self._names = {card.index: f"{card.index}.{suffix}" for card in cards}
        self.resize(memory_mib)

    def resize(self, memory_mib: int, load: int | None = None) -> None:
        """Change the held memory and load. Raise SimulatedOutOfMemoryError if one of the GPUs has no room."""
        self._load = self._load if load is None else load
        started = state.start_time(self._pid) or 0
        claim = Claim(self._pid, started, memory_mib, self._load, int(self._spins))
        with state.locked(self._folder):
            state.sweep(self._folder)
            taken = state.Claims(self._folder)
            for ordinal, card in enumerate(self.cards):
                self._require_room(ordinal, card, taken.on(card.index), memory_mib)
            for card in self.cards:
                state.write_claim(self._folder, self._names[card.index], claim)
        self.memory_mib = memory_mib

    def spin(self) -> None:
        """From now on use 100 % of the GPUs without doing work, like a deadlock in NCCL."""
        self._spins = True
        self.resize(self.memory_mib, 100)

    def release(self) -> None:
        """Free the memory. Do nothing in a forked child: the hold is its parent's."""
        if os.getpid() != self._pid:
            return
        with state.locked(self._folder):
            for name in self._names.values():
                state.drop_claim(self._folder, name)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _require_room(self, ordinal: int, card: Card, claims: list[Claim], memory_mib: int) -> None:
        used_mib = sum(claim.memory_mib for claim in claims)
        free_mib = max(0, card.total_mib - card.reserved_mib - used_mib)
        if memory_mib - self.memory_mib > free_mib:
            raise SimulatedOutOfMemoryError(ordinal, card, memory_mib - self.memory_mib, free_mib)


def hold(*, memory_mib: int, load: int = 0, gpu: int | None = None, home: str | None = None) -> Hold:
    """Take memory on every visible simulated GPU, or only on the visible one with this number."""
    if home is None:
        from runner.config.home import state_folder

        home = state_folder()
    folder = state.folder_of(home)
    cards = visible(state.cards(folder), os.environ)
    if not cards:
        raise UserError(f"No simulated GPU is visible in {folder}: see {VISIBLE} and NIGHTSHIFT_HOME.")
    if gpu is not None and gpu >= len(cards):
        raise UserError(f"There is no GPU {gpu}: {len(cards)} visible, counted from 0.")
    return Hold(folder, cards if gpu is None else [cards[gpu]], memory_mib, load)


def visible(cards: list[Card], environ: Mapping[str, str]) -> list[Card]:
    """Return the GPUs in CUDA_VISIBLE_DEVICES, in its order. The first entry that names no new GPU ends the list."""
    if VISIBLE not in environ:
        return cards
    chosen: list[Card] = []
    for entry in environ[VISIBLE].split(","):
        named = [card for card in cards if _names(entry.strip(), card)]
        if len(named) != 1 or named[0] in chosen:
            break
        chosen += named
    return chosen


def main(argv: list[str]) -> int:
    """Run `nightshift sim-load`: hold memory and load for a while. Return the exit code."""
    try:
        return _run(_options(argv))
    except (SimulatedOutOfMemoryError, UserError) as error:
        prefix = "torch.OutOfMemoryError: " if isinstance(error, SimulatedOutOfMemoryError) else ""
        sys.stderr.write(f"{prefix}{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    except SystemExit as leaving:  # argparse: 0 after --help, 1 for an error the user can fix
        return 1 if leaving.code else 0


def _run(options: Namespace) -> int:
    if options.mirror is not None or options.command:
        if options.mirror is None or not options.command:
            raise UserError("A command and --mirror go together: nightshift sim-load --mirror 16 -- python train.py")
        return _mirror(options.command, options.mirror, options.gpu)
    from runner.units import parse_duration, parse_size_mib

    end = time.monotonic() + parse_duration(options.time) if options.time else float("inf")
    size, _, every = (options.grow or "0/1h").partition("/")
    step_mib, every_s = parse_size_mib(size), parse_duration(every or "1s")
    memory_mib = parse_size_mib(options.memory)
    with hold(memory_mib=memory_mib, load=options.load, gpu=options.gpu) as held:
        if options.spin:
            held.spin()
        while (rest_s := end - time.monotonic()) > 0:
            time.sleep(min(rest_s, every_s))
            if step_mib and time.monotonic() < end:
                held.resize(held.memory_mib + step_mib)
    return 0


def _options(argv: list[str]) -> Namespace:
    import argparse

    parser = argparse.ArgumentParser(prog="nightshift sim-load", description="Hold memory of simulated GPUs.")
    parser.add_argument("--memory", default="1G", help="on each GPU: 8G, 500M (default 1G)")
    parser.add_argument("--load", type=int, default=0, choices=range(101), metavar="PERCENT")
    parser.add_argument("--spin", action="store_true", help="use 100 %% without doing work, like a deadlock in NCCL")
    parser.add_argument("--time", help="how long: 30s, 10m (default: until stopped)")
    parser.add_argument("--gpu", type=int, metavar="N", help="only the Nth visible GPU, counted from 0")
    parser.add_argument("--grow", metavar="SIZE/TIME", help="take more over time: 500M/1s")
    parser.add_argument(
        "--mirror", type=float, metavar="N", help="run a command; hold N times what it holds of the machine's memory"
    )
    own, command = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    options = parser.parse_args(own)
    options.command = command
    return options


def _names(entry: str, card: Card) -> bool:
    if entry.isdigit():
        return int(entry) == card.index
    return entry.startswith("GPU-") and len(entry) > len("GPU-") and card.uuid.startswith(entry)


def _mirror(command: Sequence[str], times: float, gpu: int | None) -> int:
    """Run the program and return its exit code. If the GPU is full, kill it and raise SimulatedOutOfMemoryError."""
    with hold(memory_mib=0, gpu=gpu) as held:
        try:
            program = subprocess.Popen(command)
        except OSError as error:
            raise UserError(f"{command[0]} cannot be run: {error.strerror}") from None
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
    ticks = state.stat_fields(pid)[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
