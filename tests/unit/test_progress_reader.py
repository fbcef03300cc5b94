"""What is read from a job's output: position, total, unit, rate, metrics, phase and end, for each format."""

import math

import pytest

from runner.errors import UserError
from runner.progress.pace import Progress
from runner.progress.reader import LineSplitter, ProgressReader
from tests.progress_fixtures import fixtures, no_progress

FIXTURES = fixtures()
TENTH = 0.1


def played(fixture):
    """Yield the time and the progress after each line."""
    reader = ProgressReader(fixture.expected.get("pattern"))
    for at, text in fixture.lines:
        for line in text.replace("\n", "\r").split("\r"):
            reader.feed(line, at)
        yield at, reader.progress(at)


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda one: one.name)
def test_each_format_is_read(fixture):
    *_, (_, last) = played(fixture)
    expected = fixture.expected
    for name in ("position", "total", "unit", "phase"):
        assert getattr(last, name) == expected[name], name
    assert {name: last.metrics.get(name) for name in expected["metrics"]} == pytest.approx(expected["metrics"])
    assert last.work


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda one: one.name)
def test_the_rate_is_right_from_a_tenth_of_the_run_on(fixture):
    for at, progress in played(fixture):
        if progress and progress.rate and at > TENTH * fixture.lines[-1][0]:
            assert progress.rate == pytest.approx(fixture.expected["rate"], rel=0.02), at


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda one: one.name)
def test_the_estimate_is_right_from_a_tenth_of_the_run_on(fixture):
    expected, checked = fixture.expected, 0
    end_s, kind = expected["end_s"], expected["eta"]
    for at, progress in played(fixture):
        assert progress is None or progress.position is None or (progress.total or math.inf) >= progress.position
        if progress is None or progress.eta_s is None or at < TENTH * end_s or kind not in ("constant", "range"):
            continue
        checked += 1
        left_s, line_s = end_s - at, 2 * (progress.gap_s or 0.0)
        if kind == "constant":
            assert progress.eta_s == pytest.approx(left_s, rel=0.1, abs=line_s), at
        assert progress.eta_low_s - line_s <= left_s <= progress.eta_high_s + line_s, at
    assert (checked > 0) == (kind in ("constant", "range"))
