"""The engine of a Slurm cluster: each attempt is one batch job, and Slurm decides where and when it starts.

Run directories are on a folder that all nodes see. Everything that may hang is done by the threads of `watcher`.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from runner import clock, rundir
from runner.engines.base import Can, Facts, Node
from runner.engines.local.progress_process import ProgressReaders
from runner.engines.slurm import shared_folder
from runner.engines.slurm.cluster_gpus import cluster_gpus
from runner.engines.slurm.watcher import Watcher
from runner.errors import OperatorError
from runner.gpu.published import line_of, publish
from runner.model import Snapshot
from runner.processes import linux
from runner.progress.pace import Progress

if TYPE_CHECKING:
    from collections.abc import Collection

    from runner.config.settings import Settings
    from runner.engines.base import Order
    from runner.model import Ref
    from runner.processes.waiter import Waiter
    from runner.rundir import ProgressRecord

ALL = 100_000  # as many as there are
PUBLISH_EVERY_S = 5.0
READ_OUTPUT_EVERY_S = 2.0


class SlurmEngine:
    """Runs attempts through Slurm."""

    can = Can(places=True)

    def __init__(self, settings: Settings, lineage: str) -> None:
        refuse_unsuitable(settings)
        assert settings.shared is not None
        shared_folder.link(settings.home, settings.shared, lineage)
        self._home, self._ahead = settings.home, settings.slurm_ahead
        self._run_root = settings.run_root
        self._hear, self._tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._readers = ProgressReaders(settings.home)
        self._watcher = Watcher(settings, lineage, self._on_news)
        self._published: tuple[str | None, float | None] | None = None
        self._published_at = 0.0

    def listen(self, waiter: Waiter) -> None:
        """Register everything that wakes the loop, and begin to watch."""
        self._waiter = waiter
        self._readers.listen(waiter)
        waiter.add(self._hear, self._woken)
        self._watcher.begin()
        self._read_output()

    def close(self) -> None:
        """Hand nothing more to Slurm. What it has goes on."""
        self._watcher.close()
        self._readers.close()
        self._waiter.remove(self._hear)
        os.close(self._hear)
        self._hear = -1
        os.close(self._tell)

    def _on_news(self) -> None:
        """Wake the loop. Called by the threads."""
        try:
            os.write(self._tell, b"!")
        except OSError:  # it is closed, or already full of wake-ups
            return

    def _woken(self) -> None:
        os.read(self._hear, 4096)
        self._publish()

    # -- the cluster -------------------------------------------------------------------------------

    def nodes(self) -> tuple[Node, ...]:
        """Return one place for all hosts: which of them an attempt gets is Slurm's choice."""
        watcher, beats = self._watcher, self._watcher.beats()
        gpus = tuple(gpu for beat in beats.values() for gpu in beat.gpus)
        simulated = any(beat.simulated for beat in beats.values())
        snapshot = Snapshot(at=clock.text(clock.now()), boot_id="", simulated=simulated, gpus=gpus)
        ahead = 0 if watcher.trouble else ALL if self._ahead is None else self._ahead
        return (Node(None, snapshot, watcher.trouble, "", ahead),)

    def read_gpus(self) -> None:
        """Do nothing: the nodes read their GPUs all the time."""

    def set_period(self, seconds: float) -> None:
        """Do nothing: the nodes read their GPUs all the time."""

    def _publish(self) -> None:
        """Leave the GPUs of the cluster where people's commands find them, at once if Slurm's state has changed."""
        now, watcher = time.monotonic(), self._watcher
        state = watcher.trouble, watcher.nodes_at
        if state == self._published and now < self._published_at + PUBLISH_EVERY_S:
            return
        self._published, self._published_at = state, now
        beats = watcher.beats().values()
        snapshot = Snapshot(
            at=clock.text(clock.now()), boot_id=linux.boot_id(), simulated=any(beat.simulated for beat in beats),
            gpus=cluster_gpus(watcher.nodes, beats, now), trouble=watcher.trouble,
        )  # fmt: skip
        publish(self._home, line_of(snapshot))

    # -- attempts ----------------------------------------------------------------------------------

    def start(self, order: Order) -> None:
        """Have an attempt handed to Slurm. Until that is done, it is found by its name or counts as never started."""
        self._watcher.track(order.ref, order)

    def look(self, refs: Collection[Ref]) -> dict[Ref, Facts]:
        """Return what is known of these attempts."""
        return {ref: self._look(ref) for ref in refs}

    def _look(self, ref: Ref) -> Facts:
        tracked = self._watcher.track(ref)
        facts = tracked.facts or Facts(held=None, said="being looked for")
        if facts.exit is not None:
            self._readers.ended(ref, tracked.folder, printed=facts.exit.output_bytes > 0)
        elif facts.started is not None:
            self._readers.expect(ref, tracked.folder)
        return facts

    def news(self) -> Collection[Ref]:
        """Return the attempts that have changed since the last call."""
        return self._watcher.news()

    def stop(self, ref: Ref) -> None:
        """Take an attempt out of Slurm's queue, or have its supervisor stop it."""
        self._watcher.stop(ref)

    def extend(self, ref: Ref, limit_s: float) -> None:
        """Write the new limit where the supervisor reads it. Slurm's own limit stays as it is."""
        rundir.raise_limit(self._folder(ref), ref.run_id, limit_s)

    def sweep(self, ref: Ref) -> bool:  # noqa: ARG002
        """Return True: what a job leaves on its node, our process there ends, or Slurm does."""
        return True

    def moved_bytes(self, ref: Ref) -> int | None:
        """Return how many bytes its processes have read and written."""
        beat = self._watcher.beats().get(ref)
        return beat.moved_bytes if beat else None

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
        """Watch an attempt no longer."""
        self._watcher.forget(ref)
        self._readers.forget(ref)

    def _folder(self, ref: Ref) -> str:
        return rundir.folder_of(self._run_root, ref.job_id, ref.attempt)

    def _read_output(self) -> bool:
        """Have all output read from time to time, since a network folder tells of no changes. Publish the GPUs."""
        self._readers.read_now()
        self._publish()
        self._waiter.after(READ_OUTPUT_EVERY_S, self._read_output)
        return False


def refuse_unsuitable(settings: Settings) -> None:
    """Raise OperatorError for settings that cannot work with Slurm."""
    import shutil

    if os.getuid() == 0:
        raise OperatorError("With Slurm, run nightshift as an ordinary account: Slurm would run every job as root.")
    if settings.shared is None:
        raise OperatorError("NIGHTSHIFT_ENGINE=slurm needs NIGHTSHIFT_SHARED: a folder that all nodes of Slurm see.")
    if settings.slots_per_gpu > 1:
        raise OperatorError("With Slurm a GPU belongs to one job. Set NIGHTSHIFT_SLOTS_PER_GPU=1, or leave it out.")
    for command in ("sbatch", "squeue", "scancel", "scontrol"):
        if shutil.which(command) is None:
            raise OperatorError(f"{command} is not in the PATH. Start nightshift on a host where Slurm's commands are.")
