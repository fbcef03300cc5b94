"""What keeps runner and bot up, with small stand-ins for both."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.wait import eventually

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, sys
from runner.errors import OperatorError
from runner.terminal import keeper, service
keeper.FIRST_PAUSE_S, keeper.LONGEST_PAUSE_S, keeper.SETTLED_AFTER_S = 0.05, 0.1, 60
keeper.LEAVES_WITHIN_S = float(os.environ["LEAVES_WITHIN_S"])
folder = sys.argv[1]
class Port:
    variable = "PORT"
    def open(self):
        if os.path.exists(os.path.join(folder, "taken")):
            raise OperatorError("Port 1 is taken.")
        return "1", os.dup(2)
    def started(self, pid):
        pass
def part(name, script):
    ready = os.path.join(folder, name + ".ready")
    return keeper.Part(name=name, command=["bash", "-c", script], meanwhile="the rest goes on",
                       is_ready=lambda pid: os.path.exists(ready), handed=[Port()] if name == "bot" else [],
                       worked_before=name in os.environ.get("BEFORE", ""))
parts = [part("runner", sys.argv[2]), part("bot", sys.argv[3])]
sys.exit(service._keep(folder, parts, lambda: print("READY", flush=True)))
"""
STAYS = (
    "trap 'echo {0} left >> $F/left; exit 0' TERM; echo {0} $$ >> $F/pids; touch $F/{0}.ready;"
    " while :; do sleep 0.02; done"
)
RUNNER_IS_UP = "until [ -e $F/runner.ready ]; do sleep 0.01; done"
RUNNER, BOT = STAYS.format("runner"), STAYS.format("bot")


@pytest.fixture
def keep(tmp_path):
    """A keeper of two shell scripts."""
    processes = []

    def start(runner=RUNNER, bot=BOT, **how):
        command = [sys.executable, "-c", SCRIPT, str(tmp_path), runner, bot]
        environ = {"PATH": os.environ["PATH"], "F": str(tmp_path), "BEFORE": how.pop("worked_before", "")}
        # a script on a busy machine needs its time to leave: only the test of one that does not leave is short of it
        environ["LEAVES_WITHIN_S"] = how.pop("leaves_within", "50")
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
        processes.append(subprocess.Popen(command, cwd=ROOT, env=environ, text=True, **how))
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=60)


def lines(tmp_path, name):
    path = tmp_path / name
    return path.read_text().splitlines() if path.exists() else []


def pids(tmp_path, name):
    return [int(line.split()[1]) for line in lines(tmp_path, "pids") if line.startswith(name)]


def log(tmp_path):
    return "\n".join(lines(tmp_path, "nightshift.log"))


def test_both_are_asked_to_leave(keep, tmp_path):
    keeper = keep()
    assert keeper.stdout.readline() == "READY\n"
    keeper.terminate()
    assert keeper.wait(60) == 0
    assert sorted(lines(tmp_path, "left")) == ["bot left", "runner left"]


@pytest.mark.parametrize("code", [1, 2])
def test_one_that_cannot_start_at_all_ends_it(keep, tmp_path, code):
    keeper = keep(bot=f"{RUNNER_IS_UP}; echo 'mend me' >&2; exit {code}")
    assert keeper.wait(60) == code
    assert "mend me" in keeper.stderr.read()
    assert lines(tmp_path, "left") == ["runner left"]


def test_one_that_is_refused_right_after_it_came_up_ends_it_too(keep, tmp_path):
    keeper = keep(bot=f"{RUNNER_IS_UP}; touch $F/bot.ready; sleep 0.3; echo 'no such token' >&2; exit 2")
    assert keeper.wait(60) == 2
    assert "no such token" in keeper.stderr.read()
    assert lines(tmp_path, "left") == ["runner left"]


def test_one_that_worked_on_an_earlier_day_keeps_nobody_from_working_when_it_is_refused(keep, tmp_path):
    keeper = keep(bot="echo 'no such token' >&2; exit 2", worked_before="bot")
    eventually(lambda: log(tmp_path).count("THE BOT IS OFF") >= 2)
    eventually(lambda: pids(tmp_path, "runner"))
    assert lines(tmp_path, "left") == []
    assert keeper.poll() is None


