from runner.forecast.estimates import Behind, starts_behind
from runner.forecast.simulation import Ends, Length


def sure(seconds):
    return Length(seconds, seconds)


def about(jobs, *ends):
    sooner, later = ends if len(ends) == 2 else ends * 2
    return {number: tuple(found) for number, found in starts_behind(jobs, sooner, later).items()}


def test_each_takes_what_comes_free_first():
    jobs = [Behind(1, 1, sure(100)), Behind(2, 1, sure(10)), Behind(3, 1, sure(10)), Behind(4, 1, sure(10))]
    assert about(jobs, Ends((5.0, 0.0), ())) == {1: (0, 0), 2: (5, 5), 3: (15, 15), 4: (25, 25)}


def test_one_that_takes_several_waits_for_the_last_of_them():
    jobs = [Behind(1, 2, sure(10)), Behind(2, 1, sure(1))]
    assert about(jobs, Ends((3.0, 7.0), ())) == {1: (7, 7), 2: (17, 17)}


def test_the_cpu_has_slots_of_its_own():
    jobs = [Behind(1, 1, sure(10)), Behind(2, 0, sure(10)), Behind(3, 0, sure(1))]
    assert about(jobs, Ends((0.0,), (4.0,))) == {1: (0, 0), 2: (4, 4), 3: (14, 14)}


def test_known_by_the_limit_only_is_a_bound_for_those_behind():
    jobs = [Behind(1, 1, Length(0.0, 60.0)), Behind(2, 1, sure(1))]
    assert about(jobs, Ends((10.0,), ())) == {1: (10, 10), 2: (None, 70)}


def test_nothing_is_said_behind_what_may_never_end():
    jobs = [Behind(1, 1, Length()), Behind(2, 1, sure(1)), Behind(3, 2, sure(1)), Behind(4, 1, sure(1))]
    assert about(jobs, Ends((0.0, 1.0), ())) == {1: (0, 0), 2: (None, 1)}
