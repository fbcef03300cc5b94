"""A context for one step of the runner's loop, without the loop."""

from __future__ import annotations

from typing import Any

from runner.engines.base import Can, Node
from runner.model import Ref, Snapshot
from runner.processes import linux
from runner.processes.waiter import Waiter
from runner.progress.pace import Progress
from runner.step import Context


class Readings:
    """All that a watchdog asks of an engine: what the GPUs were last read to do."""

    can = Can()

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.snapshot = snapshot
        self.counters: dict[int, Progress] = {}

    def nodes(self) -> tuple[Node, ...]:
        return (Node(None, self.snapshot, None, linux.boot_id(), 1),)

    def progress(self, ref: Ref) -> Progress | None:
        return self.counters.get(ref.job_id)

    def moved_bytes(self, ref: Ref) -> int | None:
        return None


def a_context(store: Any, settings: Any, engine: Any = None, waiter: Any = None) -> Context:
    return Context(settings, store, waiter or Waiter(), engine or Readings())
