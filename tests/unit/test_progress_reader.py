"""What is read from a job's output: position, total, unit, rate, metrics, phase and end, for each format."""

import math

import pytest

from runner.errors import UserError
from runner.progress.pace import Progress
from runner.progress.reader import LineSplitter, ProgressReader
from runner.progress.stop_rules import StopRule, parse_rules
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
        if (
            progress is None
            or progress.eta_s is None
            or not TENTH * end_s <= at <= end_s
            or kind not in ("constant", "range")
        ):
            continue
        checked += 1
        left_s, line_s = end_s - at, 2 * (progress.gap_s or 0.0)
        if kind == "constant":
            assert progress.eta_s == pytest.approx(left_s, rel=0.1, abs=line_s), at
        assert progress.eta_low_s - line_s <= left_s <= progress.eta_high_s + line_s, at
    assert (checked > 0) == (kind in ("constant", "range"))


@pytest.mark.parametrize("path", no_progress(), ids=lambda path: path.stem)
def test_output_without_progress_stays_unknown(path):
    lines = [line for row in path.read_text().split("\n") for line in row.split("\r")]
    together = ProgressReader()
    for at, line in enumerate(lines):
        alone = ProgressReader()
        for reader in (alone, together):
            reader.feed(line, float(at))
            progress = reader.progress(float(at))
            assert progress is None or (progress.position, progress.work, progress.metrics) == (None, False, {}), line


def test_there_are_enough_formats_and_outputs_without_progress():
    assert len({fixture.expected["format"] for fixture in FIXTURES}) >= 25
    assert len(no_progress()) >= 40
    assert all(fixture.expected["source"] for fixture in FIXTURES)


def fed(*lines, pattern=None, each_s=1.0):
    reader = ProgressReader(pattern)
    for number, line in enumerate(lines):
        reader.feed(line, number * each_s)
    return reader.progress(len(lines) * each_s)


def bar(n, total, label=""):
    return f"{label}{100 * n // total:3d}%|█         | {n}/{total} [00:10<00:10,  1.00it/s]"


def test_downloads_and_preparation_are_no_work():
    progress = fed(
        "model.safetensors:  12%|█▏        | 120M/1.00G [00:12<01:30, 9.80MB/s]",
        "Loading checkpoint shards:  50%|█████     | 1/2 [00:01<00:01,  1.2s/it]",
    )
    assert (progress.phase, progress.position, progress.work) == ("prepare", None, False)
    assert fed("Fetching 4 files:  25%|██▌       | 1/4 [00:10<00:30, 10.0s/it]").phase == "download"


def test_an_evaluation_keeps_the_position_of_the_training():
    train = [bar(n, 300) for n in range(0, 60, 10)]
    evaluation = [bar(n, 20, "Evaluating: ") for n in (1, 10, 20)]
    progress = fed(*train, *evaluation)
    assert (progress.position, progress.total, progress.phase) == (50, 300, "eval")
    assert progress.advanced_at == 8.0


def test_an_unnamed_bar_that_comes_again_while_the_main_one_waits_is_an_evaluation():
    evaluation = [bar(n, 20) for n in (0, 10, 20)]
    progress = fed(*[bar(n, 300) for n in range(0, 60, 10)], *evaluation, bar(60, 300), bar(70, 300), *evaluation)
    assert (progress.position, progress.total, progress.phase) == (70, 300, "eval")


def test_a_late_rank_is_no_step_back():
    assert fed("step 100/1000", "step 110/1000", "step 100/1000").position == 110


def test_what_was_said_in_so_many_words_comes_first():
    progress = fed(bar(10, 20), "nightshift: progress 3/7 loss=2.5", bar(19, 20), "step 5/90 loss=1")
    assert (progress.position, progress.total) == (3, 7)
    assert fed("nightshift: progress 120").total is None
    assert (fed("nightshift: progress 12%").position, fed("nightshift: progress 12%").unit) == (12, "%")
    assert fed("+ echo 'nightshift: progress 3/10'") is None


