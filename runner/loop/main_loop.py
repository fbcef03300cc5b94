"""The runner: one loop over a list of steps.

It holds nothing that cannot be read again from the database and the run directories. So it may die at any
moment: jobs keep running, and the next runner continues where this one stopped.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from runner.config import home
from runner.engines.local.engine import LocalEngine
from runner.errors import OperatorError
from runner.loop.attempts import Attempts, Stops
from runner.loop.box_state import BoxState
from runner.loop.placement import Placement
from runner.loop.recording import Recording
from runner.loop.scheduler import Scheduler
from runner.loop.upkeep import Upkeep
from runner.loop.usage import Usage
from runner.probing.probes import Probes
from runner.processes import doorbell, process_lock
from runner.processes.doorbell import Doorbell
from runner.processes.interpreter import install_command
from runner.processes.waiter import Waiter
from runner.step import Context
from runner.store import restoring
from runner.store.backup import Backup
from runner.store.box import Box, BoxKey
from runner.store.connection import DATABASE, QueueLostError, StoreError, open_store
from runner.watchdogs.backup import BackupWatch
from runner.watchdogs.breaker import BreakerWatch
from runner.watchdogs.disk import DiskWatch
from runner.watchdogs.empty_queue import WhenEmpty
from runner.watchdogs.idle import IdleWatch
from runner.watchdogs.lost_gpus import LostGpuWatch
from runner.watchdogs.metrics import MetricWatch
from runner.watchdogs.time_limit_warning import TimeWatch

if TYPE_CHECKING:
    from runner.config.settings import Settings
    from runner.engines.base import Engine
    from runner.model import Exit, Job, State
    from runner.step import Step
    from runner.store.connection import Store

log = logging.getLogger(__name__)

TRY_AGAIN_S = 1.0
LOOK_AT_FILE_S = 1.0


class Runner:
    """Starts queued jobs on free GPUs and records how they end."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._leaving = False

    def run(self) -> None:
        """Run until a signal says to leave."""
        with contextlib.ExitStack() as stack:
            self._open(stack)
            log.info("runner pid %s up: state in %s", os.getpid(), self._settings.home)
            try:
                self._serve()
            except QueueLostError:
                restoring.rescue(self._context.store)
                raise
            self._save()
            log.info("runner leaves; running jobs go on")

    def _serve(self) -> None:
        gc.freeze()  # what is loaded by now stays
        due = True
        while not self._leaving:
            if due:
                self.tick()
            due = self._context.waiter.wait()

    def tick(self) -> None:
        """Let every step do what is due, in one transaction. Then let them act on it, and wake the others."""
        if os.fstat(self._lock).st_nlink == 0:
            raise OperatorError(f"The state folder {self._settings.home} was removed under the runner.")
        for step in self._steps:
            step.read()
        try:
            with self._context.store.transaction():
                self._context.begin()
                for step in self._steps:
                    step.tick()
        except QueueLostError:
            raise
        except StoreError as error:
            log.error("%s", error)
            for step in self._steps:
                step.rolled_back()
            self._context.waiter.tick_within(TRY_AGAIN_S)
            return
        for step in self._steps:
            step.committed()
        doorbell.ring(self._settings.home, home.BOT_BELL)
        self._backup.changed()

    def _on_end(self, job: Job, state: State | None, end: Exit | None, gone_at: float) -> None:
        for step in self._steps:
            step.on_end(job, state, end, gone_at)

    def _save(self) -> None:
        try:
            with self._context.store.transaction():
                for step in self._steps:
                    step.leave()
        except StoreError as error:
            log.error("%s", error)

    # -- starting up -------------------------------------------------------------------------------

    def _open(self, stack: contextlib.ExitStack) -> None:
        settings = self._settings
        os.umask(0o077)
        store = open_store(settings.home, backup_dir=settings.backup_dir)
        stack.callback(store.close)
        self._lock = stack.enter_context(process_lock.held(settings.home, home.RUNNER_LOCK))
        restoring.forget_rescued(os.path.join(settings.home, DATABASE))
        engine = _engine(settings, store)
        stack.callback(engine.close)
        self._backup = Backup(store, settings.backup_dir)
        stack.callback(self._backup.close)
        self._context = Context(settings, store, Waiter(), engine)
        self._steps = self._made_steps(self._context)
        bell = Doorbell(settings.home, home.RUNNER_BELL)
        stack.callback(bell.close)
        install_command(settings.home)
        self._listen(bell)

    def _made_steps(self, context: Context) -> tuple[Step, ...]:
        """Return the steps of a tick, in order."""
        probes, usage, breaker = Probes(context), Usage(context), BreakerWatch(context)
        attempts, placement = Attempts(context, usage, probes, self._on_end), Placement(context)
        recording = Recording(context)
        return (
            attempts,  # what has become of the running attempts
            usage,
            IdleWatch(context),
            TimeWatch(context),
            recording,
            MetricWatch(context, recording.take),
            LostGpuWatch(context),
            breaker,
            placement,
            Scheduler(context, placement, breaker, usage, probes, attempts),
            Stops(context, attempts),  # after all that may ask for a stop
            BoxState(context),
            WhenEmpty(context, self._backup),
            DiskWatch(context),
            BackupWatch(context, self._backup),
            Upkeep(context),
        )

    def _listen(self, bell: Doorbell) -> None:
        waiter = self._context.waiter
        waiter.add(bell.fileno(), bell.clear)
        self._context.engine.listen(waiter)
        self._look_at_file()
        hear, tell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
        waiter.add(hear, lambda: _discard(hear))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._leave())

    def _leave(self) -> None:
        """End the loop. Start nothing more and let jobs run."""
        self._leaving = True

    def _look_at_file(self) -> bool:
        """Raise if the database file is gone. Checked every second, even while nothing happens."""
        self._context.store.refuse_lost()
        self._context.waiter.after(LOOK_AT_FILE_S, self._look_at_file)
        return False


def _engine(settings: Settings, store: Store) -> Engine:
    if settings.engine == "slurm":
        from runner.engines.slurm.engine import SlurmEngine  # imported late: a box of its own does not need it

        return SlurmEngine(settings, Box(store).get(BoxKey.LINEAGE))
    return LocalEngine(settings.home, settings.gpus, settings.cpu_slots)


def _discard(descriptor: int) -> None:
    os.read(descriptor, 64)


def main(settings: Settings) -> None:
    """Run the runner in this process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.raiseExceptions = False
    try:
        Runner(settings).run()
    finally:
        _let_go_of_a_closed_terminal()


def _let_go_of_a_closed_terminal() -> None:
    """Ignore a closed terminal: after a hang-up nobody can read our output, and that is no failure."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
