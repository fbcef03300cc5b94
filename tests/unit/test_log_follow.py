import contextlib
import io
import itertools
import random
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import rundir
from runner.supervisor.output import INDEX_RECORD, OutputWriter
from runner.terminal.log import Printer
from runner.terminal.log_follow import LEFT_OUT, Growing, Stamps
from tests.jobs import an_exit

LIMIT, TAIL = 1000, 300


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path)


def read(growing):
    return b"".join(growing.read())


def test_what_grows_is_read_on_and_on_through_every_file(folder):
    output, growing, random_ = OutputWriter(folder, LIMIT, TAIL), Growing(folder), random.Random(1)
    written = seen = b""
    for _ in range(300):
        part = random_.randbytes(random_.randrange(1, 200))  # never more than a tail at once: nothing is missed
        output.append(part)
        written += part
        seen += read(growing)
    assert seen == written
    assert growing.position == len(written)
    growing.close()


def test_a_reader_that_is_left_behind_says_so_and_goes_on_with_the_tail(folder, monkeypatch):
    monkeypatch.setattr("runner.supervisor.output.INDEX_STEP_NS", 0)  # a real job takes its time to print so much
    output, growing = OutputWriter(folder, LIMIT, TAIL), Growing(folder)
    output.append(b"a" * LIMIT)
    assert read(growing) == b"a" * LIMIT
    for _ in range(20):
        output.append(b"b" * 100)
    output.append(b"end")
    seen = read(growing)
    assert seen.startswith(LEFT_OUT)
    assert seen.endswith(b"bend")
    assert TAIL <= len(seen) - len(LEFT_OUT) <= 2 * TAIL
    output.append(b" and more")
    assert read(growing) == b" and more"
    growing.close()


def test_a_reader_may_come_before_the_output(folder):
    growing = Growing(folder)
    assert read(growing) == b""
    OutputWriter(folder, LIMIT, TAIL).append(b"hi")
    assert read(growing) == b"hi"
    growing.close()


@pytest.mark.parametrize(
    ("text", "count", "last"),
    [
        (b"1\n2\n3\n", 2, b"2\n3\n"),
        (b"1\n2\n3", 2, b"2\n3"),
        (b"1\n2\n3\n", 3, b"1\n2\n3\n"),
        (b"1\n2\n3\n", 99, b"1\n2\n3\n"),
        (b"1\n\n\n", 2, b"\n\n"),
        (b"1\n2\n", 0, b""),
        (b"", 5, b""),
        (b"x" * 999, 1, b"x" * 999),
    ],
)
def test_the_last_lines(folder, text, count, last):
    OutputWriter(folder, LIMIT, TAIL).append(text)
    growing = Growing(folder)
    growing.skip_to_last_lines(count)
    assert read(growing) == last
    growing.close()


def test_the_last_lines_may_lie_in_several_files(folder):
    output = OutputWriter(folder, LIMIT, TAIL)
    lines = [b"%05d\n" % number for number in range(220)]  # 1320 bytes: all of the first file, then two tails
    for line in lines:
        output.append(line)
    for count in (5, 52, 100, 220):
        growing = Growing(folder)
        growing.skip_to_last_lines(count)
        assert read(growing) == b"".join(lines[-count:])
        growing.close()


def test_the_moments_of_bytes(folder, tmp_path):
    stamps = Stamps(folder)
    assert stamps.of(0) == (None, None)
    from runner.supervisor.output import INDEX_RECORD

    file = (tmp_path / rundir.TIMES).open("ab", buffering=0)
    with file:
        file.write(INDEX_RECORD.pack(0, 1_000_000_000) + INDEX_RECORD.pack(10, 2_000_000_000))
        assert [stamps.of(at)[0].timestamp() for at in (0, 9, 10)] == [1, 1, 2]
        file.write(INDEX_RECORD.pack(20, 3_000_000_000)[:5])
        assert stamps.of(25)[0].timestamp() == 2
        file.write(INDEX_RECORD.pack(20, 3_000_000_000)[5:])
        assert stamps.of(25)[0].timestamp() == 3


def lines_with_times(text: bytes, positions: list[int]) -> Iterator[tuple[datetime, bytes]]:
    """Each line with the time of its first byte: second n + 1 begins at the nth position."""
    at = 0
    for line in text.splitlines(keepends=True):
        yield datetime.fromtimestamp(sum(position <= at for position in positions), timezone.utc), line
        at += len(line)


def printed_with_times(folder) -> list[bytes]:
    with io.TextIOWrapper(io.BytesIO()) as out:
        with contextlib.redirect_stdout(out), contextlib.closing(Printer(folder, times=True, lines=None)) as printer:
            printer.catch_up()
        return out.buffer.getvalue().splitlines()


def test_times_are_those_of_the_lines_first_byte(folder, monkeypatch):
    moments = iter(range(1_000_000_000_000_000_000, 2_000_000_000_000_000_000, 1_000_000_000))
    monkeypatch.setattr("time.time_ns", lambda: next(moments))
    output = OutputWriter(folder, LIMIT, TAIL)
    for part in (b"one\ntw", b"o\nthree\n", b"four"):
        output.append(part)
    lines = [line.split(b" ", 1) for line in printed_with_times(folder)]
    seen = [(datetime.fromisoformat(when.decode()).timestamp() - 1e9, line) for when, line in lines]
    assert seen == [(0, b"one"), (0, b"two"), (1, b"three"), (2, b"four")]


@pytest.mark.parametrize("lines", [15, 25, 26, 99])
@pytest.mark.parametrize("ended", [False, True])
def test_times_after_tails_were_replaced(folder, monkeypatch, lines, ended):
    """Line n is printed n seconds after the start. The first ten are kept, and the last five to ten."""
    moments = iter(range(1_000_000_000_000_000_000, 2_000_000_000_000_000_000, 1_000_000_000))
    monkeypatch.setattr("time.time_ns", lambda: next(moments))
    output = OutputWriter(folder, limit=100, tail_limit=50)
    for number in range(lines):
        output.append(b"line %04d\n" % number)
    if ended:
        rundir.write_exit(folder, -1, an_exit(run_id="a", output_bytes=output.bytes))
    stamped = [line.split() for line in printed_with_times(folder) if b"line" in line]
    seen = [(datetime.fromisoformat(when.decode()).timestamp() - 1e9, int(number)) for when, _, number in stamped]
    assert len(seen) >= 15
    assert all(when == number for when, number in seen)


@given(
    text=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"long line"]), max_size=40).map(b"".join),
    steps=st.lists(st.integers(1, 12), max_size=20),
)
def test_many_lines_at_a_time_get_the_stamps_each_would_get(text, steps):
    with tempfile.TemporaryDirectory() as folder, io.TextIOWrapper(io.BytesIO()) as out:
        (Path(folder) / rundir.OUTPUT).write_bytes(text)
        positions = [0, *itertools.accumulate(steps)]
        index = b"".join(INDEX_RECORD.pack(at, 10**9 * second) for second, at in enumerate(positions, 1))
        (Path(folder) / rundir.TIMES).write_bytes(index)
        with contextlib.redirect_stdout(out), contextlib.closing(Printer(folder, times=True, lines=None)) as printer:
            printer.catch_up()
        expected = [
            f"{when.astimezone().isoformat(timespec='microseconds')} ".encode() + line.rstrip(b"\r\n") + b"\n"
            for when, line in lines_with_times(text, positions)
        ]
        assert out.buffer.getvalue() == b"".join(expected)
