"""The engine of this host: attempts are processes here, their GPUs are read here.

Everything that only works on one host stays in this folder: descriptors, pids, the zygote, the sampler, /proc.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runner import rundir
from runner.engines.base import Can, Facts, Node
from runner.engines.local.progress_process import ProgressReaders
from runner.engines.local.sampler_process import Telemetry
from runner.engines.local.zygote_process import ZygoteProcess
from runner.processes import linux
from runner.progress.pace import Progress
from runner.supervisor import cgroup
from runner.supervisor.left_behind import end_strays
from runner.supervisor.supervise import ENDED, GONE, PROBED, STARTED, TROUBLE

if TYPE_CHECKING:
    from collections.abc import Collection

    from runner.engines.base import Order
    from runner.model import Gpu, GpuProcess, Ref, Snapshot
    from runner.processes.waiter import Waiter
    from runner.rundir import ProgressRecord

log = logging.getLogger(__name__)

SOON_S = 0.02
PATIENCE_S = 0.02
LOOK_AGAIN_S = 0.01
TROUBLED_S = 5.0


@dataclass(slots=True)
class AttemptLink:
    """How this engine reaches one attempt."""

    leash: int | None = None  # pipe from a supervisor that we started
    pidfd: int | None = None  # of the supervisor: to send it signals, and to see the end of an adopted one
    supervisor: int = 0  # its pid
    on_gpus: bool = False
    gone_at: float | None = None  # when its processes were gone, monotonic clock
    trouble: str | None = None  # why the supervisor could not start the job, in its own words
    stop: bool = False  # a stop is to be delivered as soon as the supervisor is known


class LocalEngine:
    """Runs attempts on this host. Opening it starts the sampler and waits for its first reading."""

    can = Can()

    def __init__(self, home: str, gpus: str, cpu_slots: int) -> None:
        self._home, self._cpu_slots = home, cpu_slots
        self._boot_id = linux.boot_id()
        self._links: dict[Ref, AttemptLink] = {}
        self._changed: set[Ref] = set()
        self._marks: dict[int, str] = {}  # supervisor -> its attempt; replaced, never changed
        self._labelled: tuple[Snapshot | None, dict[int, str], Snapshot | None] = (None, {}, None)
        self._readers = ProgressReaders(home)
        self._telemetry = Telemetry(home, gpus)
        try:
            self._zygote = ZygoteProcess(home)
        except BaseException:
            self._telemetry.close()
            raise

    def listen(self, waiter: Waiter) -> None:
        """Register everything that wakes the loop."""
        self._waiter = waiter
        self._telemetry.listen(waiter)
        self._zygote.listen(waiter)
        self._readers.listen(waiter)

    def close(self) -> None:
        """Start nothing more. What runs goes on."""
        for ref in list(self._links):
            self.forget(ref)
        self._readers.close()
        self._zygote.close()
        self._telemetry.close()

    # -- the host and its GPUs ---------------------------------------------------------------------

    def nodes(self) -> tuple[Node, ...]:
        """Return this host."""
        return (Node(None, self._snapshot(), self._telemetry.trouble, self._boot_id, self._cpu_slots),)

    def read_gpus(self) -> None:
        """Ask for a reading of all GPUs now."""
        self._telemetry.ask()

    def set_period(self, seconds: float) -> None:
        """Set how many seconds pass between readings that nobody asked for."""
        self._telemetry.set_period(seconds)

    def _snapshot(self) -> Snapshot | None:
        """Return the latest reading, with each GPU process labelled by the attempt it belongs to."""
        raw, marks = self._telemetry.snapshot, self._marks
        if raw is None or not marks:
            return raw
        if self._labelled[0] is not raw or self._labelled[1] is not marks:
            gpus = tuple(_labelled(gpu, marks) for gpu in raw.gpus)
            self._labelled = (raw, marks, replace(raw, gpus=gpus))
        return self._labelled[2]

    # -- attempts ----------------------------------------------------------------------------------

    def start(self, order: Order) -> None:
        """Write the run directory and pass the order to a waiting supervisor."""
        folder = self._folder(order.ref)
        leash = self._zygote.start(folder, rundir.create(folder, order.spec, order.script))
        self.forget(order.ref)
        link = AttemptLink(leash=leash, on_gpus=bool(order.gpus))
        self._links[order.ref] = link
        self._readers.expect(order.ref, folder)
        self._waiter.add(leash, lambda: self._hear(order.ref, link))

    def news(self) -> Collection[Ref]:
        """Return the attempts that have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def look(self, refs: Collection[Ref]) -> dict[Ref, Facts]:
        """Read the run directories of these attempts, and adopt supervisors that we did not start."""
        return {ref: self._look(ref) for ref in refs}

    def _look(self, ref: Ref) -> Facts:
        link = self._links.setdefault(ref, AttemptLink())
        try:
            records = rundir.records(self._folder(ref), ref.run_id)
            if link.leash is not None and records.exit is None:  # it lives, even if its job removed the lock file
                records = records._replace(held=True)
            if records.held and records.exit is not None:
                self._tell_in(LOOK_AGAIN_S, ref)  # it is leaving
            elif records.held:
                self._adopt(ref, link, records.started)
                self._readers.expect(ref, self._folder(ref))
            if records.exit is not None:
                self._readers.ended(ref, self._folder(ref), printed=records.exit.output_bytes > 0)
        except OSError as error:  # too few file descriptors, or the disk does not answer
            log.error("attempt %s cannot be looked at now: %s", ref.mark, error)
            self._tell_in(TROUBLED_S, ref)
            return Facts(held=None, said=str(error))
        return Facts(*records, said=link.trouble, gone_at=link.gone_at)

    def stop(self, ref: Ref) -> None:
        """Send SIGTERM to the supervisor, now or when it is known. A second signal would do no harm."""
        link = self._links.setdefault(ref, AttemptLink())
        link.stop = True
        self._deliver_stop(link)

    def extend(self, ref: Ref, limit_s: float) -> None:
        """Write the new limit where the supervisor reads it."""
        rundir.raise_limit(self._folder(ref), ref.run_id, limit_s)

    def sweep(self, ref: Ref) -> bool:
        """Kill what is left of an attempt. Once nothing is, remove its scratch folder and control group."""
        folder = self._folder(ref)
        started = rundir.records(folder, ref.run_id).started
        if end_strays(ref, started.pipe if started else None):
            return False
        shutil.rmtree(os.path.join(folder, rundir.SCRATCH), ignore_errors=True)  # left by a probe
        cgroup.remove_leftover(ref)
        return True

    def moved_bytes(self, ref: Ref) -> int | None:
        """Return how many bytes the processes below the supervisor have read and written."""
        link = self._links.get(ref)
        if link is None or not link.supervisor:
            return None
        return linux.moved_bytes(linux.descendants(link.supervisor))

    def progress(self, ref: Ref) -> Progress | None:
        """Return what was last read from the attempt's output."""
        record = self._readers.latest(ref)
        return Progress.from_json(record.progress) if record and record.progress else None

    def progress_record(self, ref: Ref) -> ProgressRecord | None:
        """Return what was last read from the output of an attempt."""
        return self._readers.latest(ref)

    def progress_news(self) -> dict[Ref, ProgressRecord]:
        """Return the attempts whose output was read to its end or broke a rule since the last call."""
        return self._readers.news()

    def forget(self, ref: Ref) -> None:
        """Close what we have open for an attempt."""
        link = self._links.pop(ref, None)
        self._changed.discard(ref)
        self._readers.forget(ref)
        if link is not None:
            self._let_go(link)

    # -- supervisors -------------------------------------------------------------------------------

    def _folder(self, ref: Ref) -> str:
        return rundir.folder_of(self._home, ref.job_id, ref.attempt)

    def _hear(self, ref: Ref, link: AttemptLink) -> bool:
        """Read what a supervisor reports. Return whether the loop should look at it at once."""
        assert link.leash is not None
        report = os.read(link.leash, 4096)
        if report == STARTED:
            self._tell_in(SOON_S, ref)  # by then its end is often known as well
            return False
        if report and not report.strip(STARTED + PROBED):
            self._changed.add(ref)
            return True
        if report.startswith(TROUBLE):
            link.trouble = report[1:].decode(errors="replace")
        elif GONE in report:
            if link.on_gpus:
                link.gone_at = time.monotonic()
                self._changed.add(ref)
                self._telemetry.ask()  # the next sample shows whether its memory is free again
            if ENDED not in report:
                return False  # its record is being written
        self._let_go(link)
        self._changed.add(ref)
        if link.on_gpus and self._telemetry.is_asked:
            # then the end and the next start need one transaction, not two
            self._waiter.after(PATIENCE_S, lambda: ref in self._changed)
            return False
        return True

    def _adopt(self, ref: Ref, link: AttemptLink, started: rundir.StartRecord | None) -> None:
        """Connect to a live supervisor. What we started reports by itself; of others we see the end."""
        if started is None:
            if link.leash is None:
                self._tell_in(LOOK_AGAIN_S, ref)  # it is about to write its record
            return
        if link.supervisor != started.pid:
            link.supervisor = started.pid
            self._marks = {**self._marks, started.pid: ref.mark}
        if link.pidfd is None:
            try:
                pidfd = os.pidfd_open(started.pid)
            except ProcessLookupError:
                self._tell_in(LOOK_AGAIN_S, ref)
                return
            if not rundir.lock_is_held(self._folder(ref)):  # then the pid may belong to another process by now
                os.close(pidfd)
                self._tell_in(0, ref)
                return
            link.pidfd = pidfd
        if link.leash is None:  # we never had one, or it closed a moment before the lock is free
            self._waiter.add(link.pidfd, lambda: self._ended_unheard(ref, link))
        self._deliver_stop(link)

    def _ended_unheard(self, ref: Ref, link: AttemptLink) -> None:
        """Note that a supervisor without a leash is gone: its pidfd is readable."""
        assert link.pidfd is not None
        self._waiter.remove(link.pidfd)
        self._changed.add(ref)

    def _deliver_stop(self, link: AttemptLink) -> None:
        if link.stop and link.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(link.pidfd, signal.SIGTERM)
            link.stop = False

    def _tell_in(self, seconds: float, ref: Ref) -> None:
        """Report an attempt as changed after this many seconds, unless it was forgotten by then."""

        def tell() -> bool:
            if ref in self._links:
                self._changed.add(ref)
            return ref in self._links

        self._waiter.after(seconds, tell)

    def _let_go(self, link: AttemptLink) -> None:
        """Close what connects us to a supervisor. From then on it may take another order, so forget its pid first."""
        if link.supervisor:
            self._marks = {pid: mark for pid, mark in self._marks.items() if pid != link.supervisor}
            link.supervisor = 0
        for descriptor in (link.pidfd, link.leash):
            if descriptor is not None:
                self._waiter.remove(descriptor)
                os.close(descriptor)
        link.pidfd = link.leash = None


def _labelled(gpu: Gpu, marks: dict[int, str]) -> Gpu:
    return replace(gpu, processes=tuple(_with_mark(one, marks) for one in gpu.processes)) if gpu.processes else gpu


def _with_mark(process: GpuProcess, marks: dict[int, str]) -> GpuProcess:
    return replace(process, of=marks.get(linux.nearest(process.pid, marks) or 0))
