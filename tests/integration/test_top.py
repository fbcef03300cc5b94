"""`nightshift top`: the live view of GPUs and jobs, under a real pty."""

import re
import shlex

import pytest

from tests.box import a_box
from tests.terminal import Terminal

LEFT, END = b"\033[?1049l", b"\033[J"


@pytest.fixture(scope="module")
def up():
    """A box with a running job, one that waits behind it, and one that failed."""
    with a_box() as box:
        box.start_runner(gpus="sim:1x24GiB", stop_grace="2s", breaker="0", cpu_slots="8")
        box.wait_state(box.submit("exit 3", "--gpus", "0"), "FAILED")
        box.wait_state(box.submit("echo step 30/100 loss=0.5; sleep 1000"), "RUNNING")
        box.submit("echo 'cleared \033[2J\a'", "-t", "1h")
        yield box


def frame_of(terminal, height):
    """The first whole view with this many lines, without colours."""
    while True:
        *_, frame = terminal.seen.rpartition(END)[0].split(b"\033[H")
        lines = re.sub(r"\033\[[0-9;?]*[A-Za-z]", "", frame.decode()).split("\r\n")
        if len(lines) == height:
            return lines
        terminal.seen = terminal.seen.partition(b"\033[H")[0]
        terminal.until(END)


def test_it_is_printed_once_if_nobody_watches(up):
    done = up.run("top")
    assert done.returncode == 0
    assert "\033" not in done.stdout
    for said in ("Simulated", "Running: 1", "Waiting: 1", r"cleared \x1b[2J\x07", "needs", "failed, exit 3"):
        assert said in done.stdout


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_it_follows_the_queue_and_the_window_and_leaves_no_trace(up, key):
    watch = f"trap : INT; stty -g; {shlex.join(up.command('top'))}; echo code $?; stty -g"
    terminal = Terminal(up, shell=watch, TERM="xterm")
    terminal.resize(24, 80)
    terminal.until(b"Waiting:")
    for number in range(30):
        up.submit(f"echo {number} {'long ' * 50}")
    terminal.until(b" more")
    assert frame_of(terminal, 24)[0].startswith("nightshift")
    terminal.resize(12, 60)
    lines = frame_of(terminal, 12)
    assert any("30 %" in line for line in lines)
    terminal.type(key)
    terminal.code()
    assert b"\033[?25h" in terminal.seen
    before, end = terminal.seen.partition(b"\r\n")[0], terminal.seen.rpartition(LEFT)[2]
    assert end.split() == [b"code", b"0", before]  # the settings of the terminal are what they were
