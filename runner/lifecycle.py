"""The legal changes of state, and what the end of an attempt means for its job. Pure."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from runner.model import FINAL_STATES, Reason, State

if TYPE_CHECKING:
    from runner.model import Exit, Stop

# docs/architecture.md draws this table; a test compares the two.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.STARTING, State.CANCELLED}),
    # to QUEUED: the supervisor never executed the job; to a final state: the job ended before we saw it running
    State.STARTING: frozenset({State.RUNNING, State.QUEUED}) | FINAL_STATES,
    # back to the queue for a new attempt
    State.RUNNING: frozenset({State.QUEUED}) | FINAL_STATES,
    **dict.fromkeys(FINAL_STATES, frozenset()),
}

REASONS: dict[State, frozenset[Reason]] = {
    State.SUCCEEDED: frozenset({Reason.EXIT}),
    State.FAILED: frozenset({Reason.EXIT, Reason.SIGNAL, Reason.OOM, Reason.SPAWN}),
    State.CANCELLED: frozenset(
        {Reason.USER, Reason.IDLE, Reason.HUNG, Reason.TIMEOUT, Reason.DEPENDENCY, Reason.PREEMPTED}
    ),
    State.LOST: frozenset({Reason.HOST, Reason.SUPERVISOR}),
}


def outcome(end: Exit, stop: Stop | None, *, preempted: bool = False) -> tuple[State, Reason]:
    """Return the final state and reason that an attempt's end means for its job.

    Exit 0 is success even if a stop was requested. A stop counts only if it had begun before the program ended:
    a program that failed by itself while the request was on its way has failed. A preempted job saves its state and
    exits, often with 0. Nothing shows whether it had finished its work, so exit 0 is then not success. A job that was
    already ending at its time limit does not count as preempted. `preempted`: the job was being preempted before
    another stop request replaced the reason.
    """
    if end.spawn_error is not None:
        return State.FAILED, Reason.SPAWN
    if end.stopped and not end.timed_out and stop is not None and (preempted or stop.reason is Reason.PREEMPTED):
        return State.CANCELLED, stop.reason
    if end.exit_code == 0:
        return State.SUCCEEDED, Reason.EXIT
    if end.timed_out or (end.hung_up and stop is None):
        return State.CANCELLED, Reason.TIMEOUT if end.timed_out else Reason.USER
    if end.stopped:
        # nobody asked for this stop: the host or its container is going down
        return (State.CANCELLED, stop.reason) if stop else (State.LOST, Reason.SUPERVISOR)
    return State.FAILED, Reason.SIGNAL if end.signal is not None else Reason.EXIT


def lost(boot_id_then: str, boot_id_now: str) -> tuple[State, Reason]:
    """Return the state and reason of an attempt whose supervisor is gone and left no exit record."""
    return State.LOST, Reason.HOST if boot_id_then != boot_id_now else Reason.SUPERVISOR


class Recovery(Enum):
    """What to do about an attempt, given its lock and its files."""

    WAIT = "nobody knows whether its supervisor is alive"
    ADOPT = "its supervisor is alive"
    LOOK_AGAIN = "its supervisor is leaving"
    FINISHED = "it has ended"
    GONE = "its supervisor was killed, or the power went"
    NEVER_RAN = "it was never executed"


def recover(*, held: bool | None, has_exit: bool, has_started: bool, was_running: bool = False) -> Recovery:
    """Return what to do about an attempt. Every combination of facts has an answer; none depends on a time-out.

    `was_running`: the queue has already recorded the start. Then a missing started.json only means that
    somebody removed the run directory, and the job must not run a second time because of that.
    """
    if held is None:
        return Recovery.WAIT
    if held:
        return Recovery.LOOK_AGAIN if has_exit else Recovery.ADOPT
    if has_exit:
        return Recovery.FINISHED
    return Recovery.GONE if has_started or was_running else Recovery.NEVER_RAN
