"""Scheduling limits of the whole box, and how much GPU time each owner had recently."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runner import clock
from runner.schedule.choice import DAY_S, BoxLimits
from runner.store.box import Box, BoxKey

if TYPE_CHECKING:
    from datetime import datetime

    from runner.config.settings import Settings
    from runner.store.connection import Store

HALF_LIFE_S = 86_400.0


class Shares:
    """GPU seconds by owner, with a half-life of one day."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, owner: str, gpu_s: float) -> None:
        """Add the GPU seconds of an attempt that has ended."""
        now = clock.now()
        row = self._store.row("SELECT gpu_s, at FROM shares WHERE owner = ?", (owner,))
        before = _faded(row["gpu_s"], row["at"], now) if row else 0.0
        self._store.execute("INSERT OR REPLACE INTO shares VALUES (?, ?, ?)", (owner, before + gpu_s, clock.text(now)))

    def use(self) -> dict[str, float]:
        """Return the recent GPU seconds of each owner, with those of live jobs so far."""
        now = clock.now()
        found = {row["owner"]: _faded(row["gpu_s"], row["at"], now) for row in self._store.rows("SELECT * FROM shares")}
        live = self._store.rows("SELECT owner, gpus, started_at FROM jobs WHERE state IN ('STARTING', 'RUNNING')")
        for row in live:
            since = clock.moment(row["started_at"]) or now
            gpu_s = len(json.loads(row["gpus"])) * (now - since).total_seconds()
            found[row["owner"]] = found.get(row["owner"], 0.0) + gpu_s
        return found


def _faded(gpu_s: float, at: str, now: datetime) -> float:
    then = clock.moment(at)
    assert then is not None
    return float(gpu_s * 0.5 ** (max(0.0, (now - then).total_seconds()) / HALF_LIFE_S))


def keep_limits(box: Box, settings: Settings) -> None:
    """Store the settings that limit what jobs and owners may use, for the other processes."""
    box.set(
        BoxKey.LIMITS,
        {
            "cpus": settings.cpus,
            "ram_mib": settings.ram,
            "gpus_each": settings.gpus_each,
            "gpus_each_low": settings.gpus_each_low,
            "age_s": settings.age,
        },
    )
    box.set(BoxKey.TIMES, {"usual_s": settings.time, "longest_s": settings.time_max})


def box_limits(store: Store) -> BoxLimits:
    """Return the current limits, with the recent GPU use of each owner."""
    kept = Box(store).get(BoxKey.LIMITS, {})
    groups = {
        row["name"]: row["at_most"] for row in store.rows("SELECT name, at_most FROM groups WHERE at_most IS NOT NULL")
    }
    return BoxLimits(**{"age_s": DAY_S, **kept}, groups=groups, use=Shares(store).use())
