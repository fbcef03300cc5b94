"""What the runner asks of an engine. Everything it learns of an attempt comes through its run directory."""

from __future__ import annotations

from typing import Protocol


class Engine(Protocol):
    """Starts supervisors somewhere."""

    def start(self, folder: str, lock: int) -> int:
        """Have the attempt in this run directory supervised; takes over the lock.

        Returns the leash: a descriptor that says a byte when the job has started and ends when its
        supervisor does. Raises TransientError when it cannot start anything now.
        """

    def close(self) -> None:
        """Start nothing more. What runs goes on."""
