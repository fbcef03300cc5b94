"""`nightshift run`: a terminal on the job's GPUs, under a real pty."""

import asyncio
import os
import re
import select
import shlex
import signal
from pathlib import Path

import pytest

from runner import rundir
from tests.box import a_box
from tests.room import Room
from tests.terminal import Terminal
from tests.wait import eventually

WAITS = "echo ready; while :; do sleep 0.05; done"
PROMPT = {"SHELL": "/bin/sh", "PS1": "prompt> ", "ENV": ""}


@pytest.fixture(scope="module")
def up():
    """A box with a runner, shared by the tests here: each looks at its own jobs only."""
    with a_box() as box:
        box.start_runner(gpus="sim:4x24GiB", stop_grace="2s", breaker="2", cpu_slots="8")
        yield box


def number_of(terminal):
    """The number of the job that was submitted at this terminal."""
    return eventually(terminal.jobs)[-1]


def test_it_is_the_jobs_own_terminal_with_its_window_and_its_gpu(up):
    terminal = Terminal(
        up, "run", "-t", "10m", "--", f"trap 'stty size' WINCH; tty; stty size; echo $TERM; {WAITS}", TERM="vt99"
    )
    terminal.resize(31, 97)
    terminal.until(b"ready")
    assert b"/dev/pts/" in terminal.seen
    assert b"31 97\r\nvt99" in terminal.seen
    terminal.resize(50, 120)
    terminal.until(b"50 120")
    job_id = number_of(terminal)
    assert len(up.job(job_id)["gpus"]) == 1
    assert "31 97" in up.log(job_id)  # what was seen is in the log, too
    assert not Path(rundir.folder_of(up.home, job_id, 1), rundir.TERMINAL).exists()  # nobody else can come
    terminal.type(b"\x03")
    assert terminal.code() == 128 + signal.SIGINT
    assert f"job {job_id}: failed, SIGINT".encode() in terminal.seen


def test_without_a_command_it_is_a_shell_and_leaving_it_ends_the_job(up):
    terminal = Terminal(up, "run", "-g", "0", **PROMPT)
    terminal.until(b"prompt> ")
    terminal.type(b"sleep 1000\n")
    terminal.until(b"sleep 1000\r\n")
    terminal.type(b"\x03")  # ends the program in the shell, not the session
    terminal.until(b"^C\r\nprompt> ")
    terminal.type(b"echo $((6*7))\n")
    terminal.until(b"42")
    terminal.type(b"exit 7\n")
    assert terminal.code() == 7
    job = up.job(number_of(terminal))
    assert (job["state"], job["reason"], job["exit_code"]) == ("FAILED", "EXIT", 7)


def test_the_end_is_not_lost_however_soon_it_comes(up):
    for code in (0, 3):  # failing at once again and again, too: that is no sign of a broken box
        terminal = Terminal(up, "run", "-g", "0", "--", f"seq 1 2000; exit {code}")
        assert terminal.code() == code
        assert b"\n1999\r\n2000\r\n" in terminal.seen
    assert Terminal(up, "run", "-g", "0", "--", "exit 3").code() == 3
    with up.queue() as queue:
        assert queue.why_paused() is None


def test_much_typed_and_much_printed_do_not_block_each_other(up):
    terminal = Terminal(up, "run", "-g", "0", "--", "stty raw -echo; echo ready; head -c 200000 | tee /dev/tty | wc -c")
    terminal.until(b"ready")
    left = b"#" * 200_000
    while left:
        can_read, can_write, _ = select.select([terminal.screen], [terminal.screen], [], 60)
        assert can_read or can_write
        if can_read:
            terminal.seen += os.read(terminal.screen, 1 << 16)
        if can_write:
            left = left[os.write(terminal.screen, left[:512]) :]
    terminal.until(b"200000")
    assert terminal.code() == 0
    assert terminal.seen.count(b"#") == 200_000


async def kill_in_the_chat(box, job_id):
    room = Room(box.folder, home=str(box.home))
    await room.open()
    said = await room.ask(room.ada, f"/kill {job_id}")
    asked = next(message for message in said if "Stop this job?" in message.text.text)
    await room.tap(room.ada, asked, f"Yes, kill #{job_id}")
    await room.close()


