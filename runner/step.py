"""What the runner's loop is made of: a list of steps that share a context."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner.store.box import Box
from runner.store.jobs import Jobs
from runner.store.notices import Notices
from runner.store.scheduling_queries import Line

if TYPE_CHECKING:
    from runner.config.settings import Settings
    from runner.engines.base import Engine, Node
    from runner.model import Exit, Gpu, Job, Ref, State
    from runner.processes.waiter import Waiter
    from runner.progress.pace import Progress
    from runner.store.connection import Store
    from runner.store.scheduling_queries import UnderWay


@dataclass(slots=True)
class Context:
    """What every step may use."""

    settings: Settings
    store: Store
    waiter: Waiter
    engine: Engine
    jobs: Jobs = field(init=False)
    notices: Notices = field(init=False)
    box: Box = field(init=False)
    line: Line = field(init=False)
    running: set[Ref] = field(init=False, default_factory=set)  # attempts whose processes are known to run
    _live: list[UnderWay] = field(init=False, default_factory=list)
    _live_as_of: int = field(init=False, default=-1)

    def __post_init__(self) -> None:
        self.jobs, self.notices = Jobs(self.store), Notices(self.store)
        self.box, self.line = Box(self.store), Line(self.store)

    def live(self) -> list[UnderWay]:
        """Return the STARTING and RUNNING jobs as they are now. They are read again only after a change of ours."""
        if self._live_as_of != (as_of := self.store.connection.total_changes):
            self._live, self._live_as_of = self.jobs.under_way(), as_of
        return self._live

    def begin(self) -> None:
        """Begin a tick: other processes may have changed anything since the last one."""
        self._live_as_of = -1

    def nodes(self) -> dict[str | None, Node]:
        """Return all hosts by the name that the scheduler and people know: None if there is only one.

        Beside other nodes, this host has the name of the box.
        """
        nodes = self.engine.nodes()
        return {None if len(nodes) == 1 else node.name or self.settings.box: node for node in nodes}

    def gpus(self) -> dict[str, Gpu]:
        """Return the latest reading of every GPU, by UUID."""
        snapshots = [node.snapshot for node in self.engine.nodes() if node.snapshot]
        return {gpu.uuid: gpu for snapshot in snapshots for gpu in snapshot.gpus}

    def progress(self, job_id: int) -> Progress | None:
        """Return how far a running job is, with times on the monotonic clock; None if that is unknown."""
        ref = next((ref for ref in self.running if ref.job_id == job_id), None)
        return self.engine.progress(ref) if ref else None


class Step:
    """One concern of the runner. The loop calls its steps in order; a step overrides what it needs."""

    def read(self) -> None:
        """Take in new readings of the GPUs. Called before each tick, in no transaction."""

    def tick(self) -> None:
        """Do what is due. Called in the tick's transaction."""

    def on_end(self, job: Job, state: State | None, end: Exit | None, gone_at: float) -> None:
        """Take in that an attempt ended. `state` is None if the job is queued again without counting as a failure.

        Called in the transaction that records the end. `gone_at` is when its processes were gone, monotonic clock.
        """

    def committed(self) -> None:
        """Do what must not happen before the tick is committed."""

    def rolled_back(self) -> None:
        """Forget what this tick decided: it was not committed."""

    def leave(self) -> None:
        """Save what the next runner needs. Called in a transaction."""
