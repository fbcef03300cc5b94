"""The progress reader never fails, whatever a job prints, and never says more than there is."""

import json

from hypothesis import given
from hypothesis import strategies as st

from runner.progress.formats import read_line
from runner.progress.pace import Progress
from runner.progress.reader import ProgressReader
from runner.progress.stop_rules import broken_in, parse_rules

NUMBER = st.one_of(
    st.integers(0, 10**20).map(str), st.floats().map(str), st.sampled_from(["nan", "inf", "?", "1e9", "007"])
)
WORD = st.sampled_from(
    [
        *(
            "epoch ",
            "Epoch: [",
            "step ",
            "iter ",
            "loss=",
            "'epoch': ",
            " 12%|██| ",
            " [00:01<00:02, ",
            "it/s",
            "━━━━ ",
        ),
        *("nightshift: progress ", "[rank1]: ", "\x1b[2K", "Val ", "total_steps=", "Train: ", "total_timesteps "),
        *"[]()|/:=%,{}\"'━█ \r\n",
    ]
)
LINE = st.lists(st.one_of(WORD, NUMBER, st.text(max_size=5)), max_size=24).map("".join)


@given(st.lists(LINE, max_size=30))
def test_whatever_is_printed_position_stays_within_total(lines):
    reader = ProgressReader()
    for at, line in enumerate(lines):
        reader.feed(line, float(at))
        progress = reader.progress(at + 0.5)
        if progress is None:
            continue
        assert progress.total is None or 0 <= progress.position <= progress.total
        assert progress.eta_s is None or progress.eta_low_s <= progress.eta_s <= progress.eta_high_s
        data = json.loads(json.dumps(progress.to_json(), allow_nan=False))
        assert Progress.from_json(data).to_json() == progress.to_json()
    again = ProgressReader.from_state(json.loads(json.dumps(reader.to_state())))
    assert again.to_state() == reader.to_state()


@given(st.lists(st.binary(max_size=200), max_size=10), st.sampled_from([None, r"(?P<n>\d+)(/(?P<total>\d+))?"]))
def test_bytes_are_read_in_any_pieces(blocks, pattern):
    reader = ProgressReader(pattern)
    for at, block in enumerate(blocks):
        reader.feed_block(block, float(at))
    reader.progress(99.0)
    broken_in(parse_rules("nan,loss>1"), b"\n".join(blocks))


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.sampled_from(["step", "iter", "Epoch", "batch"]))
def test_a_counter_with_its_end_is_read(n, total, word):
    reading = read_line(f"{word} {n}/{total} loss 2.5")
    count = reading.epoch if word == "Epoch" else reading.steps
    assert (count.n, count.total) == (n, total if n <= total else None)