def test_a_port_that_is_taken_ends_it_like_any_other_mistake(keep, tmp_path):
    (tmp_path / "taken").touch()
    keeper = keep()
    assert keeper.wait(60) == 2
    assert "Port 1 is taken." in keeper.stderr.read()


def test_a_port_that_is_taken_on_a_later_day_keeps_nobody_from_working(keep, tmp_path):
    (tmp_path / "taken").touch()
    keeper = keep(worked_before="bot")
    eventually(lambda: log(tmp_path).count("THE BOT IS OFF") >= 2)
    eventually(lambda: pids(tmp_path, "runner"))
    (tmp_path / "taken").unlink()
    assert keeper.stdout.readline() == "READY\n"
    assert len(pids(tmp_path, "bot")) == 1
    assert lines(tmp_path, "left") == []


def test_one_that_dies_is_started_again_and_the_other_goes_on(keep, tmp_path):
    keeper = keep()
    assert keeper.stdout.readline() == "READY\n"
    os.kill(pids(tmp_path, "bot")[0], signal.SIGKILL)
    eventually(lambda: len(pids(tmp_path, "bot")) == 2)
    assert "the bot died (signal 9); the rest goes on; starting it again" in log(tmp_path)
    os.kill(pids(tmp_path, "bot")[1], signal.SIGTERM)  # somebody else's doing
    eventually(lambda: len(pids(tmp_path, "bot")) == 3)
    assert "the bot left, though nobody asked it to" in log(tmp_path)
    assert len(pids(tmp_path, "runner")) == 1


def test_what_must_be_mended_later_leaves_the_other_running(keep, tmp_path):
    """A token that is revoked while the bot runs: loud, tried again, and jobs are none the wiser."""
    revoked = f"if [ -e $F/revoked ]; then echo no such token; exit 2; fi; {BOT}"
    keeper = keep(bot=revoked)
    assert keeper.stdout.readline() == "READY\n"
    (tmp_path / "revoked").touch()
    os.kill(pids(tmp_path, "bot")[0], signal.SIGKILL)
    eventually(lambda: log(tmp_path).count("THE BOT IS OFF") >= 2)
    assert "ERROR" in log(tmp_path)
    assert lines(tmp_path, "left") == []
    assert keeper.poll() is None
    (tmp_path / "revoked").unlink()
    eventually(lambda: len(pids(tmp_path, "bot")) == 2)


def test_one_that_does_not_leave_is_killed(keep, tmp_path):
    keeper = keep(bot=BOT.replace("'echo bot left >> $F/left; exit 0'", "''"), leaves_within="0.5")
    assert keeper.stdout.readline() == "READY\n"
    keeper.terminate()
    assert keeper.wait(60) == 0
    assert "the bot has not left within" in log(tmp_path)
    assert not os.path.exists(f"/proc/{pids(tmp_path, 'bot')[0]}")


def test_a_terminal_that_is_gone_or_stuck_stops_neither_parts_nor_log(keep, tmp_path):
    full, write = os.pipe()  # nobody reads: soon full
    keeper = keep(bot=f"head -c 200000 /dev/zero | tr '\\0' x; echo; {BOT}", stderr=write)
    assert keeper.stdout.readline() == "READY\n"
    os.kill(pids(tmp_path, "bot")[0], signal.SIGKILL)
    eventually(lambda: len(pids(tmp_path, "bot")) == 2)
    os.close(full)
    os.close(write)
    os.kill(pids(tmp_path, "bot")[1], signal.SIGKILL)
    eventually(lambda: log(tmp_path).count("the bot died (signal 9)") == 2)
    keeper.terminate()
    assert keeper.wait(60) == 0


def test_a_log_that_has_grown_large_begins_anew_under_its_writers(tmp_path, monkeypatch):
    from runner.terminal import service_log

    monkeypatch.setattr(service_log, "LARGE_LOG", 10)
    with service_log.opened_log(str(tmp_path)) as output:
        os.write(output, b"old " * 5)
        service_log.shorten(str(tmp_path))
        os.write(output, b"new")
    assert (tmp_path / "nightshift.log").read_text() == "new"
    assert (tmp_path / "nightshift.log.1").read_text() == "old " * 5
    assert (tmp_path / "nightshift.log.1").stat().st_mode & 0o777 == 0o600
