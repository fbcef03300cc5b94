"""What a killed keeper left behind has to leave, even if it hangs."""

import json
import subprocess
import sys

import pytest

from runner.config import home
from runner.errors import OperatorError
from runner.processes import process_lock
from runner.terminal import keeper

HANGS = """
import signal, sys
from runner.processes.process_lock import held
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with held(sys.argv[1], sys.argv[2]):
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def bot(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HANGS, str(tmp_path), home.BOT_LOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"up\n"
        yield process
        process.kill()


def test_a_bot_that_hangs_is_killed(bot, tmp_path, monkeypatch):
    monkeypatch.setattr(process_lock, "LEAVES_WITHIN_S", 0.1)
    keeper.record(str(tmp_path), {"bot": bot.pid})
    assert keeper.take_over(str(tmp_path)) == ["bot"]
    assert bot.wait() == -9


def test_one_that_is_not_ours_is_neither_asked_nor_killed(bot, tmp_path, monkeypatch):
    monkeypatch.setattr(process_lock, "LEAVES_WITHIN_S", 0.1)
    keeper.record(str(tmp_path), {"bot": bot.pid})
    kept = tmp_path / keeper.RECORD
    written = json.loads(kept.read_text())
    pid, began = written["parts"]["bot"]
    for other in (
        {**written, "parts": {"bot": [pid, began + 1]}},  # its number is another's by now
        {**written, "boot": "another"},
        {"bot": pid},  # as an earlier version wrote it
        {},
        [],
    ):
        kept.write_text(json.dumps(other))
        assert keeper.take_over(str(tmp_path)) == []
    with pytest.raises(OperatorError, match="has not left"):  # `nightshift down` kills nobody
        process_lock.ask_to_leave(str(tmp_path), home.BOT_LOCK)
    assert bot.poll() is None


def test_one_that_has_not_come_up_yet_is_ended_too(tmp_path):
    """It would take its lock a moment later, and the next keeper's bot would find it taken."""
    with subprocess.Popen(["sleep", "60"]) as starting:
        keeper.record(str(tmp_path), {"bot": starting.pid})
        assert keeper.take_over(str(tmp_path)) == ["bot"]
        assert starting.wait() == -15
    assert keeper.take_over(str(tmp_path)) == []
