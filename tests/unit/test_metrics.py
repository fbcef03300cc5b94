"""A metric: how it is named, and which number of an output it is."""

import pytest

from runner.errors import UserError
from runner.sweep.metrics import STEP_BYTES, last_values, metric_of, parse_metric
from runner.sweep.sweep_options import metric_in, parse_at_most


def found(tmp_path, text, metric):
    (tmp_path / "output.log").write_bytes(text.encode() if isinstance(text, str) else text)
    return last_values({1: str(tmp_path)}, parse_metric(metric)[1]).values.get(1)


@pytest.mark.parametrize(
    ("text", "metric", "number"),
    [
        ("val_loss=0.5\nval_loss=0.31\n", "val_loss", 0.31),
        ("step 1 val_loss 0.5 | val_loss: 3e-2", "val_loss", 0.03),
        ('{"val_loss": 0.25, "loss": 9}', "val_loss", 0.25),
        ("val_loss=0.5\nloss=0.1\ntrain_val_loss=7\n", "val_loss", 0.5),
        ("val_loss=0.4\nval_loss=0.3", "val_loss=([0-9.e-]+)", 0.3),
        ("epoch 3: val loss 1.5.\n", r"val loss ([0-9.]+)", 1.5),
        ("50% val_loss=0.9\r100% val_loss=0.8\r", "val_loss", 0.8),
        ("\x1b[32mval_loss\x1b[0m=\x1b[1m0.7\x1b[0m", "val_loss", 0.7),
        ("acc: -1.25E+2 %", "acc", -125.0),
        ("val_loss=0.4 val_loss=soon", r"val_loss=(\S+)", 0.4),
        (b"\xff\xfe val_loss=2\n", "val_loss", 2.0),
    ],
)
def test_the_last_number_counts(tmp_path, text, metric, number):
    assert found(tmp_path, text, metric).number == number


@pytest.mark.parametrize("text", ["", "loss=1", "val_loss=", "my.val_loss=1"])
def test_without_it_there_is_none(tmp_path, text):
    assert found(tmp_path, text, "val_loss") is None


def test_what_cannot_be_compared_is_shown_and_no_number(tmp_path):
    assert found(tmp_path, "val_loss=0.3\nval_loss=nan\n", "val_loss") == ("nan", None)


def test_it_is_found_far_from_the_end_and_not_in_half_a_line(tmp_path):
    noise = "x" * 99 + "\n"
    text = "val_loss=0.125\n" + noise * (3 * STEP_BYTES // 100)
    assert found(tmp_path, text, "val_loss").number == 0.125
    cut = "12.5\n" + "x" * (STEP_BYTES - 3)  # at first no more than .5 is seen of it
    assert found(tmp_path, cut, r"([0-9.]+)").number == 12.5


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("val_loss", "val_loss"),
        ("val_loss=([0-9.e-]+)", "val_loss"),
        (r"val loss: (\d+)", "val loss"),
        ("(.*)", "metric"),
    ],
)
def test_its_name(text, name):
    assert parse_metric(text)[0] == name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("val loss", "no \\( \\)"),
        ("loss=(", "not a pattern"),
        (r"(a)\1", "backreferences are not supported"),
        ("", "no \\( \\)"),
        ("x" * 400, "300 characters"),
    ],
)
def test_what_is_no_metric_is_refused_with_what_to_write(text, said):
    with pytest.raises(UserError, match=said) as refused:
        parse_metric(text)
    assert "write its name, like val_loss" in str(refused.value)


def test_an_accuracy_is_best_when_large_unless_somebody_says():
    assert metric_of(("val_loss", ""), None).best == "smallest"
    assert metric_of(("val_accuracy", ""), None).best == "largest"
    assert metric_of(("val_accuracy", ""), False).best == "smallest"


@pytest.mark.parametrize(
    ("values", "said"),
    [({"smallest": True, "largest": True}, "contradict each other"), ({"largest": True}, "--largest of what")],
)
def test_options_that_contradict_are_refused(values, said):
    with pytest.raises(UserError, match=said):
        metric_in(values)


@pytest.mark.parametrize("text", ["0", "-1", "many", "", "1.5"])
def test_at_most_none_is_refused(text):
    with pytest.raises(UserError, match="write 1, 2, 3"):
        parse_at_most(text)
    assert parse_at_most("none") is None


def test_a_name_as_it_was_kept_before_is_still_found(tmp_path):
    (tmp_path / "output.log").write_text("my.val_loss=3\nval_loss=0.5\n")
    kept = r"(?<![\w./@-])val_loss[\"']?\s*[=:]?\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b)"
    assert last_values({1: str(tmp_path)}, kept).values == {1: ("0.5", 0.5)}


def test_a_kept_pattern_that_cannot_be_searched_any_more_says_so(tmp_path):
    (tmp_path / "output.log").write_text("val_loss=0.5\n")
    found = last_values({1: str(tmp_path)}, r"(?<=val_)loss=(\S+)")
    assert found.values == {}
    assert "lookbehind" in found.trouble
    assert "give another with --metric" in found.trouble


def test_patterns_that_take_for_ever_elsewhere_do_not(tmp_path):
    """Each would take longer than the age of the universe, or the square of 64 kB for each line."""
    (tmp_path / "output.log").write_bytes((b"a" * 5000 + b"\n") * 12 + b"a" * 8000 + b"\x1b[" * 1000)
    for pattern in (r"(a+)+$b", r"(?:a|aa|a*)*c([0-9])", r"((a*)*)*=", r"(x+x+)+y", r"([0-9]+)*\.?loss"):
        assert last_values({1: str(tmp_path)}, pattern) == ({}, "")