@pytest.mark.parametrize("command", [[], ["--", WAITS]])
def test_a_kill_ends_it_and_its_terminal_says_so(up, command):
    run = shlex.join(up.command("run", "-g", "0", *command))
    terminal = Terminal(up, shell=f"stty -g; {run}; echo code $?; stty -g", **PROMPT)
    terminal.until(b"ready" if command else b"prompt> ")
    job_id = number_of(terminal)
    if command:
        assert up.run("kill", "--yes", str(job_id)).returncode == 0
    else:
        asyncio.run(kill_in_the_chat(up, job_id))
    terminal.code()
    assert (up.job(job_id)["state"], up.job(job_id)["reason"]) == ("CANCELLED", "USER")
    assert f"job {job_id}: cancelled, asked for by {'' if command else 'tg:'}".encode() in terminal.seen
    assert re.search(rb"code (129|143)\r", terminal.seen)
    before, *_, after = terminal.seen.split(b"\r\n")[:-1]
    assert before == after  # the settings of the terminal are what they were


def test_a_stop_lets_a_program_in_the_shell_save_its_state(up):
    terminal = Terminal(up, "run", "-g", "0", "--grace", "30s", **PROMPT)
    terminal.until(b"prompt> ")
    terminal.type(b'sh -c \'trap "sleep 0.5; echo sav"ed"; exit" TERM; echo rea""dy; while :; do sleep 0.05; done\'\n')
    terminal.until(b"ready")
    job_id = number_of(terminal)
    assert up.run("kill", "--yes", str(job_id)).returncode == 0
    terminal.code()
    assert "saved" in up.log(job_id)


def test_the_time_limit_ends_it_and_its_terminal_says_so(up):
    terminal = Terminal(up, "run", "-g", "0", "-t", "1s", **PROMPT)
    assert terminal.code() in (129, 143)
    assert f"job {number_of(terminal)}: stopped, time limit".encode() in terminal.seen


@pytest.mark.parametrize("traps", ["trap 'echo hung up; exit 1' HUP", "trap '' HUP"])
def test_a_closed_terminal_ends_it(up, traps):
    terminal = Terminal(up, "run", "-g", "0", "--", f"{traps}; {WAITS}")
    terminal.until(b"ready")
    job_id = number_of(terminal)
    terminal.close()
    job = up.wait_state(job_id, "CANCELLED")
    assert job["reason"] == "USER"
    assert ("hung up" in up.log(job_id)) == ("echo" in traps)


def test_a_killed_client_ends_it(up):
    terminal = Terminal(up, "run", "-g", "0", "--", WAITS)
    terminal.until(b"ready")
    os.kill(terminal.pid, signal.SIGKILL)
    terminal.code()
    assert up.wait_state(number_of(terminal), "CANCELLED")["reason"] == "USER"


def test_ctrl_c_cancels_it_while_it_waits(up):
    terminal = Terminal(up, "run", "--begin", "+1h")
    terminal.until(b"begins")
    job_id = number_of(terminal)
    terminal.type(b"\x03")
    assert terminal.code() == 130
    assert f"Job {job_id} is cancelled".encode() in terminal.seen
    assert up.job(job_id)["state"] == "CANCELLED"


def test_nothing_of_the_terminal_reaches_the_next_job(up):
    assert Terminal(up, "run", "-g", "0", "--", "true").code() == 0
    for _ in range(3):
        job_id = up.submit("tty; (exec 3</dev/tty) 2>/dev/null && echo has one; ls -l /proc/$PPID/fd", "--gpus", "0")
        up.wait_state(job_id, "SUCCEEDED")
        said = up.log(job_id)
        assert said.startswith("not a tty\n")
        assert "has one" not in said
        assert "/dev/p" not in said


def test_it_needs_a_terminal_and_runs_once(up):
    done = up.run("run", "--", "true")
    assert (done.returncode, "needs a terminal" in done.stderr) == (1, True)
    for options in (["--retries", "2"], ["--try"]):
        terminal = Terminal(up, "run", *options, "--", "true")
        assert terminal.code() == 1
        assert b"runs once" in terminal.seen
    terminal = Terminal(up, "run", "-g", "0", "--", "/no/such/program", "x")
    assert terminal.code() == 1
    assert b"could not start: No such file or directory: /no/such/program" in terminal.seen
    again = up.run("rerun", str(number_of(terminal)))
    assert (again.returncode, "nightshift run" in again.stderr) == (1, True)
