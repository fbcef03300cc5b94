"""Says what is known of an attempt, from Slurm's answers and the files in its run directory. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from runner.engines.base import Facts
from runner.model import Exit, Reason

if TYPE_CHECKING:
    from runner.engines.slurm.commands import QueueEntry
    from runner.rundir import StartRecord

SETTLED_S = 6.0  # after Slurm has ended a job, its last files are visible everywhere by then, or never
HOST_GONE = frozenset(("NODE_FAIL", "BOOT_FAIL"))
_AT_ONCE = frozenset(("COMPLETED", "FAILED"))  # its own process has left: nothing more will come from the node


@dataclass(slots=True)
class Sighting:
    """What was seen of one attempt. Times are of this host's monotonic clock."""

    entry: QueueEntry | None = None  # as Slurm last showed it
    answered_at: float | None = None  # when Slurm last answered at all; None: not since we ask
    trouble: str | None = None  # why Slurm does not answer now
    gone_at: float | None = None  # since when Slurm says that it neither waits nor runs
    started: StartRecord | None = None
    exit: Exit | None = None
    beat_at: float | None = None  # when its sign of life last changed
    revoked: bool = False  # it can no longer start: nobody else may write started.json now
    refused: Exit | None = None  # Slurm will never take it
    complaint: str | None = None  # what sbatch said when nobody knows whether Slurm has taken it


class Judgement(NamedTuple):
    """The facts, and whether the attempt is to be kept from ever starting before they hold."""

    facts: Facts
    revoke: bool = False


def judge(seen: Sighting, now: float, forgotten_after_s: float) -> Judgement:
    """Return what is known. What Slurm forgets is gone only after a second answer that much later."""
    if seen.exit is not None:
        return Judgement(Facts(held=False, exit=seen.exit, started=seen.started, said=_word(seen.entry)))
    if seen.refused is not None:
        return Judgement(Facts(held=False, exit=seen.refused)) if seen.revoked else _unknown(seen, None, revoke=True)
    if seen.trouble or seen.answered_at is None:
        return _unknown(seen, seen.trouble or "Slurm was not asked yet")
    if seen.gone_at is None:
        return Judgement(Facts(held=True, started=seen.started, said=_in_words(seen)))
    return _judge_gone(seen, seen.gone_at, seen.answered_at, now, forgotten_after_s)


def _judge_gone(seen: Sighting, gone_at: float, answered_at: float, now: float, forgotten_after_s: float) -> Judgement:
    """Judge an attempt that neither waits nor runs in Slurm, and that has left no record of its end."""
    wait_s = _wait_s(seen.entry, forgotten_after_s, started=seen.started is not None)
    if now - max(gone_at, seen.beat_at or 0.0) < wait_s or answered_at < gone_at + wait_s:
        return _unknown(seen, f"{_gone(seen)}; looking again")
    if seen.started is None and not seen.revoked:
        return _unknown(seen, None, revoke=True)
    return Judgement(Facts(held=False, started=seen.started, said=_gone(seen), lost=_lost(seen)))


def _unknown(seen: Sighting, said: str | None, *, revoke: bool = False) -> Judgement:
    return Judgement(Facts(held=None, started=seen.started, said=said), revoke)


def _wait_s(entry: QueueEntry | None, forgotten_after_s: float, *, started: bool) -> float:
    if entry is None or entry.state in HOST_GONE:
        return forgotten_after_s
    if not started or entry.state in _AT_ONCE:
        return min(1.0, forgotten_after_s)
    return min(SETTLED_S, forgotten_after_s)


def _lost(seen: Sighting) -> Reason:
    return Reason.HOST if seen.entry is not None and seen.entry.state in HOST_GONE else Reason.SUPERVISOR


def _word(entry: QueueEntry | None) -> str | None:
    """Return what Slurm did to a job by its own hand, in its own word; None if it did nothing."""
    if entry is None or entry.live or entry.state in _AT_ONCE:
        return None
    return f"Slurm: {entry.state}"


def _gone(seen: Sighting) -> str:
    return _word(seen.entry) or seen.complaint or "Slurm no longer knows it"


def _in_words(seen: Sighting) -> str | None:
    entry = seen.entry
    if entry is None:
        return "being handed to Slurm"
    if seen.started is not None:
        return None
    if entry.state == "PENDING":
        reason = "" if entry.reason in ("None", "") else f": {entry.reason}"
        return f"in Slurm's queue{reason}"
    return f"Slurm: {entry.state.lower()}"
