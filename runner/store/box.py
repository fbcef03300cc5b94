"""Values about the whole box, each with a key of a closed list."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runner.store.connection import Store


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
    # the queue itself
    FRONT = "front"  # the smallest position given so far
    SWEEPS = "sweeps"  # how many there were: a name is not used again after its jobs are deleted
    TIDIED_AT = "tidied at"
    LINEAGE = "lineage"  # which queue this is
    HOME = "home"  # the state folder it belongs to
    # the bot writes these
    BOT_ID = "bot id"
    BOT_CHAT = "bot chat"  # which chat the running bot serves
    BOT_USERNAME = "bot username"  # once it has connected to Telegram
    NO_RUNNER_SINCE = "no runner since"  # while the admins know about it
    STALE_BUTTONS = "jobs with stale buttons"
    UPDATES_TRIED_AGAIN = "updates tried again"  # counts by update id


BREAKER = "breaker"  # pauses the queue after failures in a row


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Who or what paused the queue, and how the breaker tries whether it may go on."""

    by: str
    why: str | None = None
    jobs: tuple[int, ...] | None = None  # those that failed; None after a person's pause
    again: bool | None = None  # whether jobs are tried at all
    tries: int = 0
    trial: int | None = None  # the job that is being tried
    try_at: str | None = None  # None: as soon as a job can start
    told: bool = False

    @property
    def by_person(self) -> bool:
        """Return whether a person paused the queue."""
        return self.by != BREAKER

    def to_json(self) -> dict[str, Any]:
        """Return this as it is stored."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Pause:
        """Read what `to_json` returned, in this version or an older one."""
        values = {field.name: stored[field.name] for field in fields(cls) if field.name in stored}
        return cls(**{**values, "by": stored["by"], "jobs": tuple(stored["jobs"]) if "jobs" in stored else None})


class Box:
    """Values by key, stored as JSON."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, key: BoxKey, default: Any = None) -> Any:
        """Return a value, or the default."""
        row = self._store.row("SELECT value FROM box WHERE name = ?", (key.value,))
        return json.loads(row["value"]) if row else default

    def pause(self) -> Pause | None:
        """Return the pause of the queue, or None."""
        stored = self.get(BoxKey.PAUSED)
        return Pause.from_json(stored) if stored else None

    def any(self, *keys: BoxKey) -> bool:
        """Return whether at least one of these has a value."""
        names = [key.value for key in keys]
        marks = ", ".join("?" * len(names))
        return self._store.row(f"SELECT 1 FROM box WHERE name IN ({marks})", names) is not None

    def set(self, key: BoxKey, value: Any) -> None:
        """Store a value; None deletes it."""
        if value is None:
            self._store.execute("DELETE FROM box WHERE name = ?", (key.value,))
        else:
            self._store.execute("INSERT OR REPLACE INTO box VALUES (?, ?)", (key.value, json.dumps(value)))
