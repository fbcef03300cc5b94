"""What the sampler writes: lines of JSON to its parent, and the newest snapshot to gpus.json, for other processes."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time

from runner import clock
from runner.errors import OperatorError
from runner.model import Snapshot
from runner.processes import linux

FILE = "gpus.json"


def line_of(snapshot: Snapshot) -> str:
    """Return a snapshot as the line that the sampler writes."""
    return json.dumps(snapshot.to_json(), separators=(",", ":")) + "\n"


def fatal_line(why: str) -> str:
    """Return the last line of a sampler that cannot work at all: why, and how to fix it."""
    return json.dumps({"fatal": why}) + "\n"


def snapshot_in(line: bytes) -> Snapshot:
    """Return the snapshot in a line of the sampler. Raise OperatorError if the line says why it cannot work."""
    data = json.loads(line)
    if "fatal" in data:
        raise OperatorError(str(data["fatal"]))
    return Snapshot.from_json(data)


def publish(home: str, line: str) -> None:
    """Replace the published snapshot with this line of JSON. Ignore OSError: sampling goes on if the disk is full."""
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
    """Publish a snapshot without GPUs, because this runner has none. It replaces what an earlier runner published."""
    nothing = Snapshot(at=clock.text(clock.now()), boot_id=linux.boot_id(), simulated=False, gpus=())
    publish(home, line_of(nothing))


def read_published(home: str) -> tuple[Snapshot, float] | None:
    """Return the newest snapshot and its age in seconds, infinite if it was taken before the last boot.

    None if there is no readable snapshot.
    """
    try:
        with open(os.path.join(home, FILE), encoding="utf-8") as file:
            snapshot = Snapshot.from_json(json.load(file))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return snapshot, age_s(snapshot)


def age_s(snapshot: Snapshot) -> float:
    """Return the age of a snapshot's newest reading in seconds; infinite if it has none from this boot."""
    newest = max((gpu.sampled_at for gpu in snapshot.gpus), default=0.0)
    if snapshot.boot_id != linux.boot_id() or newest <= 0:
        return math.inf
    return max(0.0, time.monotonic() - newest)
