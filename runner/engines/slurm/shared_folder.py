"""The folder that all nodes see: run directories and snapshots are there, and the state folder links to them."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from runner import rundir
from runner.errors import OperatorError
from runner.model import Gpu, Record

if TYPE_CHECKING:
    from collections.abc import Mapping

STOP = "stop"  # in a run directory: stop the attempt, or never start it
BEAT = "node.json"  # in a run directory: the node's sign of life, with its readings
LINKED = ("runs", "snapshots")
OWNER = "queue"
TORN_S = 1.0  # a record that is not whole after this long never will be


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat(Record):
    """The content of node.json: what the node says every few seconds while the attempt is there."""

    run_id: str
    number: int  # it grows: clocks of hosts differ
    gpus: tuple[Gpu, ...] = ()
    age_s: float = 0.0  # of the readings
    simulated: bool = False
    moved_bytes: int = 0
    trouble: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return all fields in JSON's own types."""
        return {**super(Beat, self).to_json(), "gpus": [gpu.to_json() for gpu in self.gpus]}

    def received(self, now: float) -> Beat:
        """Return it with the times of the readings on this host's monotonic clock."""
        return replace(self, gpus=tuple(replace(gpu, sampled_at=now - self.age_s) for gpu in self.gpus))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Beat:
        """Build it from the output of to_json."""
        return super(Beat, cls).from_json({**data, "gpus": tuple(map(Gpu.from_json, data.get("gpus", ())))})


def write_beat(folder: str, beat: Beat) -> None:
    """Replace the sign of life. Raise OSError if the folder cannot be written."""
    rundir.write_atomically(os.path.join(folder, BEAT), json.dumps(beat.to_json()).encode())


def read_beat(folder: str, run_id: str) -> Beat | None:
    """Read the sign of life of a run; None if there is none."""
    data = rundir.read(folder, BEAT)
    try:
        return Beat.from_json(data) if data and data.get("run_id") == run_id else None
    except (TypeError, KeyError, ValueError, AttributeError):
        return None


def ask_to_stop(folder: str) -> None:
    """Leave the request to stop where the node looks for it. It works even if Slurm does not answer."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.close(os.open(os.path.join(folder, STOP), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def is_asked_to_stop(folder: str) -> bool:
    """Return whether the attempt is to stop."""
    return os.path.exists(os.path.join(folder, STOP))


def revoke(folder: str, run_id: str) -> bool:
    """Make sure that an attempt can never start. Return False if it has started after all.

    started.json can be created only once: the first to do so, this process or the node, decides.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    try:
        rundir.write_started(folder, rundir.StartRecord(pid=0, boot_id="", at=""))
    except FileExistsError:
        if (record := rundir.read_started(folder)) is None:
            time.sleep(TORN_S)
            record = rundir.read_started(folder)
        # a torn record, or one of another run: nothing of this one was executed, and nothing can be now
        return record is None or record.run_id != run_id
    return True


def link(home: str, shared: str, lineage: str) -> None:
    """Let the state folder's run directories and snapshots be in the shared folder, which is then this queue's own."""
    os.makedirs(shared, mode=0o700, exist_ok=True)
    path = os.path.join(shared, OWNER)
    try:
        with open(path, encoding="utf-8") as file:
            owner = file.read().strip()
    except FileNotFoundError:
        rundir.write_atomically(path, f"{lineage}\n".encode())
        owner = lineage
    if owner != lineage:
        raise OperatorError(
            f"{shared} belongs to another queue. Give each state folder a shared folder of its own (NIGHTSHIFT_SHARED)."
        )
    for name in LINKED:
        _link(os.path.join(home, name), os.path.join(shared, name))


def _link(here: str, there: str) -> None:
    os.makedirs(there, mode=0o700, exist_ok=True)
    if os.path.islink(here) and os.readlink(here) == there:
        return
    if os.path.islink(here):
        os.unlink(here)
    elif os.path.isdir(here):
        try:
            os.rmdir(here)
        except OSError:
            raise OperatorError(
                f"{here} has files of jobs that ran on this host. Use a new state folder for Slurm (NIGHTSHIFT_HOME),"
                f" or move what is in it to {there}."
            ) from None
    os.symlink(there, here)


def check(shared: str) -> float:
    """Try what run directories need: O_EXCL and rename. Return the seconds that it took. Raise OSError if it fails."""
    began, path = time.monotonic(), os.path.join(shared, f".try-{os.getpid()}")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            pass
        else:
            raise OSError(0, "a file could be created twice with O_EXCL")
        rundir.write_atomically(path, b"{}")
        rundir.sync_folder(shared)
    finally:
        if os.path.exists(path):
            os.unlink(path)
    return time.monotonic() - began
