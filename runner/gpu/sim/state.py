"""The state of the simulated GPUs: a folder of small text files that the load writes and the driver reads.

    gpus.conf           one line per GPU: index, UUID, total MiB, reserved MiB, name
    procs/<gpu>.<pid>   one claim: pid, start time of the process in clock ticks, MiB, utilisation in percent, and 1
                        if its kernel only spins and waits for another GPU, else 0
    lock                flocked while a claim is changed

A claim counts only while its process lives. A start time of 0 marks a process of another PID namespace,
which cannot be looked up from here: its claim counts until the file is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from runner.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Iterator

GPUS = "gpus.conf"
PROCS = "procs"
LOCK = "lock"

RESERVED_MIB = 300
MAX_GPUS = 64
ELSEWHERE = 0
SETTLED_NS = 50_000_000  # file times are coarse: a file may change again with the same time

_KIND = re.compile(r"([1-9]\d?)x([1-9]\d{0,3})GiB(?::([\w .-]{1,40}))?", re.IGNORECASE)
_NAMESPACE = uuid.UUID("6e696768-7473-4869-8674-2d73696d7531")


@dataclass(frozen=True, slots=True)
class Card:
    """One simulated GPU."""

    index: int
    uuid: str
    total_mib: int
    reserved_mib: int
    name: str


class Claim(NamedTuple):
    """What one process holds of one GPU."""

    pid: int
    started: int
    memory_mib: int
    utilization: int
    spins: int = 0  # 1: busy without work, like a deadlock in NCCL; only the power shows it


def folder_of(home: str) -> str:
    """Return the folder of a state folder's simulated GPUs."""
    return os.path.join(home, "sim")


def parse_spec(setting: str) -> list[tuple[int, str]]:
    """Return the size in GiB and the type of each GPU in a setting such as `sim:2x24GiB+1x11GiB:GTX 1080 Ti`."""
    kinds: list[tuple[int, str]] = []
    for part in setting.removeprefix("sim:").split("+"):
        match = _KIND.fullmatch(part.strip())
        if match is None:
            raise OperatorError(
                f"{setting!r} does not describe simulated GPUs: write NIGHTSHIFT_GPUS=sim:2x24GiB,"
                " or several kinds as sim:2x24GiB+1x80GiB, with a type as sim:1x11GiB:GTX 1080 Ti"
            )
        kinds += [(int(match[2]), (match[3] or f"{match[2]}GiB").strip())] * int(match[1])
    if len(kinds) > MAX_GPUS:
        raise OperatorError(f"{setting!r} asks for {len(kinds)} simulated GPUs: {MAX_GPUS} is the most")
    return kinds


def build(folder: str, setting: str) -> None:
    """Write the GPUs of a setting to the folder. The same folder and setting give the same UUIDs."""
    kinds = parse_spec(setting)
    os.makedirs(os.path.join(folder, PROCS), mode=0o700, exist_ok=True)
    where = os.path.realpath(folder)
    lines = []
    for index, (gib, kind) in enumerate(kinds):
        number = uuid.uuid5(_NAMESPACE, f"{where} {index} {gib}")
        lines.append(f"{index} GPU-{number} {gib * 1024} {RESERVED_MIB} Simulated {kind}\n")
    _write(os.path.join(folder, GPUS), "".join(lines))


def cards(folder: str) -> list[Card]:
    """Return the simulated GPUs of a folder; an empty list if none were built."""
    try:
        with open(os.path.join(folder, GPUS), encoding="utf-8") as file:
            rows = [line.rstrip("\n").split(" ", 4) for line in file]
    except FileNotFoundError:
        return []
    return [Card(int(index), uid, int(total), int(reserved), name) for index, uid, total, reserved, name in rows]


class Claims:
    """The claims on each GPU. Files are read again only when one was added, replaced or removed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: tuple[int, dict[int, list[Claim]]] = (0, {})

    def on(self, index: int) -> list[Claim]:
        """Return the claims of living processes on a GPU."""
        return [claim for claim in self._all().get(index, ()) if lives(claim)]

    def _all(self) -> dict[int, list[Claim]]:
        try:
            changed_ns = os.stat(os.path.join(self._folder, PROCS)).st_mtime_ns
        except FileNotFoundError:
            return {}
        if self._seen[0] == changed_ns:
            return self._seen[1]
        settled = time.time_ns() - changed_ns > SETTLED_NS
        claims: dict[int, list[Claim]] = {}
        for name, claim in _claim_files(self._folder):
            claims.setdefault(_index(name), []).append(claim)
        self._seen = (changed_ns if settled else 0, claims)
        return claims


def write_claim(folder: str, name: str, claim: Claim) -> None:
    """Write a claim, in place of the old one with this name."""
    _write(os.path.join(folder, PROCS, name), " ".join(map(str, claim)) + "\n")


def drop_claim(folder: str, name: str) -> None:
    """Remove a claim, if it is still there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, PROCS, name))


def sweep(folder: str) -> None:
    """Remove the claims of dead processes. The caller must hold the lock."""
    for name, claim in _claim_files(folder):
        if not lives(claim):
            drop_claim(folder, name)


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Hold the lock that guards changes to claims."""
    lock = os.open(os.path.join(folder, LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def lives(claim: Claim) -> bool:
    """Return whether a claim still counts: its process lives, or is in another PID namespace."""
    return claim.started == ELSEWHERE or start_time(claim.pid) == claim.started


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it is dead or a zombie."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields and fields[0] not in (b"Z", b"X") else None


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/<pid>/stat after the process' name; an empty list if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _claim_files(folder: str) -> Iterator[tuple[str, Claim]]:
    try:
        names = os.listdir(os.path.join(folder, PROCS))
    except FileNotFoundError:
        return
    for name in names:
        if name.endswith(".tmp"):
            continue
        with contextlib.suppress(OSError, ValueError):  # removed meanwhile, or not a claim
            with open(os.path.join(folder, PROCS, name), encoding="ascii") as file:
                claim = Claim(*map(int, file.read().split()))
                _index(name)
            yield name, claim


def _index(name: str) -> int:
    """Return the GPU index in a claim's file name."""
    return int(name.partition(".")[0])


def _write(path: str, text: str) -> None:
    """Replace a file atomically, so that no reader sees half of it."""
    draft = f"{path}.{os.getpid()}.tmp"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, path)
