"""The recovery table and the meaning of an end, row by row."""

import pytest

from runner import clock
from runner.lifecycle import REASONS, TRANSITIONS, Recovery, lost, outcome, recover
from runner.model import FINAL_STATES, Exit, Reason, State, Stop


def an_exit(**changes):
    return Exit(**{"started_at": "", "finished_at": "", "duration_s": 1.0, **changes})


A_STOP = Stop(reason=Reason.IDLE, by="idle watch", at=clock.now())
A_PUSH = Stop(reason=Reason.PREEMPTED, by="#7", at=clock.now())


@pytest.mark.parametrize(
    ("held", "has_exit", "has_started", "expected"),
    [
        (True, False, False, Recovery.ADOPT),
        (True, False, True, Recovery.ADOPT),
        (True, True, True, Recovery.LOOK_AGAIN),
        (False, True, True, Recovery.FINISHED),
        (False, False, True, Recovery.GONE),
        (False, False, False, Recovery.NEVER_RAN),
    ],
)
def test_recovery_table(held, has_exit, has_started, expected):
    assert recover(held=held, has_exit=has_exit, has_started=has_started) is expected


def test_a_removed_run_directory_of_a_running_job_is_never_a_reason_to_run_it_again():
    assert recover(held=False, has_exit=False, has_started=False, was_running=True) is Recovery.GONE


@pytest.mark.parametrize(
    ("end", "stop", "expected"),
    [
        (an_exit(exit_code=0), None, (State.SUCCEEDED, Reason.EXIT)),
        (an_exit(exit_code=0, stopped=True), A_STOP, (State.SUCCEEDED, Reason.EXIT)),
        (an_exit(exit_code=3), None, (State.FAILED, Reason.EXIT)),
        (an_exit(signal=11), None, (State.FAILED, Reason.SIGNAL)),
        (an_exit(signal=15, stopped=True), A_STOP, (State.CANCELLED, Reason.IDLE)),
        (an_exit(exit_code=1, stopped=True), None, (State.LOST, Reason.SUPERVISOR)),
        (an_exit(signal=9, stopped=True, timed_out=True), None, (State.CANCELLED, Reason.TIMEOUT)),
        (an_exit(exit_code=0, stopped=True, timed_out=True), None, (State.SUCCEEDED, Reason.EXIT)),
        (an_exit(spawn_error="no such file"), None, (State.FAILED, Reason.SPAWN)),
        # it saved its state and left: that is no success of what it was to do
        (an_exit(exit_code=0, stopped=True), A_PUSH, (State.CANCELLED, Reason.PREEMPTED)),
        (an_exit(signal=9, stopped=True), A_PUSH, (State.CANCELLED, Reason.PREEMPTED)),
        (an_exit(exit_code=0), A_PUSH, (State.SUCCEEDED, Reason.EXIT)),
        # its time was up, and it was leaving already when it was to make room
        (an_exit(signal=15, stopped=True, timed_out=True), A_PUSH, (State.CANCELLED, Reason.TIMEOUT)),
        # it failed by itself while the request to stop was still on its way
        (an_exit(exit_code=3), A_STOP, (State.FAILED, Reason.EXIT)),
    ],
)
def test_outcome(end, stop, expected):
    assert outcome(end, stop) == expected


def test_who_is_killed_while_making_room_has_not_succeeded_by_saving_its_state():
    killed = Stop(reason=Reason.USER, by="ada", at=clock.now())
    saved, done = an_exit(exit_code=0, stopped=True), an_exit(exit_code=0)
    assert outcome(saved, killed, preempted=True) == (State.CANCELLED, Reason.USER)
    assert outcome(done, killed, preempted=True) == (State.SUCCEEDED, Reason.EXIT)


def test_lost_tells_a_reboot_from_a_killed_supervisor():
    assert lost("a", "b") == (State.LOST, Reason.HOST)
    assert lost("a", "a") == (State.LOST, Reason.SUPERVISOR)


def test_every_final_state_has_its_reasons_and_is_never_left():
    assert set(REASONS) == FINAL_STATES
    for state in FINAL_STATES:
        assert not TRANSITIONS[state]
    assert State.QUEUED not in TRANSITIONS[State.SUCCEEDED]
    assert State.RUNNING not in TRANSITIONS[State.QUEUED]
