"""Whole random schedules, each pass of which is checked against what must be true."""

import pytest

from tests.schedule_model import Schedule


@pytest.mark.parametrize("hundred", range(3))
def test_schedules(hundred):
    for seed in range(100 * hundred, 100 * (hundred + 1)):
        play(seed)


def test_schedules_under_a_stream_of_high_priority():
    for seed in range(20):
        play(seed, stream=True)


@pytest.mark.evidence
@pytest.mark.timeout(3600)
def test_ten_thousand_schedules():
    for seed in range(10_000):
        play(seed)
        if seed % 10 == 0:
            play(seed, stream=True)


def play(seed, stream=False):
    schedule = Schedule(seed, stream=stream)
    try:
        schedule.run()
    except AssertionError as error:
        raise AssertionError(f"schedule {seed}, stream {stream}, at {schedule.now:.0f} s: {error}") from error
