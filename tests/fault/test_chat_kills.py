"""kill -9 of the bot at random points: one job a /submit, one stop a confirmed /kill, all news, no copy unsaid."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fault.chat_chaos import a_night


@pytest.mark.timeout(180)
def test_a_bot_that_is_shot_at_loses_nothing(tmp_path):
    seed = random.randrange(10**6)
    report = a_night(tmp_path, seed, kills=8, timeout_s=150, fewest_jobs=6)
    assert report.problems == [], report
    assert report.kills == 8
    assert report.given > report.updates, "each update is to come more than once"
    assert report.submits > 5


@pytest.mark.evidence
@pytest.mark.timeout(3600)
def test_a_thousand_times(tmp_path):
    seed = random.randrange(10**6)
    report = a_night(Path(tmp_path), seed, kills=1000, timeout_s=3000, from_scratch_every=25)
    print(f"\n{report}")
    assert report.problems == [], report.problems[:20]
    assert report.kills == 1000
