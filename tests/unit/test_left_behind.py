"""The mark that a process of an attempt cannot lose by accident."""

from __future__ import annotations

import os
import subprocess
import sys

from runner.supervisor import left_behind
from tests.wait import eventually

WEARS = """import os, subprocess, sys
from runner.supervisor import left_behind
with left_behind.marking(int(sys.argv[1])) as fix_on:
    child = subprocess.Popen(sys.argv[2:])
    fix_on(child.pid)
child.wait()
"""
CAST_OFF = "env -i setsid sh -c 'echo up; exec sleep 300' </dev/null & wait"


def test_marks_differ_by_run_job_and_attempt():
    some = [(1, 1, "00000000"), (2, 1, "00000000"), (1, 2, "00000000"), (1, 1, "00000001"), (65535, 16383, "ffffffff")]
    marks = {left_behind.mark_of(*one) for one in some}
    assert len(marks) == len(some)
    assert all(1 << 62 <= one < 1 << 63 for one in marks)


def test_a_process_bears_it_after_fork_exec_setsid_and_without_its_environment():
    number = left_behind.mark_of(7, 1, "0a1b2c3d")
    words = [sys.executable, "-c", WEARS, str(number), "sh", "-c", CAST_OFF]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=os.getcwd()) as started:
        assert started.stdout is not None
        started.stdout.readline()
        (shell,) = _children(started.pid)
        (child,) = _children(shell)
        assert left_behind.has_mark(child, number)
        assert left_behind.has_mark(shell, number)
        # it goes on to start the next job
        eventually(lambda: not left_behind.has_mark(started.pid, number), what="who started them bears no mark")
        assert not left_behind.has_mark(child, number + 1)
        assert not left_behind.has_mark(os.getpid(), number)
        os.kill(child, 9)
    assert not left_behind.has_mark(child, number)


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(one) for one in file.read().split()]
