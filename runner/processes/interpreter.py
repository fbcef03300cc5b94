"""Starts nightshift's own processes: with this interpreter and this source, ignoring the user's PYTHONPATH."""

from __future__ import annotations

import os
import shlex
import sys

from runner.rundir import write_atomically

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the argument list that runs `main(arguments)` of one of our modules in a new process."""
    start = f"import sys; sys.path[0] = {ROOT!r}; from {module} import main; main(sys.argv[1:])"
    return [sys.executable, "-E", "-c", start, *arguments]


def install_command(home: str) -> None:
    """Write a `nightshift` command to the state folder's bin, the last entry in each job's PATH.

    With it a job can queue other jobs.
    """
    folder = os.path.join(home, "bin")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    start = f"import sys; sys.path[0] = {ROOT!r}; from nightshift import main; main()"
    text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -E -c {shlex.quote(start)} "$@"\n'
    write_atomically(os.path.join(folder, "nightshift"), text.encode(), 0o700)
