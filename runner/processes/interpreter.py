"""How nightshift starts its own processes: this interpreter, this source, deaf to the user's PYTHONPATH."""

from __future__ import annotations

import os
import shlex
import sys

from runner.rundir import write_atomically

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def python_command(module: str, *arguments: str) -> list[str]:
    """The argument list that runs `main(arguments)` of one of our modules in a process of its own."""
    start = f"import sys; sys.path[0] = {ROOT!r}; from {module} import main; main(sys.argv[1:])"
    return [sys.executable, "-E", "-c", start, *arguments]


def install_command(home: str) -> None:
    """Lay a `nightshift` into the state folder's bin, which ends every job's PATH: a job may queue the next one."""
    folder = os.path.join(home, "bin")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    start = f"import sys; sys.path[0] = {ROOT!r}; from nightshift import main; main()"
    text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -E -c {shlex.quote(start)} "$@"\n'
    write_atomically(os.path.join(folder, "nightshift"), text.encode(), 0o700)
