"""What the runner needs from an engine. What it learns about an attempt is in the attempt's run directory."""

from __future__ import annotations

from typing import Protocol


class Engine(Protocol):
    """Starts supervisors somewhere."""

    def start(self, folder: str, lock: int) -> int:
        """Start a supervisor for the attempt in this run directory. The engine takes over the lock's descriptor.

        Returns the leash: a descriptor on which the supervisor reports its progress, a byte for each step. It closes
        when the supervisor ends. Raises TransientError if nothing can be started now.
        """

    def close(self) -> None:
        """Start nothing more. Running attempts go on."""
