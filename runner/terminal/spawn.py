"""Starting processes that stay: other words of this command, with a log for a voice and a pipe for secrets."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from runner import home
from runner.interpreter import python_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Secret(NamedTuple):
    """What a process gets through a pipe, so that it shows in no environment: the variable that names the pipe."""

    variable: str
    pipe: Callable[[], int]


def command(word: str) -> list[str]:
    """The argument list that runs another command of ours with the same settings."""
    file = home.env_file()
    return python_command("nightshift", *(["--env-file", file] if file else []), word)


def start(words: Sequence[str], log: int, secret: Secret | None) -> subprocess.Popen[bytes]:
    """A process in a session of its own: what the terminal sends on Ctrl-C or when it closes is not for it."""
    pipes = [secret.pipe()] if secret else []
    environ = {**os.environ, **({secret.variable: str(pipes[0])} if secret else {})}
    try:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, pass_fds=pipes, start_new_session=True
        )
    finally:
        for pipe in pipes:
            os.close(pipe)
