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


def test_failures_with_the_same_error_line_are_alike_whatever_numbers_paths_and_addresses_it_has():
    lines = ["CUDA error 700 at 0x7f00aa in /home/a/job-1/k.cu", "CUDA error 719 at 0x7f11bb in /home/b/job-22/k.cu"]
    streak = streak_of(*[(State.FAILED, failed(error=line)) for line in lines])
    assert (streak.jobs, streak.error) == ((1, 2), lines[1])


def test_different_error_lines_with_one_exit_code_are_not_alike():
    lines = ["KeyError: 'lr'", "FileNotFoundError: data.csv", None]
    ends = [(State.FAILED, failed(error=line)) for line in lines]
    assert [streak_of(*ends[:count]).jobs for count in (1, 2, 3)] == [(1,), (2,), (3,)]


def test_one_error_line_with_another_reason_is_not_alike():
    ends = [
        failed(error="Killed"),
        failed(error="Killed", exit_code=None, signal=9),
        failed(error="Killed", memory="host"),
    ]
    assert streak_of(*[(State.FAILED, end) for end in ends]).jobs == (3,)


def test_a_streak_that_an_older_version_stored_goes_on():
    assert after(Streak("exit code 1", (1, 2)), 3, State.FAILED, failed(), 10.0).jobs == (1, 2, 3)
