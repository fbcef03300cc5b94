"""Tests that fail by chance: `make steady` counts them, and what fails leaves nothing behind for the next test."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.wait import eventually

ROOT = Path(__file__).parents[2]
STEADY = str(ROOT / ".ci" / "steady")

FAILS_NOW_AND_THEN = """
echo run >>runs
case $(wc -l <runs) in
    2) echo 'FAILED tests/a.py::test_one[x y] - AssertionError: no'; echo 'ERROR tests/a.py::test_two'; exit 1 ;;
    3)
        echo 'ERROR    bot.outbound.sender:sender.py:12 no'
        echo 'FAILED tests/a.py::test_two - no'
        echo 'ERROR tests/a.py::test_two - again'
        exit 1 ;;
    4) echo '!!! broken'; exit 4 ;;
esac
echo '3 passed'
"""


def steady(folder, times, script):
    environ = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.Popen(
        [STEADY, str(times), "sh", "-c", script], cwd=folder, env=environ, text=True, stdout=subprocess.PIPE
    )


def test_failures_are_counted_by_test_over_all_runs(tmp_path):
    with steady(tmp_path, 4, FAILS_NOW_AND_THEN) as run:
        said, _ = run.communicate()
    assert run.returncode == 1
    table, _, end = said.partition("runs  test\n")[2].rpartition("not steady: ")
    assert table.splitlines()[0] == "   2  tests/a.py::test_two"
    assert sorted(table.splitlines()[1:]) == [
        "   1  (no test: the command ended with code 4)", "   1  tests/a.py::test_one[x y]"
    ]  # fmt: skip
    assert "run 1 of 4: 3 passed" in said
    kept = Path(re.fullmatch(r"3 of 4 runs failed; their logs are in (.+)\n", end)[1])
    assert sorted(path.name for path in kept.iterdir()) == ["run-2.log", "run-3.log", "run-4.log"]


def test_runs_that_all_pass_leave_nothing(tmp_path):
    with steady(tmp_path, 2, "echo 3 passed") as run:
        assert run.communicate()[0].endswith("steady: 2 of 2 runs passed beside two busy loops\n")
    assert (run.returncode, list(tmp_path.iterdir())) == (0, [])


def test_the_busy_loops_end_with_the_script_however_it_ends(tmp_path):
    for number in (signal.SIGTERM, signal.SIGKILL):
        with steady(tmp_path, 1, "echo $$ >started; exec sleep 60") as run:
            eventually(lambda: (tmp_path / "started").exists() and (tmp_path / "started").read_text())
            command = int((tmp_path / "started").read_text())
            (tmp_path / "started").unlink()
            loops = [one for one in psutil.Process(run.pid).children() if one.pid != command]
            assert len(loops) == 2
            run.send_signal(number)
            os.kill(command, signal.SIGKILL)  # a shell heeds a signal when its command has ended
            run.communicate()
        assert psutil.wait_procs(loops, 40)[1] == []


FAILING = """
import pathlib, subprocess

def test_fails():
    shell = subprocess.Popen(["sh", "-c", "sleep 600 & echo $! >sleeping; wait"], stdout=subprocess.PIPE)
    while not (pathlib.Path("sleeping").exists() and pathlib.Path("sleeping").read_text()):
        pass
    assert False

def test_innocent():
    pass
"""
CONFTEST = """
import sys
sys.path.insert(0, {root!r})
from tests.leftovers import children_before, pytest_runtest_makereport, pytest_runtest_protocol
"""


def test_a_test_that_fails_leaves_no_process_and_no_warning_to_the_next(tmp_path):
    (tmp_path / "test_it.py").write_text(FAILING)
    (tmp_path / "conftest.py").write_text(CONFTEST.format(root=str(ROOT)))
    words = ["-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "test_it.py"]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "error" not in done.stdout.splitlines()[-1]
    with contextlib.suppress(psutil.NoSuchProcess):
        sleeping = psutil.Process(int((tmp_path / "sleeping").read_text()))
        assert sleeping.status() == psutil.STATUS_ZOMBIE
