"""A night of seconds on the real runner, with everything the long ones are made of."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))  # benchmarks are not installed

from benchmarks.compressed import compressed, play
from benchmarks.night import CRASH, GPUS, OOM, Job, Night
from benchmarks.night_box import SHIPPED, Ours

LONG_S = 1000.0


@pytest.mark.timeout(120)
def test_what_became_of_each_job_and_how_much_of_it_counts():
    jobs = (
        Job(1, 0.0, 0.5),
        Job(2, 0.0, LONG_S, fault=CRASH, fault_s=0.5, exit_code=2),
        Job(3, 0.0, LONG_S, fault=OOM, fault_s=0.5),
        Job(4, 0.0, LONG_S, rank=1),  # is there when the power fails, and did not ask for more
        Job(5, 0.0, LONG_S, rank=1, mib=3_000, retries=True, saves_every_s=0.25),
        Job(6, 0.0, LONG_S, rank=-1, mib=12_000, filler=True, retries=True),  # has no room beside the neighbour
    )
    neighbours = tuple((gpu, 15.0, 18.0, 15_000) for gpu in range(GPUS))
    share, ends = play(Night(0, jobs, neighbours, reboot_s=8.0, length_s=20.0, boot_s=0.5))
    assert ends[1] == "SUCCEEDED EXIT"
    assert ends[2] == "FAILED EXIT"
    assert ends[3] == "FAILED OOM"
    assert ends[4] == "LOST HOST"
    assert ends[5] == "RUNNING"
    assert ends[6] == "FAILED OOM"
    assert 5.0 < share * GPUS * 20 < 20.0 + 0.5  # the first, and the fifth from its start to the morning


@pytest.mark.evidence
def test_the_real_runner_gets_as_much_done_as_is_computed():
    """Four hours in 24 minutes: what cannot be compressed costs ten times as much as in a night at its own pace."""
    night, hours = Night.of(8), 4.0
    share, ends = play(compressed(night, hours))
    computed = Ours(replace(night, length_s=hours * 3600), SHIPPED).share()
    print(f"\nthe real runner {100 * share:.1f} %, as computed {100 * computed:.1f} %, {len(ends)} jobs")
    assert computed - 0.06 < share < computed + 0.06
