"""Curves of GPUs and jobs: what is kept of them, for how long, and what a broken file does."""

import time

import pytest

from runner.store import series
from runner.store.connection import connect
from runner.store.series import POINT_S, NewPoint, SeriesFile, Span, gpu_subject, job_subject, names_of, points_of

JOB, GPU = job_subject(7, "a1b2c3d4"), gpu_subject("GPU-0")
FIRST = 1_800_000_000
EVERYTHING = {JOB, GPU}.__contains__


@pytest.fixture
def home(tmp_path):
    return str(tmp_path)


@pytest.fixture
def file(home):
    file = SeriesFile(home)
    yield file
    file.close()


def a_point(subject, number, **values):
    spans = {name: Span(value - 1, value, value + 1) for name, value in values.items()}
    return NewPoint(subject, FIRST + number * POINT_S, spans)


def write(file, *points, begins=EVERYTHING):
    file.write(points, begins)


def means(home, subject, name):
    return [point.value.mean for point in points_of(home, subject, name)]


def test_a_point_has_its_time_its_values_and_how_far_the_job_was(file, home):
    write(file, a_point(JOB, 0, loss=4.5), a_point(GPU, 0, power_w=300))
    write(file, a_point(JOB, 1, loss=4.0, position=120))
    assert names_of(home, JOB) == ["loss", "position"]
    assert points_of(home, JOB, "loss") == [
        (FIRST, 10, (3.5, 4.5, 5.5), None),
        (FIRST + 10, 10, (3.0, 4.0, 5.0), 121.0),
    ]
    assert means(home, GPU, "power_w") == [300.0]


def test_a_range_of_time_has_the_points_that_touch_it(file, home):
    write(file, *(a_point(GPU, number, power_w=number) for number in range(6)))
    inside = points_of(home, GPU, "power_w", FIRST + 15, FIRST + 40)
    assert [point.value.mean for point in inside] == [1, 2, 3]


def test_what_is_not_kept_has_no_points(file, home):
    assert (names_of(home, JOB), points_of(home, JOB, "loss")) == ([], [])
    write(file, a_point(JOB, 0, loss=1))
    assert points_of(home, JOB, "accuracy") == points_of(home, GPU, "loss") == []


@pytest.mark.parametrize("count", [100, 1000, 10_000])
def test_a_job_keeps_a_few_hundred_points_from_its_first_to_its_last(file, home, count):
    write(file, *(a_point(JOB, number, loss=number, position=number) for number in range(count)))
    points = points_of(home, JOB, "loss")
    assert min(count, 100) <= len(points) <= 2 * series.NEW_POINTS
    assert (points[0].at, points[0].value.low) == (FIRST, -1)
    assert (points[-1].value.high, points[-1].position) == (count, count)
    assert [point.at for point in points] == sorted({point.at for point in points})
    seconds = sum(point.seconds for point in points)
    assert sum(point.value.mean * point.seconds for point in points) / seconds == pytest.approx(
        (count - 1) / 2, rel=0.01
    )


def test_a_runner_that_starts_again_goes_on_with_the_points(file, home):
    for begin in range(0, 1000, 100):
        another = SeriesFile(home)
        write(another, *(a_point(JOB, begin + number, loss=1) for number in range(100)))
        another.close()
    points = points_of(home, JOB, "loss")
    assert len(points) <= 2 * series.NEW_POINTS
    assert sum(point.seconds for point in points) == 10_000


def test_points_of_a_gpu_get_wider_as_they_age(file, home):
    write(file, *(a_point(GPU, number, power_w=number % 6) for number in range(3 * 8640)))
    points, last = points_of(home, GPU, "power_w"), FIRST + 3 * 86400
    ages = {seconds: [last - point.at for point in points if point.seconds == seconds] for seconds in (10, 60, 600)}
    assert min(ages[60]) >= 6 * 3600 > max(ages[10]) - 3600
    assert min(ages[600]) >= 2 * 86400 > max(ages[60]) - 3600
    assert sum(point.seconds for point in points) == 3 * 86400
    assert {tuple(point.value) for point in points if point.seconds > 10} == {(-1, 2.5, 6)}


