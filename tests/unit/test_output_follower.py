"""What the supervisor writes is read on in order, also through other files, by one reader after another."""

import time

from hypothesis import given
from hypothesis import strategies as st

from runner import rundir
from runner.supervisor.output import INDEX_RECORD, OutputWriter
from runner.supervisor.output_follower import OutputFollower


def read(follower):
    return b"".join(block for block, _ in follower.blocks())


@given(
    parts=st.lists(st.binary(min_size=1, max_size=90), max_size=30),
    looks=st.sets(st.integers(0, 29)),
    restarts=st.sets(st.integers(0, 29)),
)
def test_all_of_it_is_read_once_if_every_part_is_looked_at(tmp_path_factory, parts, looks, restarts):
    """Without a look at each part, the middle of a flood may be lost with its tail file, and never the order."""
    folder = str(tmp_path_factory.mktemp("run"))
    output, follower, got = OutputWriter(folder, limit=200, tail_limit=100), OutputFollower(folder), b""
    for number, part in enumerate(parts):
        output.append(part)
        if number in restarts:
            state = follower.to_state()
            follower.close()
            follower = OutputFollower(folder, state)
        if number in looks or len(looks) < 5:
            got += read(follower)
    got += read(follower)
    whole = b"".join(parts)
    assert whole.startswith(got[:200])
    if len(looks) < 5:
        assert got == whole
    follower.close()
    output.close()


def test_what_is_read_late_gets_the_time_when_it_was_written(tmp_path):
    now_ns = time.time_ns()
    times = [(0, now_ns - 60 * 10**9), (2, now_ns - 40 * 10**9), (4, now_ns - 20 * 10**9)]
    (tmp_path / rundir.OUTPUT).write_bytes(b"a\nb\nc\n")
    (tmp_path / rundir.TIMES).write_bytes(b"".join(INDEX_RECORD.pack(*one) for one in times))
    follower, now = OutputFollower(str(tmp_path)), time.monotonic()
    blocks = list(follower.blocks())
    assert [block for block, _ in blocks] == [b"a\n", b"b\n", b"c\n"]
    assert [round((now - at) / 20) for _, at in blocks] == [3, 2, 1]
    follower.close()


def test_a_file_of_the_job_that_begins_again_is_read_from_its_beginning(tmp_path):
    own = tmp_path / "train.log"
    own.write_bytes(b"step 1\n")
    follower = OutputFollower(str(tmp_path))
    follower.follow_file(str(own))
    assert read(follower) == b"step 1\n"
    own.write_bytes(b"s2\n")
    assert read(follower) == b"s2\n"
    own.rename(tmp_path / "train.log.1")
    own.write_bytes(b"step 3, of a new file\n")
    assert read(follower) == b"step 3, of a new file\n"
    follower.close()
