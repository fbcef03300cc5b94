"""The engine's side of the sampler process: starts it, reads it, and replaces it when it dies or falls silent."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import TYPE_CHECKING

from runner.errors import OperatorError
from runner.gpu.published import publish_none
from runner.gpu.sampler_client import FIRST_ANSWER_S, SILENT_AFTER_S, SamplerClient

if TYPE_CHECKING:
    from runner.model import Snapshot
    from runner.processes.waiter import Waiter

log = logging.getLogger(__name__)

RESTART_AT_MOST_EVERY_S = 30.0


class Telemetry:
    """The latest readings of the GPUs. Starts the sampler and waits for its first reading."""

    def __init__(self, home: str, gpus: str) -> None:
        self._home, self._gpus = home, gpus
        self._waiter: Waiter | None = None
        self._checks = 0
        self._asked = self._answered = 0
        self._restart_wait_s = 0.5
        self._restart_at: float | None = None
        self._period_s = 1.0
        self.snapshot: Snapshot | None = None
        self._sampler: SamplerClient | None = None
        if gpus == "none":
            publish_none(home)
        else:
            self._start()
            self._wait_for_first()

    @property
    def pid(self) -> int | None:
        """Return the sampler's pid; None if none is running."""
        return self._sampler.process.pid if self._sampler else None

    def listen(self, waiter: Waiter) -> None:
        """Read the sampler when it has written something, and keep it alive."""
        self._waiter = waiter
        if self._sampler is not None:
            descriptor = self._sampler.fileno()
            waiter.add(descriptor, lambda: self._hear(descriptor))
        self._check()

    def _hear(self, descriptor: int) -> None:
        assert self._waiter is not None
        self.read()
        if self._sampler is None:
            self._waiter.remove(descriptor)
            self._check()

    def _check(self) -> bool:
        assert self._waiter is not None
        self._checks += 1
        latest = self._checks  # a newer timer makes earlier ones void
        if (after_s := self.keep_alive()) is not None and latest == self._checks:
            self._waiter.after(after_s, lambda: latest == self._checks and self._check())
        return False

    @property
    def trouble(self) -> str | None:
        """Return what is wrong with the sampler or the driver as a whole; None if they work or there are no GPUs."""
        if self._gpus == "none":
            return None
        if self._sampler is None:
            return "the GPU sampler is being restarted"
        silent_s = time.monotonic() - self._heard_at
        if silent_s > SILENT_AFTER_S:
            return f"the driver has not answered for {silent_s:.0f} s"
        return self.snapshot.trouble if self.snapshot else "no reading yet"

    @property
    def is_asked(self) -> bool:
        """Return whether a request is waiting for its answer."""
        return self._sampler is not None and self._asked != self._answered

    def ask(self) -> None:
        """Ask the sampler to read all GPUs now, unless a request is already waiting."""
        if not self.is_asked:
            self._asked += 1
            self._tell(f"sample {self._asked}")

    def set_period(self, seconds: float) -> None:
        """Set how many seconds pass between readings without a request."""
        if seconds != self._period_s:
            self._period_s = seconds
            self._tell(f"period {seconds}")

    def read(self) -> None:
        """Read what the sampler has written, and plan a restart if it died. Raise OperatorError if it cannot work."""
        if self._sampler is None:
            return
        try:
            while (snapshot := self._sampler.snapshot()) is not None:
                self._take(snapshot)
        except EOFError:
            self._restart("died")
        except OperatorError:
            self.close()
            raise

    def keep_alive(self) -> float | None:
        """Replace a dead or silent sampler. Return the seconds until the next call; None if there are no GPUs."""
        now = time.monotonic()
        if self._sampler is None and self._restart_at is not None:
            if now < self._restart_at:
                return self._restart_at - now
            try:
                self._start("--wait-for-driver")
            except OSError as error:
                self._restart(f"cannot be started ({error})")
                return self._restart_wait_s
            if self._waiter is not None:
                self.listen(self._waiter)
        if self._sampler is None:
            return None
        if now - self._heard_at > SILENT_AFTER_S + self._restart_wait_s:
            self._restart("is silent")
            return self._restart_wait_s
        return SILENT_AFTER_S

    def close(self) -> None:
        """End the sampler."""
        if self._sampler:
            self._sampler.close(patience_s=0.0)  # it may hang in the driver, and has nothing to clean up
            self._sampler = None

    def _start(self, *flags: str) -> SamplerClient:
        self._sampler = SamplerClient(self._home, self._gpus, *flags, start_new_session=True, cwd="/")
        self._heard_at = time.monotonic()
        self._asked = self._answered = 0
        self._tell(f"period {self._period_s}")
        return self._sampler

    def _wait_for_first(self) -> None:
        import select

        deadline = time.monotonic() + FIRST_ANSWER_S
        while self.snapshot is None and time.monotonic() < deadline:
            sampler = self._sampler
            if sampler is None:
                time.sleep(min(self._restart_wait_s, 2.0))  # it died at once: start another
                sampler = self._start()
            select.select([sampler], [], [], 1.0)
            self.read()
        if self.snapshot is None:
            self.close()
            raise OperatorError(
                f"The GPU driver gave no reading within {FIRST_ANSWER_S:.0f} s. Does nvidia-smi answer?"
            )

    def _take(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._heard_at = time.monotonic()
        self._restart_wait_s = 0.5
        if snapshot.answers is not None:
            self._answered = self._asked

    def _restart(self, why: str) -> None:
        log.warning("GPU sampler %s %s; starting another in %.1f s", self.pid, why, self._restart_wait_s)
        self.close()
        self._restart_at = time.monotonic() + self._restart_wait_s
        self._restart_wait_s = min(2 * self._restart_wait_s, RESTART_AT_MOST_EVERY_S)

    def _tell(self, line: str) -> None:
        if self._sampler:
            with contextlib.suppress(OSError):
                self._sampler.tell(line)
