"""The tables of docs/nights.md, and what they show."""

import math
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))  # benchmarks are not installed

from benchmarks.compressed import compressed
from benchmarks.night import CRASH, GPUS, IDLES, OOM, SPINS, Night
from benchmarks.night_box import SHIPPED, Ours
from benchmarks.night_job import progress_lines
from benchmarks.night_rules import hung_s, idle_stop_s, progress_at
from benchmarks.nights import DOCUMENT, NIGHTS, line_of, of_oracle, row, rows, written
from runner.idle import hung_rule
from runner.progress.reader import ProgressReader


def test_the_document_shows_this_night():
    assert line_of(row(1)) in DOCUMENT.read_text(), "run: python -m benchmarks.nights --write"


@pytest.mark.evidence
def test_the_document_shows_these_tables():
    document = DOCUMENT.read_text()
    assert document == written(document, rows()), "run: python -m benchmarks.nights --write"


def test_no_gpu_second_is_counted_twice_or_forgotten():
    made, gpu_s = row(1), GPUS * row(1).night.length_s
    assert made.ours + sum(made.lost.values()) / gpu_s == pytest.approx(1.0, abs=0.01)
    assert made.oracle + sum(made.lost_by_oracle.values()) / gpu_s == pytest.approx(1.0, abs=0.01)


def test_ours_is_ahead_of_the_others_and_behind_the_oracle():
    made = row(1)
    assert max(made.simple, made.loop) < made.ours < made.oracle < made.foresight < 1


def test_every_night_has_all_that_can_go_wrong():
    for number in range(1, NIGHTS + 1):
        night = Night.of(number)
        assert len(night.jobs) >= 200
        assert {OOM, CRASH, IDLES, SPINS} <= {job.fault for job in night.jobs}
        assert any(job.filler for job in night.jobs)
        assert night == Night.of(number)


def test_the_rules_are_those_of_the_runner():
    assert idle_stop_s(1000.0) == pytest.approx(1300.0, abs=6)
    assert hung_s(1000.0, hung_rule.DEFAULT) == pytest.approx(1600.0, abs=12)
    assert hung_s(60.0, hung_rule.DEFAULT) == pytest.approx(660.0, abs=12)
    assert hung_s(60.0, hung_rule.parse_policy("off")) == math.inf


def test_a_longer_night_has_the_same_jobs_and_faults():
    night, longer = Night.of(3), Night.of(3, 2)
    assert [job.fault for job in longer.jobs] == [job.fault for job in night.jobs]
    assert [job.work_s for job in longer.jobs] == [2 * job.work_s for job in night.jobs]
    assert longer.length_s == 2 * night.length_s


def test_a_broken_sweep_costs_seconds():
    """In this one it comes when nothing else ends for a while: three fail in a row."""
    night = Night.of(8, 4)
    paused_s = Ours(night, SHIPPED)
    assert paused_s.share() > 0.85
    assert 0 < paused_s.wasted["the breaker has paused the queue"] < 120


def test_a_job_that_prints_its_progress_is_read_as_the_night_computes_it():
    night = compressed(Night.of(1).with_progress(1.0), 10)
    job = next(job for job in night.jobs if 60 < job.work_s < 120)
    reader = ProgressReader()
    for at_s, line in progress_lines(job):
        reader.feed(line, at_s)
    read, computed = reader.progress(job.work_s), progress_at(job, job.work_s, job.work_s)
    assert (read.position, read.pauses, read.evaluated) == (computed.position, computed.pauses, True)
    assert read.longest_pause_s == pytest.approx(computed.longest_pause_s)


def test_progress_lets_a_night_lose_less():
    assert of_oracle(1, 1, printing=0.9) > of_oracle(1, 1)