def test_a_metric_that_comes_later_or_not_always(file, home):
    write(file, *(a_point(JOB, n, loss=1, **({"accuracy": 3} if n > 400 and n % 50 == 0 else {})) for n in range(1000)))
    assert set(means(home, JOB, "accuracy")) == {3.0}
    assert set(means(home, JOB, "loss")) == {1.0}


def test_only_so_many_metrics_of_a_job_are_kept(file, home):
    write(file, a_point(JOB, 0, **{f"m{n}": n for n in range(60)}))
    write(file, a_point(JOB, 1, other=5, m3=8))
    assert len(names_of(home, JOB)) == series.NAMES_AT_MOST
    assert means(home, JOB, "m3") == [3, 8]


def test_a_job_that_is_over_before_its_first_point_leaves_none(file, home):
    write(file, a_point(JOB, 0, loss=1), begins=lambda _: False)
    assert names_of(home, JOB) == []
    write(file, a_point(JOB, 1, loss=1))
    write(file, a_point(JOB, 2, loss=2), begins=lambda _: False)
    assert means(home, JOB, "loss") == [1, 2]


def test_jobs_are_pruned_and_gpus_keep_a_month(file, home):
    other = job_subject(8, "a1b2c3d4")
    now = int(time.time())
    for subject in (JOB, other, GPU):
        old, new = (NewPoint(subject, at, {"x": Span(1, 1, 1)}) for at in (now - 31 * 86400, now - 29 * 86400))
        write(file, old, new, begins=lambda _: True)
    series.prune(home, {other})
    assert (means(home, JOB, "x"), names_of(home, JOB)) == ([], [])
    assert means(home, other, "x") == [1, 1]
    assert [point.at for point in points_of(home, GPU, "x")] == [now - 29 * 86400]


def test_to_prune_makes_no_file(home, tmp_path):
    series.prune(home, set())
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_set_aside_and_another_begins(file, home, tmp_path, caplog):
    write(file, a_point(JOB, 0, loss=1))
    file.close()
    (tmp_path / series.FILE).write_bytes(b"no database " * 1000)
    assert points_of(home, JOB, "loss") == []
    write(file, a_point(JOB, 1, loss=2))
    write(file, a_point(JOB, 2, loss=3))
    assert means(home, JOB, "loss") == [3]
    assert (tmp_path / "series.db.damaged").read_bytes().startswith(b"no database")
    assert "is set aside as series.db.damaged" in caplog.text


def test_a_file_that_was_deleted_begins_again(file, home, tmp_path):
    write(file, a_point(JOB, 0, loss=1))
    (tmp_path / series.FILE).unlink()
    write(file, a_point(JOB, 1, loss=2))
    write(file, a_point(JOB, 2, loss=3))
    assert means(home, JOB, "loss") in ([3], [2, 3])


def test_while_another_process_writes_points_are_left_out(file, home, tmp_path, caplog):
    write(file, a_point(JOB, 0, loss=1))
    other = connect(str(tmp_path / series.FILE), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    write(file, a_point(JOB, 1, loss=2, accuracy=1))
    write(file, a_point(JOB, 2, loss=3, accuracy=1))
    other.execute("ROLLBACK")
    other.close()
    write(file, a_point(JOB, 3, loss=4, accuracy=9))
    assert means(home, JOB, "loss") == [1, 4]
    assert means(home, JOB, "accuracy") == [9]
    assert caplog.text.count("readings are not kept") == 1


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path, caplog):
    write(SeriesFile(str(tmp_path / "gone")), a_point(JOB, 0, loss=1))
    assert "readings are not kept" in caplog.text
