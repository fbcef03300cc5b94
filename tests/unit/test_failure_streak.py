from runner.model import Exit, State
from runner.watchdogs.failure_streak import Streak, after, broken, wait_s


def failed(**changes):
    return Exit(**{"started_at": "", "finished_at": "", "duration_s": 0.1, "exit_code": 1, **changes})


def streak_of(*ends, within_s=10.0):
    streak = Streak()
    for number, (state, end) in enumerate(ends, 1):
        streak = after(streak, number, state, end, within_s)
    return streak


def test_alike_failures_at_once_add_up():
    assert streak_of(*[(State.FAILED, failed())] * 3) == Streak("exit code 1", (1, 2, 3))


def test_another_way_of_failing_starts_anew():
    ends = [(State.FAILED, failed(exit_code=code)) for code in (1, 1, 2)]
    assert streak_of(*ends) == Streak("exit code 2", (3,))


def test_success_and_a_long_run_clear_it():
    assert streak_of((State.FAILED, failed()), (State.SUCCEEDED, failed(exit_code=0))) == Streak()
    assert streak_of((State.FAILED, failed()), (State.FAILED, failed(duration_s=11))) == Streak()


def test_a_stopped_job_says_nothing():
    fails = (State.FAILED, failed())
    ends = [fails, (State.CANCELLED, failed(signal=15)), (State.LOST, None), fails]
    assert streak_of(*ends).jobs == (1, 4)


def test_spawn_errors_and_signals_have_manners_of_their_own():
    end = failed(exit_code=None, spawn_error="command not found")
    shot = failed(exit_code=None, signal=11)
    assert streak_of((State.FAILED, end), (State.FAILED, shot)) == Streak("signal 11", (2,))


def test_it_waits_twice_as_long_after_each_try_in_vain():
    assert [wait_s(tries, 300.0) for tries in range(6)] == [300.0, 600.0, 1200.0, 2400.0, 3600.0, 3600.0]
    assert wait_s(3, 7200.0) == 7200.0


def test_a_kind_of_jobs_is_to_blame_if_it_failed_more_than_once():
    assert broken(["a", "a", "b"]) == ["a"]
    assert broken(["a", "b", "c"]) == []
