"""The legal ways between states, and what an attempt's end means. Pure."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from runner.model import FINAL_STATES, Reason, State

if TYPE_CHECKING:
    from runner.model import Exit, Stop

# docs/architecture.md draws this table; a test compares the two.
TRANSITIONS: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.STARTING, State.CANCELLED}),
    # a supervisor that never executed the job gives it back; a very short job is seen only when it is over
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


def may_become(old: State, new: State) -> bool:
    """Whether a job in `old` may go to `new`."""
    return new in TRANSITIONS[old]


def outcome(end: Exit, stop: Stop | None, *, pushed_aside: bool = False) -> tuple[State, Reason]:
    """What an attempt's end means for its job.

    Exit 0 is success even if a stop was asked for. A stop counts only if it had begun before the
    program ended: one that failed by itself while the request was under way has failed. One that was pushed aside
    saves its state and leaves, often with 0: that it came to its end nobody can tell, so it is not taken for success.
    Who was leaving already, because its time was up, is not tried again. `pushed_aside`: it was to make room before
    somebody asked for more.
    """
    if end.spawn_error is not None:
        return State.FAILED, Reason.SPAWN
    if end.stopped and not end.timed_out and stop is not None and (pushed_aside or stop.reason is Reason.PREEMPTED):
        return State.CANCELLED, stop.reason
    if end.exit_code == 0:
        return State.SUCCEEDED, Reason.EXIT
    if end.timed_out:
        return State.CANCELLED, Reason.TIMEOUT
    if end.stopped:
        # nobody asked us: the host or its container is going down
        return (State.CANCELLED, stop.reason) if stop else (State.LOST, Reason.SUPERVISOR)
    return State.FAILED, Reason.SIGNAL if end.signal is not None else Reason.EXIT


def lost(boot_id_then: str, boot_id_now: str) -> tuple[State, Reason]:
    """What became of an attempt whose supervisor is gone without an exit record."""
    return State.LOST, Reason.HOST if boot_id_then != boot_id_now else Reason.SUPERVISOR


class Recovery(Enum):
    """What to do about an attempt, from what can be seen of it."""

    ADOPT = "its supervisor is alive"
    LOOK_AGAIN = "its supervisor is leaving"
    FINISHED = "it has ended"
    GONE = "its supervisor was killed, or the power went"
    NEVER_RAN = "it was never executed"


def recover(*, held: bool, has_exit: bool, has_started: bool, was_running: bool = False) -> Recovery:
    """The recovery table, total in its three facts; nothing is inferred from time-outs.

    `was_running`: the queue has already recorded the start. Then a missing started.json only means that
    somebody removed the run directory, and the job must not run twice for that.
    """
    if held:
        return Recovery.LOOK_AGAIN if has_exit else Recovery.ADOPT
    if has_exit:
        return Recovery.FINISHED
    return Recovery.GONE if has_started or was_running else Recovery.NEVER_RAN
