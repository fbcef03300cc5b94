from datetime import datetime, timedelta, timezone

import pytest

from runner import clock
from runner.text.progress_words import chosen_metrics, percent, progress_words, seconds_left, short_progress

NOW = datetime(2026, 1, 5, 1, 0, tzinfo=timezone.utc)
HOUR = 3600.0
PHONE = 40


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    __import__("time").tzset()
    yield
    monkeypatch.undo()
    __import__("time").tzset()


def progress(**fields):
    ends = {"eta_s": 7920.0, "eta_low_s": 7800.0, "eta_high_s": 8000.0}
    place = {"position": 420.0, "total": 1000.0, "unit": "step", "rate": 2.0, "metrics": {"loss": 2.31}}
    return {**place, **ends, "phase": "train", "at": clock.text(NOW), **fields}


def endless(**fields):
    return progress(total=None, eta_s=None, eta_low_s=None, eta_high_s=None, **fields)


def test_a_line_says_how_far_the_loss_and_the_end():
    assert progress_words(progress(), NOW) == "▓▓▓░░░░░ 42 % · step 420 of 1,000 · loss 2.31 · ends about 03:12"
    assert short_progress(progress(), NOW) == "▓▓▓░░░░░ 42 % · loss 2.31 · ends 03:12"
    assert short_progress(progress(), NOW, bar=False) == "42 % · ends 03:12 · loss 2.31"


def test_nothing_is_said_about_what_is_unknown():
    unknown = dict.fromkeys(progress())
    assert progress_words(None, NOW) == short_progress(None, NOW) == progress_words({}, NOW) == ""
    assert progress_words(unknown, NOW) == short_progress(unknown, NOW) == ""
    assert progress_words({**unknown, "phase": "download"}, NOW) == "downloading"


def test_an_unsure_end_is_a_range():
    unsure = progress(eta_low_s=2 * HOUR, eta_high_s=2 * HOUR + 4200)
    assert progress_words(unsure, NOW).endswith(" · ends 03:00–04:10")
    assert short_progress(unsure, NOW) == "▓▓▓░░░░░ 42 % · loss 2.31 · ends 03:00–04:10"
    far = progress(eta_s=30 * HOUR, eta_low_s=26 * HOUR, eta_high_s=40 * HOUR)
    assert progress_words(far, NOW).endswith(" · ends Tue 03:00–Tue 17:00")


def test_the_end_counts_from_when_it_was_read():
    old = progress(at=clock.text(NOW - timedelta(hours=2)))
    assert seconds_left(old, NOW) == (600, 720, 800)
    assert progress_words(old, NOW).endswith("ends about 01:12")
    assert progress_words(progress(at=clock.text(NOW - timedelta(hours=3))), NOW).endswith("was due 00:13")
    assert progress_words(progress(eta_s=1e300, eta_low_s=None, eta_high_s=None), NOW).endswith("ends about 2036-01-03")


def test_without_a_total_the_rate_is_said():
    assert progress_words(endless(position=1200.0, rate=2.3), NOW) == "step 1,200 · 2.3 steps/s · loss 2.31"
    assert short_progress(endless(position=1200.0, rate=2.3), NOW) == "step 1,200 · 2.3 steps/s · loss 2.31"
    assert progress_words(endless(rate=0.05, metrics={}), NOW) == "step 420 · 20 s/step"
    assert progress_words(endless(unit=None, rate=None, metrics={}), NOW) == "420"


def test_phases_and_epochs():
    assert "42 % · evaluating · loss" in short_progress(progress(phase="eval"), NOW)
    assert "of 1,000 · epoch 3 of 10 · loss" in progress_words(progress(phase="train, epoch 3 of 10"), NOW)
    epochs = progress(position=2.5, total=10.0, unit="epoch", phase="eval, epoch 3 of 10")
    assert "25 % · epoch 2.5 of 10 · evaluating · loss" in progress_words(epochs, NOW)
    assert progress_words(progress(position=12.0, total=100.0, unit="%"), NOW).startswith("░░░░░░░░ 12 % · loss")


def test_an_ended_job_has_no_end_to_come():
    ended = progress(phase="eval, epoch 3 of 3")
    assert progress_words(ended, NOW, ended=True) == "▓▓▓░░░░░ 42 % · step 420 of 1,000 · epoch 3 of 3 · loss 2.31"


def test_metrics_are_left_out_where_the_output_must_not_be_shown():
    assert "loss" not in progress_words(progress(), NOW, metrics=False) + short_progress(progress(), NOW, metrics=False)


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({"lr": 1e-4, "accuracy": 0.5, "val_loss": 2.5, "loss": 2.0}, ["loss 2", "val_loss 2.5"]),
        ({"acc1": 71.25, "aux_loss": 0.001, "train_loss": "nan"}, ["train_loss NaN", "aux_loss 0.001"]),
        ({"loss": "inf", "grad_norm": 3.0, "samples/sec": 64.0, "epoch": 1.0}, ["loss inf"]),
        ({"energy": -1234.5, "learning_rate": 1e-5}, ["energy -1,234"]),
        ({"accuracy": 0.5, "beta": 0.9}, ["accuracy 0.5"]),
        ({"lr": 1e-4, "time": 3.0}, []),
        ({"a" * 60: 1.5e-7}, [f"{'a' * 16} 1.5e-07"]),
        (None, []),
    ],
)
def test_which_metrics_are_shown(metrics, expected):
    assert chosen_metrics(progress(metrics=metrics)) == expected


@pytest.mark.parametrize(("position", "expected"), [(0.0, 0), (999.9, 99), (1000.0, 100), (1200.0, 100), (None, None)])
def test_100_percent_only_if_all_is_done(position, expected):
    assert percent(progress(position=position)) == expected


def test_the_usual_lines_fit_a_phone():
    assert len(short_progress(progress(), NOW)) <= PHONE
    assert len(short_progress(endless(position=123456.0, rate=2.3), NOW)) <= PHONE
