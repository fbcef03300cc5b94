"""What goes through the supervisor's writer comes back through the reader."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import rundir
from runner.supervisor.log_reader import Log
from runner.supervisor.output import OutputWriter
from tests.jobs import an_exit


def written(folder, parts, limit, tail):
    output = OutputWriter(str(folder), limit, tail)
    for part in parts:
        output.append(part)
    (folder / rundir.EXIT).write_text(json.dumps(an_exit(output_bytes=output.bytes).to_json()))
    return output


@given(parts=st.lists(st.binary(min_size=1, max_size=400), max_size=30))
def test_whole_below_the_limit(tmp_path_factory, parts):
    folder = tmp_path_factory.mktemp("log")
    written(folder, parts, limit=1 << 20, tail=100)
    assert Log(str(folder)).read() == b"".join(parts)


@given(
    parts=st.lists(st.binary(min_size=1, max_size=300), max_size=40),
    limit=st.integers(1, 2000),
    tail=st.integers(1, 500),
)
def test_head_and_tail_beyond_it(tmp_path_factory, parts, limit, tail):
    folder = tmp_path_factory.mktemp("log")
    output = written(folder, parts, limit, tail)
    whole = b"".join(parts)
    assert output.bytes == len(whole)
    kept = b"".join(piece for piece in Log(str(folder)).parts() if b"[nightshift:" not in piece)
    assert kept[:limit] == whole[:limit]
    if len(whole) > limit:
        rest = kept[limit:]
        assert whole.endswith(rest)
        assert len(rest) >= min(tail, len(whole) - limit)  # at least one tail's worth of the end
        on_disk = sum(os.path.getsize(folder / name) for name in rundir.TAILS if (folder / name).exists())
        assert on_disk <= 2 * tail


def test_says_how_much_was_left_out(tmp_path):
    written(tmp_path, [b"a" * 100, b"b" * 1000, b"c" * 10], limit=100, tail=10)
    assert Log(str(tmp_path)).read() == b"a" * 100 + (
        b"\n[nightshift: 990 bytes of output were not kept here]\n" + b"b" * 10 + b"c" * 10
    )


@pytest.mark.parametrize("size", [0, 1, 9, 10, 25, 1000])
def test_tail(tmp_path, size):
    written(tmp_path, [b"0123456789" * 10, b"abcdefghij" * 3], limit=100, tail=15)
    whole = b"0123456789" * 10 + b"abcdefghij" * 3
    assert Log(str(tmp_path)).tail(size) == (whole[-size:] if size else b"")


def test_no_folder_no_output(tmp_path):
    assert Log(str(tmp_path / "none")).read() == b""
