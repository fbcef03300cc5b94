"""What a keeper leaves behind when it is killed: a runner and a bot that go on, and that nobody would start again.

Which they are is written down as they are started. One that somebody started by hand is not ours to end.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING

from runner import home
from runner.presence import KEEPER_LOCK, ask_to_leave, holder

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = "kept.json"
LOCKS = {"bot": home.BOT_LOCK, "runner": home.RUNNER_LOCK}


def remember(folder: str, pids: Mapping[str, int]) -> None:
    """Write down who is kept up; a full disk is no reason not to keep them up."""
    path = os.path.join(folder, FILE)
    with contextlib.suppress(OSError):
        with open(f"{path}.tmp", "w", encoding="ascii") as draft:
            json.dump(pids, draft)
        os.replace(f"{path}.tmp", path)


def left_behind(folder: str) -> list[str]:
    """Those that go on although their keeper is gone."""
    if holder(folder, KEEPER_LOCK) is not None:
        return []
    try:
        with open(os.path.join(folder, FILE), encoding="ascii") as file:
            kept = dict(json.load(file))
    except (OSError, ValueError, TypeError):
        return []
    return [name for name, lock in LOCKS.items() if name in kept and holder(folder, lock) == kept[name]]


def take_over(folder: str) -> list[str]:
    """Have them leave, so that the next keeper starts them with the settings of now; running jobs go on.

    One that hangs must not keep the next from coming up: it is killed, as its own keeper would have done.
    """
    return [name for name in left_behind(folder) if ask_to_leave(folder, LOCKS[name], insist=True)]
