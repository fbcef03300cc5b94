"""Starts nightshift commands as long-running processes. They write to a log and may inherit descriptors."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Protocol

from runner.config import home
from runner.processes.interpreter import python_command

if TYPE_CHECKING:
    from collections.abc import Sequence


class Handed(Protocol):
    """Something a process gets through a descriptor. An environment variable tells it how to find that."""

    variable: str

    def open(self) -> tuple[str, int]:
        """Return the variable's value, and a descriptor for one process. Our copy is closed after the start."""

    def started(self, pid: int) -> None:
        """Take note of the pid of the started process."""


def command(word: str) -> list[str]:
    """Return the argument list that runs another nightshift command with the same settings."""
    file = home.env_file()
    return python_command("nightshift", *(["--env-file", file] if file else []), word)


def start(words: Sequence[str], log: int, handed: Sequence[Handed]) -> subprocess.Popen[bytes]:
    """Start a process in its own session, so that it gets no signal on Ctrl-C or when the terminal closes."""
    descriptors: list[int] = []
    environ = dict(os.environ)
    try:
        for one in handed:
            environ[one.variable], descriptor = one.open()
            descriptors.append(descriptor)
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, pass_fds=descriptors,
            start_new_session=True,
        )  # fmt: skip
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    for one in handed:
        one.started(process.pid)
    return process
