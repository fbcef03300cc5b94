"""Slurm's own commands as typed calls. Each may take half a minute if the controller is away: call them in a thread.

Slurm hands out the same job number again after a crash, so jobs are known by the name that we give them.
"""

from __future__ import annotations

import getpass
import os
import re
import subprocess
from typing import NamedTuple

from runner.errors import JobError, TransientError

LIMIT_S = 30.0  # a dead controller takes 18 s to say so
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "SLURM_CONF", "TMPDIR")
_FORMAT = "%i|%T|%r|%N|%j"  # the name last: it may contain anything
# what sbatch says where another try will not help; the rest is tried again
_REFUSED = re.compile(
    r"invalid|not permitted|not available|never|unknown|unrecognized|exceed|time limit|access/permission", re.I
)
_MAY_PASS = re.compile(r"submit limit|timed out|contact|connect|temporar|MaxSubmit|QOSMax|AssocMax", re.I)
LIVE = frozenset(
    ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "RESIZING", "SIGNALING", "STAGE_OUT",
     "STOPPED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
)  # fmt: skip


class QueueEntry(NamedTuple):
    """A job as Slurm knows it."""

    number: str
    state: str
    reason: str
    node: str

    @property
    def live(self) -> bool:
        """Return whether it waits or runs."""
        return self.state in LIVE


class SlurmNode(NamedTuple):
    """A host of the cluster."""

    name: str
    state: str
    partitions: tuple[str, ...]
    gpus: tuple[tuple[str, int], ...]  # type and count
    used: frozenset[int]  # indices that jobs of anybody hold
    cpus: int
    ram_mib: int

    @property
    def usable(self) -> bool:
        """Return whether Slurm may start jobs there, now or when others have left."""
        return not any(word in self.state for word in ("DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "MAINT"))


def call(*words: str, given: str = "") -> str:
    """Run one of Slurm's commands and return what it prints. Raise TransientError if it fails or takes too long."""
    environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
    try:
        done = subprocess.run(
            words, input=given, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environ, cwd="/",
            start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TransientError(f"{words[0]} did not answer within {LIMIT_S:.0f} s") from None
    except OSError as error:
        raise TransientError(f"{words[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise TransientError(_complaint(done.stderr) or f"{words[0]} failed with exit code {done.returncode}")
    return done.stdout


def _complaint(text: str) -> str:
    lines = [line.partition("error: ")[2] or line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:500] if lines else ""


def submit(options: list[str], script: str) -> str:
    """Hand a job to Slurm and return its number.

    Raise JobError if Slurm will never take it, TransientError if nobody knows whether it has taken it.
    """
    try:
        return call("sbatch", "--parsable", *options, given=script).strip().partition(";")[0]
    except TransientError as error:
        said = str(error)
        if _REFUSED.search(said) and not _MAY_PASS.search(said):
            raise JobError(f"Slurm refuses it: {said}") from error
        raise


def queue(prefix: str) -> dict[str, QueueEntry]:
    """Return this account's jobs whose names begin with this, by name: those that wait, run, or ended lately."""
    entries: dict[str, QueueEntry] = {}
    for line in call("squeue", "-h", "-t", "all", "-u", getpass.getuser(), "-o", _FORMAT).splitlines():
        *parts, name = line.split("|", 4)
        if len(parts) == 4 and name.startswith(prefix):
            entry = QueueEntry(*parts)
            if name not in entries or entry.live:
                entries[name] = entry
    return entries


def stop(name: str, *, started: bool) -> None:
    """Stop a job: ask its supervisor if it runs, take it out of the queue if it waits."""
    if started:
        call("scancel", "--quiet", "--batch", "--signal=TERM", f"--name={name}", f"--user={getpass.getuser()}")
    else:
        cancel(name)


def cancel(name: str) -> None:
    """Let Slurm end a job with its own means."""
    call("scancel", "--quiet", f"--name={name}", f"--user={getpass.getuser()}")


def nodes() -> list[SlurmNode]:
    """Return the hosts of the cluster."""
    return [_node(line) for line in call("scontrol", "-o", "-d", "show", "nodes").splitlines() if line.strip()]


def _node(line: str) -> SlurmNode:
    fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
    gpus = [
        parts for one in _outer_commas(fields.get("Gres", "")) if (parts := one.split("(")[0].split(":"))[0] == "gpu"
    ]
    return SlurmNode(
        fields["NodeName"],
        fields.get("State", "UNKNOWN"),
        tuple(fields.get("Partitions", "").split(",")),
        tuple((":".join(parts[1:-1]), int(parts[-1])) for parts in gpus if parts[-1].isdigit()),
        frozenset(
            number for text in re.findall(r"IDX:([\d,-]+)", fields.get("GresUsed", "")) for number in _numbers(text)
        ),
        int(fields.get("CPUTot", 0)),
        int(fields.get("RealMemory", 0)),
    )


def _outer_commas(text: str) -> list[str]:
    """Split at the commas outside of parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _numbers(text: str) -> list[int]:
    """Return the numbers in a list like 0-2,5."""
    ranges = [part.split("-") for part in text.split(",") if part]
    return [number for ends in ranges for number in range(int(ends[0]), int(ends[-1]) + 1)]
