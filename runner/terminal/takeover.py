"""What a keeper leaves behind when it is killed: a runner and a bot that go on, and that nobody would start again.

Each is written down as it is started, by its pid and the moment it began: one that has not come up yet holds no lock,
and would take it from the next keeper's. One that somebody started by hand is not ours to end.
"""

from __future__ import annotations

import contextlib
import json
import os
from functools import partial
from typing import TYPE_CHECKING

from runner.processes import linux
from runner.processes.process_lock import KEEPER_LOCK, holder, make_leave

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "kept.json"
PARTS = ("bot", "runner")  # in the order in which they are to leave


def remember(folder: str, pids: Mapping[str, int]) -> None:
    """Write down who is kept up; a full disk is no reason not to keep them up."""
    path = os.path.join(folder, FILE)
    with contextlib.suppress(OSError):
        parts = {name: [pid, linux.start_time(pid)] for name, pid in pids.items()}
        with open(f"{path}.tmp", "w", encoding="ascii") as draft:
            json.dump({"boot": linux.boot_id(), "parts": parts}, draft)
        os.replace(f"{path}.tmp", path)


def take_over(folder: str, *, insist: bool = True) -> list[str]:
    """Have those leave that go on although their keeper is gone; running jobs go on.

    One that hangs must not keep the next from coming up: it is killed, as its own keeper would have done.
    """
    if holder(folder, KEEPER_LOCK) is not None:
        return []
    kept = _remembered(folder)
    return [
        name
        for name in PARTS
        if name in kept and make_leave(folder, kept[name][0], partial(_is_it, *kept[name]), insist=insist)
    ]


def _remembered(folder: str) -> dict[str, tuple[int, int]]:
    try:
        with open(os.path.join(folder, FILE), encoding="ascii") as file:
            written = json.load(file)
        if written["boot"] != linux.boot_id():
            return {}
        return {name: (int(pid), int(began)) for name, (pid, began) in written["parts"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _is_it(pid: int, began: int) -> bool:
    try:
        return linux.start_time(pid) == began
    except OSError:
        return False
