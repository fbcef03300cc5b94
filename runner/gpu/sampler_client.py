"""A sampler process and its pipes. Checks and tests wait for its answers; the runner's Telemetry does not."""

from __future__ import annotations

import collections
import contextlib
import os
import select
import subprocess
import time
from typing import TYPE_CHECKING, Any

from runner.errors import TransientError
from runner.gpu.published import snapshot_in
from runner.processes.interpreter import python_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.model import Snapshot

CHUNK = 1 << 20
FIRST_ANSWER_S = 60.0  # a driver without persistence mode takes seconds per GPU to wake
SILENT_AFTER_S = 10.0


class SamplerClient:
    """Starts a sampler process and talks to it. A context manager."""

    def __init__(self, home: str, gpus: str, *flags: str, **options: Any) -> None:
        """Start the sampler. `options` are those of Popen."""
        self.process = subprocess.Popen(
            python_command("runner.gpu.sampler", home, gpus, *flags),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            **options,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._requests, self._answers = self.process.stdin, self.process.stdout
        self._buffer = b""
        self._lines: collections.deque[bytes] = collections.deque()
        self._asked = 0

    def fileno(self) -> int:
        """Return the descriptor that is readable when the sampler has written something."""
        return self._answers.fileno()

    def tell(self, line: str) -> None:
        """Send one request line. Raise OSError if the sampler is gone."""
        self._requests.write(line.encode() + b"\n")

    def ask(self) -> int:
        """Ask for a snapshot. Return the number that it will carry. Raise OSError if the sampler is gone."""
        self._asked += 1
        self.tell(f"sample {self._asked}")
        return self._asked

    def sample(self, timeout_s: float = 10.0) -> Snapshot:
        """Ask for a snapshot and return it. Its readings begin after this call."""
        number = self.ask()
        return self.until(lambda snapshot: snapshot.answers == number, timeout_s)

    def until(self, holds: Callable[[Snapshot], bool], timeout_s: float = 10.0) -> Snapshot:
        """Return the next snapshot for which `holds` is true.

        Raises TransientError if none comes in time, OperatorError if the sampler cannot work at all.
        """
        deadline = time.monotonic() + timeout_s
        newest = None
        with contextlib.suppress(EOFError):
            while (snapshot := self.snapshot(deadline - time.monotonic())) is not None:
                newest = snapshot
                if holds(newest):
                    return newest
        raise TransientError(f"The GPU sampler sent no such snapshot in {timeout_s:.0f} s; the last was {newest}.")

    def snapshot(self, wait_s: float = 0.0) -> Snapshot | None:
        """Return the next snapshot; None if none comes in time.

        Raises EOFError if the sampler has ended, OperatorError if it cannot work at all.
        """
        deadline = time.monotonic() + wait_s
        while not self._lines:
            if not select.select([self], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            data = os.read(self.fileno(), CHUNK)
            if not data:
                raise EOFError
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            self._lines.extend(lines)
        return snapshot_in(self._lines.popleft())

    def close(self, patience_s: float = 2.0) -> None:
        """End the sampler: close its pipes, and kill it if it does not end in time."""
        for pipe in (self._requests, self._answers):
            with contextlib.suppress(OSError):
                pipe.close()
        try:
            self.process.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=max(patience_s, 0.2))  # one that hangs in the driver is not waited for

    def __enter__(self) -> SamplerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
