"""What a killed keeper left behind has to leave, even if it hangs."""

import subprocess
import sys

import pytest

from runner import home, presence
from runner.errors import OperatorError
from runner.terminal import takeover

HANGS = """
import signal, sys
from runner.presence import held
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
    monkeypatch.setattr(presence, "LEAVES_WITHIN_S", 0.1)
    takeover.remember(str(tmp_path), {"bot": bot.pid})
    assert takeover.take_over(str(tmp_path)) == ["bot"]
    assert bot.wait() == -9


def test_one_that_is_not_ours_is_neither_asked_nor_killed(bot, tmp_path, monkeypatch):
    monkeypatch.setattr(presence, "LEAVES_WITHIN_S", 0.1)
    takeover.remember(str(tmp_path), {"bot": bot.pid + 1})
    assert takeover.take_over(str(tmp_path)) == []
    with pytest.raises(OperatorError, match="has not left"):  # `nightshift down` kills nobody
        presence.ask_to_leave(str(tmp_path), home.BOT_LOCK)
    assert bot.poll() is None
