"""Starting processes that stay: other words of this command, with a log for a voice and descriptors for the rest."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Protocol

from runner.config import home
from runner.processes.interpreter import python_command

if TYPE_CHECKING:
    from collections.abc import Sequence


class Handed(Protocol):
    """What a process gets by a descriptor; a variable in its environment names that."""

    variable: str

    def open(self) -> tuple[str, int]:
        """The variable's value, and a descriptor for one process; ours is closed when it has been started."""

    def started(self, pid: int) -> None:
        """The process has this pid."""


def command(word: str) -> list[str]:
    """The argument list that runs another command of ours with the same settings."""
    file = home.env_file()
    return python_command("nightshift", *(["--env-file", file] if file else []), word)


def start(words: Sequence[str], log: int, handed: Sequence[Handed]) -> subprocess.Popen[bytes]:
    """A process in a session of its own: what the terminal sends on Ctrl-C or when it closes is not for it."""
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
