"""The port between the runner and the places where attempts run.

The runner's loop knows attempts by their `Ref` and learns about them through an `Engine`. How an engine reaches a
supervisor (descriptors, pids, ssh, a batch system) is its own business. Every engine starts the same supervisor, and
every attempt has the same run directory.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from runner.model import Exit, Reason, Ref, Snapshot
    from runner.processes.waiter import Waiter
    from runner.progress.pace import Progress
    from runner.rundir import AttemptSpec, ProgressRecord, StartRecord
    from runner.schedule.request import Request


class Order(NamedTuple):
    """What an engine is to start."""

    ref: Ref
    spec: AttemptSpec
    script: str | None = None
    gpus: tuple[str, ...] = ()  # UUIDs
    node: str | None = None  # where; None: this host
    asks: Request | None = None  # what the job needs, for an engine that finds the place itself
    options: Mapping[str, str] = MappingProxyType({})  # the job's own words for such an engine, like its partition


class Facts(NamedTuple):
    """All that is known of an attempt from outside. None means unknown, and unknown is never read as free or dead."""

    held: bool | None  # whether its supervisor is alive
    exit: Exit | None = None
    started: StartRecord | None = None
    said: str | None = None  # what the engine itself has to say about it, for people
    gone_at: float | None = None  # when its processes were gone, on this host's monotonic clock
    lost: Reason | None = None  # why it is lost, if the engine knows that better than the boot id tells


class Node(NamedTuple):
    """A host where attempts run, as far as it is known now."""

    name: str | None  # None: this host
    snapshot: Snapshot | None  # readings on this host's clock; GPU processes carry the mark of their attempt
    trouble: str | None  # why nothing may start on its GPUs now
    boot_id: str | None
    cpu_slots: int


class Can(NamedTuple):
    """What an engine can do."""

    extends: bool = True  # a running attempt can be given more time
    places: bool = False  # it has a queue of its own and finds the GPUs: they are known when an attempt has started


class Engine(Protocol):
    """A place where attempts run. No method waits; `tests/contract/test_engines.py` has the rules."""

    can: Can

    def nodes(self) -> Sequence[Node]:
        """Return all hosts with their readings, from what is known here."""

    def start(self, order: Order) -> None:
        """Start an attempt. It is durable at the engine on return. The same order again does no harm.

        Raise TransientError or OSError if nothing can be started now.
        """

    def look(self, refs: Collection[Ref]) -> Mapping[Ref, Facts]:
        """Return the facts of each of these attempts, from what is known here. Never raises."""

    def news(self) -> Collection[Ref]:
        """Return the attempts that have changed since the last call. Each is worth a look."""

    def stop(self, ref: Ref) -> None:
        """Ask an attempt to stop. Asking twice does no harm; what cannot be delivered yet is kept."""

    def extend(self, ref: Ref, limit_s: float) -> None:
        """Give an attempt this time limit if it has a shorter one. Raise OSError if that cannot be written now."""

    def sweep(self, ref: Ref) -> bool:
        """Kill what is left of an attempt whose supervisor is gone. Return whether nothing was left."""

    def moved_bytes(self, ref: Ref) -> int | None:
        """Return how many bytes its processes have read and written; None if that is unknown."""

    def progress(self, ref: Ref) -> Progress | None:
        """Return how far an attempt is, with times on this host's monotonic clock; None if that is unknown."""

    def progress_record(self, ref: Ref) -> ProgressRecord | None:
        """Return what was last read from the output of an attempt; None if nothing was."""

    def progress_news(self) -> Mapping[Ref, ProgressRecord]:
        """Return the attempts whose output was read to its end or broke a rule since the last call."""

    def forget(self, ref: Ref) -> None:
        """Let go of an attempt whose end is committed."""

    def read_gpus(self) -> None:
        """Ask for a reading of all GPUs now."""

    def set_period(self, seconds: float) -> None:
        """Set how many seconds pass between readings that nobody asked for."""

    def listen(self, waiter: Waiter) -> None:
        """Register everything that wakes the loop."""

    def close(self) -> None:
        """Start nothing more. What runs goes on."""
