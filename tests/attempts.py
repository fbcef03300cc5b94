"""Attempts without a runner: a job begins and ends as far as the queue is concerned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runner import clock, rundir
from runner.api import Queue
from runner.lifecycle import outcome
from runner.model import Reason, State
from tests.jobs import an_exit


def begin(queue: Queue, number: int, *gpus: str, output: bytes = b"") -> Path:
    """The job runs; its run directory."""
    leases = [(gpu, number) for gpu in gpus] or [("cpu", number)]
    attempt = queue.jobs.claim(number, leases, "boot")
    assert attempt is not None
    folder = Path(rundir.folder_of(queue.home, number, attempt))
    folder.mkdir(parents=True)
    (folder / rundir.OUTPUT).write_bytes(output)
    queue.jobs.started(queue.job(number), clock.text(clock.now()))
    return folder


def end(queue: Queue, number: int, usage: dict[str, Any] | None = None, **exit: Any) -> None:
    """The job's attempt is over, as its supervisor tells."""
    found, job = an_exit(**exit), queue.job(number)
    queue.jobs.ended(job, *outcome(found, job.stop), found, usage)


def lose(queue: Queue, number: int, reason: Reason) -> None:
    """Nobody knows what became of it."""
    queue.jobs.ended(queue.job(number), State.LOST, reason, None)
