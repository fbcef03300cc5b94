"""Stops the runner and the bot that a killed keeper left running: nobody would restart them if they died.

The keeper records the pid and the start time of each part when it starts it. Locks are not enough: a part that has
not come up yet holds none, and could take the lock before the next keeper's part does. Processes that somebody
started by hand are not recorded, and are left alone.
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
PARTS = ("bot", "runner")  # in the order in which they are stopped


def remember(folder: str, pids: Mapping[str, int]) -> None:
    """Record the pids of the parts. If that fails, as on a full disk, they are kept up all the same."""
    path = os.path.join(folder, FILE)
    with contextlib.suppress(OSError):
        parts = {name: [pid, linux.start_time(pid)] for name, pid in pids.items()}
        with open(f"{path}.tmp", "w", encoding="ascii") as draft:
            json.dump({"boot": linux.boot_id(), "parts": parts}, draft)
        os.replace(f"{path}.tmp", path)


def take_over(folder: str, *, insist: bool = True) -> list[str]:
    """Stop the parts whose keeper is gone, and return their names. Running jobs go on.

    With `insist`, a part that hangs is killed, as its keeper would have done, so that the next one can come up.
    Otherwise OperatorError is raised.
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
