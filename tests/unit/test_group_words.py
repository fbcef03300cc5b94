"""The results of a group, as wide as a phone."""

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from bot.text.group_words import ROWS, WIDTH, table
from runner.api import groups
from runner.model import Job, State
from tests.jobs import a_spec

AT = datetime(2026, 1, 1, tzinfo=timezone.utc)
LOSS = groups.Metric("a_validation_loss_with_a_long_name", "")


def results(given, metric=LOSS):
    jobs = [
        Job(id=number, spec=a_spec("python train.py --with many words", parameters=one), state=State.SUCCEEDED,
            run_id="0", submitted_at=AT)
        for number, one in enumerate(given, start=99_990)
    ]  # fmt: skip
    readings = {job.id: groups.MetricValue(f"0.{job.id}1234", job.id / 1e6) for job in jobs}
    return groups.compared(jobs, readings if metric else {}, metric)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 12])
@pytest.mark.parametrize("metric", [LOSS, None])
def test_it_fits_whatever_was_varied(count, metric):
    names = [f"parameter_{number}" for number in range(count)]
    given = [dict.fromkeys(names, f"{at}-{'long value ' * 3}") for at in range(40)]
    lines = table(results(given, metric), ROWS).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) == ROWS + (count > 0 or metric is not None)
    assert lines[-1].startswith("#10001")
    if metric:
        assert lines[-1].endswith(" 0.1000141…")
    if count:
        assert "par" in lines[0]


def test_short_values_stand_in_full_and_what_is_the_same_throughout_is_left_out():
    shown = table(results([{"lr": "1e-3", "seed": "7", "bs": "64"}, {"lr": "5e-4", "seed": "7", "bs": "64"}]), ROWS)
    assert [line.split()[:2] for line in shown.splitlines()[1:]] == [["#99990", "1e-3"], ["#99991", "5e-4"]]
    assert "seed" not in shown


def test_a_number_of_a_job_that_is_not_done_is_marked():
    found = results([{"lr": "1"}, {"lr": "2"}])
    live, failed = (row.job for row in found.rows)
    rows = (
        found.rows[0]._replace(job=replace(live, state=State.RUNNING)),
        found.rows[1]._replace(job=replace(failed, state=State.FAILED)),
    )
    shown = table(found._replace(rows=rows), ROWS).splitlines()
    assert [line[-2:] for line in shown[1:]] == [" …", " !"]