def test_the_own_pattern_is_the_only_one_that_counts():
    own = r"sites (?P<n>\d+) of (?P<total>\d+), energy (?P<energy>[-0-9.]+)"
    progress = fed(bar(10, 20), "sites 4 of 9, energy -1.5", bar(19, 20), pattern=own)
    assert (progress.position, progress.total, progress.metrics["energy"]) == (4, 9, -1.5)
    assert fed("nightshift: progress 3/7", "sites 4 of 9, energy 1", pattern=own).total == 7


@pytest.mark.parametrize("pattern", ["step", r"(\d+)", "(?P<total>x)", "(", r"(?P<n>\d+)(?=x)", "a" * 301])
def test_a_wrong_pattern_says_what_to_write(pattern):
    with pytest.raises(UserError, match=r"\(\?P<n>"):
        ProgressReader(pattern)


def test_colours_and_broken_characters_do_no_harm():
    reader = ProgressReader()
    reader.feed_block(b"\xff\x1b[32mstep\x1b[0m \x1b[1m3", 1.0)
    reader.feed_block(b"0/100\x1b[0m \xe2\x96", 1.0)
    assert reader.progress(1.0) is None
    reader.feed_block(b"\x88\n", 1.0)
    assert reader.progress(1.0).position == 30


def test_a_line_that_never_ends_takes_no_memory():
    splitter = LineSplitter()
    for _ in range(100):
        assert splitter.whole_lines(b"x" * 100_000) == b""
    line = splitter.whole_lines(b" loss=3\n")
    assert line.endswith(b" loss=3\n")
    assert len(line) < 10_000


NOISE = b"some words that a program prints again and again\n"


def test_of_a_flood_only_the_last_lines_and_the_last_epoch_are_read():
    reader = ProgressReader()
    reader.feed_block(NOISE * 100_000 + b"step 70/100\n", 1.0)
    assert reader.progress(1.0).position == 70
    reader = ProgressReader()
    steps = b"".join(b"%d/1000 [=====>.....] - ETA: 1s - loss: 1.0\n" % n for n in range(900))
    reader.feed_block(b"Epoch 3/10\n" + steps, 1.0)
    assert (reader.progress(1.0).position, reader.progress(1.0).total) == (2899, 10_000)


def test_no_line_of_a_flood_is_skipped_for_the_rules():
    reader = ProgressReader(rules=parse_rules("nan,loss>10"))
    reader.feed_block(NOISE * 50_000 + b"step 1 loss: n", 1.0)
    assert reader.broken is None
    reader.feed_block(b"an\n" + NOISE * 50_000, 1.0)
    assert reader.broken == (StopRule(), "loss=nan")


def test_a_bar_is_read_before_the_next_one_ends_its_line():
    reader = ProgressReader()
    reader.feed_block(f"\r{bar(10, 20)}".encode(), 1.0)
    assert reader.progress(1.0).position == 10
    reader.feed_block(b"\rstep 1", 1.0)
    assert reader.progress(1.0).position == 10


def test_progress_survives_json():
    progress = fed("step 10/100 loss=nan grad=inf", "step 20/100 loss=nan grad=-inf")
    data = progress.to_json()
    assert data["metrics"] == {"loss": "nan", "grad": "-inf"}
    assert list(data)[:8] == ["position", "total", "unit", "rate", "eta_s", "metrics", "phase", "at"]
    again = Progress.from_json({**data, "later": 1})
    assert math.isnan(again.metrics["loss"])
    assert again.to_json() == data


def test_a_reader_goes_on_from_its_state():
    lines = [f"Epoch 1/3 step {n}/100 loss {5 - n / 100}" for n in range(10, 60, 10)]
    reader = ProgressReader()
    for at, line in enumerate(lines):
        reader.feed(line, float(at))
    again = ProgressReader.from_state(reader.to_state())
    for one in (reader, again):
        one.feed("Epoch 1/3 step 60/100 loss 4", 5.0)
    assert again.progress(6.0) == reader.progress(6.0)
    assert again.progress(6.0).position == 60


def test_of_several_ranks_the_first_is_followed():
    assert fed("[rank0]: step 50/100", "[rank1]: step 90/100", "[rank0]: step 60/100").position == 60


def test_the_summary_of_wandb_is_no_progress():
    assert fed("wandb: Run summary:", "wandb: step 5/90 loss 2.0") is None
