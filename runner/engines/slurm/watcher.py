"""What the engine knows of Slurm and the shared folder, kept by two threads. The loop's thread only reads it.

One thread calls Slurm's commands, the other looks at run directories. Either may hang for as long as the controller or
the shared folder does, and then the other still works.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner import clock, rundir
from runner.engines.slurm import commands, shared_folder
from runner.engines.slurm.batch_script import options_of, script_of
from runner.engines.slurm.verdict import Sighting, judge
from runner.errors import JobError, TransientError
from runner.model import Exit

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.config.settings import Settings
    from runner.engines.base import Facts, Order
    from runner.engines.slurm.commands import SlurmNode
    from runner.engines.slurm.shared_folder import Beat
    from runner.model import Ref

log = logging.getLogger(__name__)

BUSY_S, SOON_S = 0.2, 1.0  # between two looks
NODES_EVERY_S = 60.0
AGAIN_S = 30.0  # a stop that did not help is repeated, then with Slurm's own means


@dataclass(slots=True)
class Tracked:
    """One attempt."""

    ref: Ref
    folder: str
    name: str  # of its job in Slurm
    order: Order | None = None  # still to be handed over
    ordered: bool = False  # it was once: the same order again does nothing
    seen: Sighting = field(default_factory=Sighting)
    facts: Facts | None = None
    beat: Beat | None = None
    stop: bool = False
    stopped_at: float | None = None  # when Slurm was last told


class Watcher:
    """Hands attempts to Slurm, and knows what has become of them."""

    def __init__(self, settings: Settings, lineage: str, on_news: Callable[[], None]) -> None:
        self._settings, self._on_news = settings, on_news
        self.prefix = f"ns-{lineage[:8]}-"
        self._lock = threading.Lock()  # held for moments only, never while a command runs
        self._tracked: dict[Ref, Tracked] = {}
        self._changed: set[Ref] = set()
        self.nodes: list[SlurmNode] = []
        self.nodes_at: float | None = None
        self.trouble: str | None = "Slurm has not answered yet"
        self._closing = False
        self._calls, self._looks = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._serve, args=arguments, daemon=True, name=arguments[1].__name__)
            for arguments in (
                (self._calls, self._call_slurm, settings.slurm_poll),
                (self._looks, self._look_at_folders, SOON_S),
            )
        ]

    def begin(self) -> None:
        """Start to watch."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop watching. A thread that hangs in a command is not waited for."""
        self._closing = True
        self._wake()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=1.0)

    # -- for the loop's thread ---------------------------------------------------------------------

    def track(self, ref: Ref, order: Order | None = None) -> Tracked:
        """Watch an attempt, and hand it to Slurm if there is an order."""
        with self._lock:
            tracked = self._tracked.get(ref)
            if tracked is None:
                folder = rundir.folder_of(self._settings.run_root, ref.job_id, ref.attempt)
                tracked = self._tracked[ref] = Tracked(ref, folder, f"{self.prefix}{ref.mark}")
            if order is not None and not tracked.ordered:
                tracked.order, tracked.ordered, tracked.seen = order, True, Sighting()
        self._wake()
        return tracked

    def stop(self, ref: Ref) -> None:
        """Stop an attempt, now and until it has stopped."""
        self.track(ref).stop = True
        self._wake()

    def forget(self, ref: Ref) -> None:
        """Watch an attempt no longer."""
        with self._lock:
            self._tracked.pop(ref, None)
            self._changed.discard(ref)

    def news(self) -> set[Ref]:
        """Return the attempts that have changed since the last call."""
        with self._lock:
            changed, self._changed = self._changed, set()
        return changed

    def beats(self) -> dict[Ref, Beat]:
        """Return the latest signs of life."""
        with self._lock:
            return {ref: one.beat for ref, one in self._tracked.items() if one.beat is not None}

    def _wake(self) -> None:
        self._calls.set()
        self._looks.set()

    # -- the threads -------------------------------------------------------------------------------

    def _serve(self, wake: threading.Event, work: Callable[[list[Tracked]], None], longest_s: float) -> None:
        pause_s = 0.0
        while not self._closing:
            woken = wake.wait(pause_s)
            wake.clear()
            with self._lock:
                all_tracked = list(self._tracked.values())
            began = time.monotonic()
            try:
                work(all_tracked)
            except (OSError, TransientError) as error:
                log.warning("%s", error)
            self._judge(all_tracked)
            at_most_s = (
                min(longest_s, SOON_S) if any(one.stop or one.seen.gone_at for one in all_tracked) else longest_s
            )
            # soon after something was asked, then less and less often; a slow controller is not asked all the time
            pause_s = BUSY_S if woken else min(1.5 * max(pause_s, BUSY_S), at_most_s)
            pause_s = max(pause_s, min(4 * (time.monotonic() - began), longest_s))

    def _judge(self, all_tracked: list[Tracked]) -> None:
        """Take in what was seen, and tell the loop what has changed."""
        changed = []
        for one in all_tracked:
            verdict = judge(one.seen, time.monotonic(), self._settings.slurm_forgotten_after)
            if verdict.facts != one.facts:
                one.facts = verdict.facts
                changed.append(one.ref)
            if verdict.revoke:
                self._looks.set()
        if changed:
            with self._lock:
                self._changed |= self._tracked.keys() & changed
            self._on_news()

    # -- Slurm's commands --------------------------------------------------------------------------

    def _call_slurm(self, all_tracked: list[Tracked]) -> None:
        for one in all_tracked:
            if one.order is not None:
                self._submit(one, one.order)
            if one.stop:
                self._cancel(one)
        now = time.monotonic()
        try:
            if self.nodes_at is None or now - self.nodes_at > NODES_EVERY_S:
                self.nodes = commands.nodes()
                self.nodes_at = time.monotonic()
                self._on_news()
            if all_tracked:
                self._take_queue(all_tracked)
            self._note_trouble(None, all_tracked)
        except TransientError as error:
            self._note_trouble(f"Slurm does not answer: {error}", all_tracked)

    def _note_trouble(self, trouble: str | None, all_tracked: list[Tracked]) -> None:
        if (trouble is None) != (self.trouble is None):
            log.warning("%s", trouble or "Slurm answers")
        self.trouble = trouble
        for one in all_tracked:
            one.seen.trouble = trouble

    def _submit(self, one: Tracked, order: Order) -> None:
        """Write the run directory and call sbatch once. Whether Slurm has it, its queue says under the job's name."""
        try:
            os.close(rundir.create(one.folder, order.spec, order.script))
            usual = {
                name: getattr(self._settings, f"slurm_{name}") for name in ("partition", "account", "qos", "constraint")
            }
            options = options_of(order, one.name, one.folder, usual, self.nodes)
            if not one.stop:
                commands.submit(options, script_of(one.folder, self._settings.gpus))
        except JobError as error:
            at = clock.text(clock.now())
            one.seen.refused = Exit(
                run_id=one.ref.run_id, spawn_error=str(error), started_at=at, finished_at=at, duration_s=0.0
            )
        except (OSError, TransientError) as error:
            log.warning("attempt %s: %s", one.ref.mark, error)
            one.seen.complaint = str(error)
        one.order = None

    def _take_queue(self, all_tracked: list[Tracked]) -> None:
        entries = commands.queue(self.prefix)
        now = time.monotonic()
        for one in all_tracked:
            if one.order is not None:
                continue  # it came meanwhile
            entry, seen = entries.get(one.name), one.seen
            is_live = entry is not None and entry.live
            seen.gone_at = None if is_live else seen.gone_at or now
            if entry is not None or (seen.entry is not None and seen.entry.live):
                seen.entry = entry  # how it ended is kept when Slurm forgets it later
            seen.answered_at = now

    def _cancel(self, one: Tracked) -> None:
        """Pass a stop on: at once, and again if it did not help, then with Slurm's own means."""
        now, again = time.monotonic(), one.stopped_at is not None
        if one.stopped_at is not None and now - one.stopped_at < AGAIN_S + self._settings.stop_grace:
            return
        with contextlib.suppress(TransientError):  # the node finds the request in the run directory
            commands.stop(one.name, started=one.seen.started is not None and not again)
        one.stopped_at = now

    # -- run directories ---------------------------------------------------------------------------

    def _look_at_folders(self, all_tracked: list[Tracked]) -> None:
        for one in all_tracked:
            if one.stop and one.seen.exit is None:
                shared_folder.ask_to_stop(one.folder)
            self._read(one)
            if judge(one.seen, time.monotonic(), self._settings.slurm_forgotten_after).revoke:
                one.seen.revoked = shared_folder.revoke(one.folder, one.ref.run_id)

    def _read(self, one: Tracked) -> None:
        seen, run_id = one.seen, one.ref.run_id
        if seen.exit is not None:
            return
        started, end = rundir.read_started(one.folder), rundir.read_exit(one.folder)
        if started is not None and started.run_id == run_id:
            seen.started = started
        seen.exit = end if end is not None and end.run_id == run_id else None
        beat = shared_folder.read_beat(one.folder, run_id)
        if beat is not None and (one.beat is None or beat.number != one.beat.number):
            seen.beat_at = time.monotonic()
            one.beat = beat.received(seen.beat_at)
            self._on_news()
