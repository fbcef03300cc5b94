"""The file the sampler leaves its newest snapshot in, for whoever wants to look without asking."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time

from runner import clock
from runner.model import Snapshot
from runner.processes import linux

FILE = "gpus.json"


def publish(home: str, line: str) -> None:
    """Put a snapshot, as JSON, in place of the one before. A full disk is no reason to stop sampling."""
    path = os.path.join(home, FILE)
    with contextlib.suppress(OSError):
        draft = os.open(f"{path}.tmp", os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            written = os.write(draft, line.encode())
        finally:
            os.close(draft)
        if written == len(line.encode()):
            os.replace(f"{path}.tmp", path)


def publish_none(home: str) -> None:
    """A runner without GPUs is up: those an earlier one had are not this one's to give."""
    nothing = Snapshot(at=clock.text(clock.now()), boot_id=linux.boot_id(), simulated=False, gpus=())
    publish(home, json.dumps(nothing.to_json()) + "\n")


def read_published(home: str) -> tuple[Snapshot, float] | None:
    """The newest snapshot and the age of its readings in seconds, infinite if they are of another boot.

    None if there is none that can be read.
    """
    try:
        with open(os.path.join(home, FILE), encoding="utf-8") as file:
            snapshot = Snapshot.from_json(json.load(file))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return snapshot, age_s(snapshot)


def age_s(snapshot: Snapshot) -> float:
    """How old the newest reading of a snapshot is."""
    newest = max((gpu.sampled_at for gpu in snapshot.gpus), default=0.0)
    if snapshot.boot_id != linux.boot_id() or newest <= 0:
        return math.inf
    return max(0.0, time.monotonic() - newest)
