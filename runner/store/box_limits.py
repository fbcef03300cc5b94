"""Scheduling limits of the whole box. The runner stores them; every process may read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.schedule.choice import DAY_S, Limits
from runner.store.box import Box
from runner.store.fair_share import Shares

if TYPE_CHECKING:
    from runner.config.settings import Settings
    from runner.store.connection import Store

LIMITS, TIMES = "limits", "times"


def keep_limits(box: Box, settings: Settings) -> None:
    """Store the settings that limit what jobs and owners may use."""
    box.set(
        LIMITS,
        {
            "cpus": settings.cpus,
            "ram_mib": settings.ram,
            "gpus_each": settings.gpus_each,
            "gpus_each_low": settings.gpus_each_low,
            "age_s": settings.age,
        },
    )
    box.set(TIMES, {"usual_s": settings.time, "longest_s": settings.time_max})


def box_limits(store: Store) -> Limits:
    """Return the current limits, with the recent GPU use of each owner."""
    kept = Box(store).get(LIMITS, {})
    groups = {
        row["name"]: row["at_most"] for row in store.rows("SELECT name, at_most FROM groups WHERE at_most IS NOT NULL")
    }
    return Limits(**{"age_s": DAY_S, **kept}, groups=groups, use=Shares(store).use())
