"""A blocking client with its own sampler process, for checks and tests. The runner's client is in telemetry.py."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from typing import TYPE_CHECKING, Any

from runner.errors import OperatorError, TransientError
from runner.model import Snapshot
from runner.processes.interpreter import python_command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class SamplerClient:
    """Starts a sampler process and talks to it. A context manager."""

    def __init__(self, home: str, gpus: str, *flags: str, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            python_command("runner.gpu.sampler", home, gpus, *flags),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            bufsize=0,
        )
        self._buffer = b""
        self._asked = 0

    def tell(self, line: str) -> None:
        """Send one request line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")

    def sample(self, timeout_s: float = 10.0) -> Snapshot:
        """Ask for a snapshot and return it. Its readings begin after this call."""
        self._asked += 1
        number = self._asked
        self.tell(f"sample {number}")
        return self.until(lambda snapshot: snapshot.answers == number, timeout_s)

    def until(self, holds: Callable[[Snapshot], bool], timeout_s: float = 10.0) -> Snapshot:
        """Return the next snapshot for which `holds` is true.

        Raises TransientError if none comes in time, OperatorError if the sampler cannot work at all.
        """
        deadline = time.monotonic() + timeout_s
        newest = None
        while (said := self.line(deadline)) is not None:
            if "fatal" in said:
                raise OperatorError(str(said["fatal"]))
            newest = Snapshot.from_json(said)
            if holds(newest):
                return newest
        raise TransientError(f"The sampler gave no such snapshot in {timeout_s:.0f} s; the last was {newest}.")

    def line(self, deadline: float) -> dict[str, Any] | None:
        """Return the next line, parsed; None if none comes by the deadline or the sampler has ended."""
        assert self.process.stdout is not None
        handle = self.process.stdout.fileno()
        while b"\n" not in self._buffer:
            rest_s = deadline - time.monotonic()
            if rest_s <= 0 or not select.select([handle], [], [], rest_s)[0]:
                return None
            data = os.read(handle, 1 << 16)
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        parsed: dict[str, Any] = json.loads(line)
        return parsed

    def close(self) -> None:
        """End the sampler: close its pipes, and kill it if it is still there after 2 s."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> SamplerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
