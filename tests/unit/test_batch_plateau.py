from random import Random

import pytest

from runner.batch import Plateau

STEP_S = 0.5


def ends_at(memory, busy=lambda at: 97, *, until=120, plateau=None):
    """When the probe may end, and the peak seen by then."""
    plateau = plateau or Plateau()
    at = 0.0
    while at <= until:
        if plateau.add(at, memory(at), busy(at)):
            return at, plateau.peak_mib
        at += STEP_S
    return None, plateau.peak_mib


def steps(*levels):
    """Memory by time: the last level whose time has come."""
    return lambda at: [mib for since, mib in ((-100, 0), *levels) if since <= at][-1]


TRAINING = steps((3, 420), (4, 900), (5, 2000), (6, 8000), (6.5, 8900))


def test_it_ends_some_seconds_after_the_last_growth():
    at, peak = ends_at(TRAINING)
    assert peak == 8900
    assert 6.5 + 10 <= at <= 6.5 + 12


def test_the_clock_starts_with_the_first_memory():
    assert ends_at(lambda at: 0.0) == (None, 0.0)
    at, peak = ends_at(lambda at: TRAINING(at - 90))
    assert peak == 8900
    assert at > 96.5


def test_base_memory_does_not_start_it():
    assert ends_at(lambda at: 700.0, plateau=Plateau(base_mib=700))[0] is None


def test_compiling_is_no_plateau():
    memory = steps((3, 420), (5, 2000), (65, 8900), (66, 9900))
    at, peak = ends_at(memory, busy=lambda at: 97 if at >= 65 else 0)
    assert peak == 9900
    assert at < 85  # and the long pause before is not held against it


def test_where_utilisation_is_not_told_it_waits_longer():
    known, _ = ends_at(TRAINING)
    unknown, _ = ends_at(TRAINING, busy=lambda at: None)
    assert unknown >= known + 9


def test_a_pause_between_growths_asks_for_a_longer_quiet():
    memory = steps((3, 2000), (11, 8000))
    at, peak = ends_at(memory)
    assert peak == 8000
    assert at >= 11 + 3 * 7.5


def test_the_allocators_noise_is_not_growth_but_counts_for_the_peak():
    chance = Random(1)
    at, peak = ends_at(lambda at: TRAINING(at) + (chance.uniform(0, 80) if at > 7 else 0))
    assert at < 20
    assert 8900 < peak <= 8980


def test_creeping_growth_is_growth():
    assert ends_at(lambda at: 1000 + 40 * at if at > 2 else 0.0, until=60)[0] is None


def test_a_gpu_that_works_half_of_the_time_takes_twice_as_long():
    at, _ = ends_at(TRAINING, busy=lambda at: 97 if int(at * 2) % 2 else 0)
    assert 25 <= at <= 29


def test_readings_that_stay_away_prove_nothing():
    plateau = Plateau()
    plateau.add(0.0, 8000, 97)
    assert not plateau.add(60.0, 8000, 97)
    assert not plateau.add(61.0, None, 97)


def test_how_long_it_took_to_settle_is_kept():
    plateau = Plateau()
    ends_at(steps((3, 2000), (7, 8000)), plateau=plateau)
    assert plateau.settled_s == pytest.approx(4.0)


def test_a_longer_quiet_may_be_asked_for():
    assert ends_at(TRAINING, plateau=Plateau(least_s=30))[0] >= 36


def test_what_an_earlier_probe_foretells_ends_it_sooner():
    sooner, peak = ends_at(steps((3, 2000), (6, 8000)), plateau=Plateau(least_s=4, expected_s=3))
    assert peak == 8000
    assert 6 + 4 <= sooner <= 6 + 5


def test_it_does_not_end_before_what_was_foretold_has_come():
    memory = steps((3, 2000), (4, 6000), (15, 8000))
    at, peak = ends_at(memory, plateau=Plateau(least_s=4, expected_s=8))
    assert peak == 8000
    assert at >= 15 + 11  # it took longer than foretold: as long again


def test_nothing_that_was_foretold_comes_and_it_waits_for_twice_as_long():
    at, _ = ends_at(steps((3, 8000)), plateau=Plateau(least_s=4, expected_s=8))
    assert at == pytest.approx(3 + 16)
