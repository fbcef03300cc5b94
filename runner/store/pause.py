"""A pause of the queue, as it is stored."""

from __future__ import annotations

from dataclasses import dataclass

from runner.model import Record

BREAKER = "breaker"  # pauses the queue after failures in a row


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(Record):
    """Who or what paused the queue, and how the breaker tries whether it may go on."""

    by: str
    why: str | None = None
    error: str | None = None  # the line of output that says why the last of the jobs failed
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
