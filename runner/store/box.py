"""Values about the whole box, each with a key of a closed list; its limits, and the recent GPU time of each owner."""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, Any

from runner import clock
from runner.store.connection import Table, marks

if TYPE_CHECKING:
    from datetime import datetime

    from runner.config.settings import Settings
    from runner.schedule.room import BoxLimits
    from runner.store.connection import Store
    from runner.store.pause import Pause

HALF_LIFE_S = 86_400.0


class BoxKey(Enum):
    """The values there are. The runner writes them, unless noted."""

    # what holds up the queue
    PAUSED = "paused"  # by whom and why; the runner or a person writes it
    DRAINING = "draining"  # by whom and since when; a person writes it
    STREAK = "streak"  # failures in a row that the breaker has counted
    # what the watchdogs have reported
    WHEN_EMPTY = "when empty"  # the command to run because the queue is empty, and whether somebody cancelled it
    TOLD_EMPTY_UP_TO = "told empty up to"  # the last event that the latest notice of an empty queue counted
    DISK_LOW = "disk low"
    LOST_GPUS = "lost gpus"
    BACKUP = "backup"  # the folder of the copies, and since when they fail
    # settings of the runner, for the other processes
    LIMITS = "limits"
    TIMES = "times"
    SLOTS = "slots"
    CPU_SLOTS = "cpu slots"
    FREE = "free"  # how free a GPU must be
    SLURM_PERSON = "slurm person"  # whose chat uses the Slurm account; the first who submits writes it
    ENGINE = "engine"  # if jobs run elsewhere: its name, and what it says about each job
    # the queue itself
    FRONT = "front"  # the smallest position given so far
    SWEEPS = "sweeps"  # how many there were: a name is not used again after its jobs are deleted
    BATCHES = "batches"  # the same for batches
    TIDIED_AT = "tidied at"
    LINEAGE = "lineage"  # which queue this is
    HOME = "home"  # the state folder it belongs to
    # the bot writes these
    BOT_ID = "bot id"
    BOT_CHAT = "bot chat"  # which chat the running bot serves
    BOT_USERNAME = "bot username"  # once it has connected to Telegram
    NO_RUNNER_SINCE = "no runner since"  # while the admins know about it
    STALE_BUTTONS = "jobs with stale buttons"
    LIVE_LOGS = "live logs"  # messages that show a job's output as it comes
    UPDATES_TRIED_AGAIN = "updates tried again"  # counts by update id


class Box(Table):
    """Values by key, stored as JSON."""

    def get(self, key: BoxKey, default: Any = None) -> Any:
        """Return a value, or the default."""
        stored = self._store.value("SELECT value FROM box WHERE name = ?", (key.value,))
        return default if stored is None else json.loads(stored)

    def pause(self) -> Pause | None:
        """Return the pause of the queue, or None."""
        stored = self.get(BoxKey.PAUSED)
        if not stored:
            return None
        from runner.store.pause import Pause  # imported late: it is seldom paused

        return Pause.from_json(stored)

    def any(self, *keys: BoxKey) -> bool:
        """Return whether at least one of these has a value."""
        names = [key.value for key in keys]
        return self._store.value(f"SELECT 1 FROM box WHERE name IN ({marks(names)})", names) is not None

    def set(self, key: BoxKey, value: Any) -> None:
        """Store a value; None deletes it."""
        if value is None:
            self._store.execute("DELETE FROM box WHERE name = ?", (key.value,))
        else:
            self._store.execute("INSERT OR REPLACE INTO box VALUES (?, ?)", (key.value, json.dumps(value)))


class Shares(Table):
    """GPU seconds by owner, with a half-life of one day."""

    def add(self, owner: str, gpu_s: float) -> None:
        """Add the GPU seconds of an attempt that has ended."""
        now = clock.now()
        row = self._store.row("SELECT gpu_s, at FROM shares WHERE owner = ?", (owner,))
        before = _faded(row["gpu_s"], row["at"], now) if row else 0.0
        self._store.execute("INSERT OR REPLACE INTO shares VALUES (?, ?, ?)", (owner, before + gpu_s, clock.text(now)))

    def use(self) -> dict[str, float]:
        """Return the recent GPU seconds of each owner, with those of live jobs so far."""
        now = clock.now()
        shares = self._store.rows("SELECT * FROM shares")
        use = {row["owner"]: _faded(row["gpu_s"], row["at"], now) for row in shares}
        live = self._store.rows("SELECT owner, gpus, started_at FROM jobs WHERE state IN ('STARTING', 'RUNNING')")
        for row in live:
            since = clock.moment(row["started_at"]) or now
            gpu_s = len(json.loads(row["gpus"])) * (now - since).total_seconds()
            use[row["owner"]] = use.get(row["owner"], 0.0) + gpu_s
        return use


def _faded(gpu_s: float, at: str, now: datetime) -> float:
    """Return what is left of GPU seconds that were counted at that time."""
    return float(gpu_s * 0.5 ** (max(0.0, clock.seconds_since(at, now)) / HALF_LIFE_S))


def keep_limits(box: Box, settings: Settings) -> None:
    """Store the settings that limit what jobs and owners may use, for the other processes."""
    limits = {
        "cpus": settings.cpus,
        "ram_mib": settings.ram,
        "gpus_each": settings.gpus_each,
        "gpus_each_low": settings.gpus_each_low,
        "age_s": settings.age,
    }
    box.set(BoxKey.LIMITS, limits)
    box.set(BoxKey.TIMES, {"usual_s": settings.time, "longest_s": settings.time_max})


def box_limits(store: Store, *, with_use: bool = True) -> BoxLimits:
    """Return the current limits, with the recent GPU use of each owner: that orders the jobs of several owners."""
    from runner.schedule.room import DAY_S, BoxLimits  # imported late: without a runner no limits are known

    groups = dict(store.tuples("SELECT name, at_most FROM groups WHERE at_most IS NOT NULL"))
    limits = {"age_s": DAY_S, **Box(store).get(BoxKey.LIMITS, {})}
    return BoxLimits(**limits, groups=groups, use=Shares(store).use() if with_use else {})
