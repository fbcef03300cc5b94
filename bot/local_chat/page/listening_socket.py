"""Where the page listens. `up` holds the socket and hands it to each bot, so that the port is never free in between."""

from __future__ import annotations

import errno
import os
import secrets
import socket
from typing import NamedTuple

from runner.errors import OperatorError

HOST = "127.0.0.1"
VARIABLE = "NIGHTSHIFT_PAGE_FD"


class Listener(NamedTuple):
    """A socket that listens, and a name for the time that it does."""

    socket: socket.socket
    session: str

    @property
    def port(self) -> int:
        """Where."""
        return int(self.socket.getsockname()[1])


def listen(port: int) -> Listener:
    """Listen; OperatorError says how to get another port."""
    try:
        return Listener(socket.create_server((HOST, port)), secrets.token_hex(8))
    except OSError as error:
        why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
        raise OperatorError(
            f"Port {port} for the chat page {why}. Stop what uses it, or set NIGHTSHIFT_PAGE_PORT=… to a free one."
        ) from error


def inherited() -> Listener | None:
    """What this process was handed, if it was."""
    given = os.environ.pop(VARIABLE, None)
    if given is None:
        return None
    number, _, session = given.partition(":")
    try:
        os.set_inheritable(int(number), False)
        return Listener(socket.socket(fileno=int(number)), session)
    except (OSError, ValueError) as error:
        raise OperatorError(f"{VARIABLE}={given} is no open socket: the page was to listen there.") from error


class Held:
    """The page's port for as long as this process lives, for one bot after the other."""

    variable = VARIABLE

    def __init__(self, port: int, *, or_any: bool = False) -> None:
        self._port, self._or_any = port, or_any
        self._listener: Listener | None = None

    def open(self) -> tuple[str, int]:
        """What to put into the variable, and the descriptor."""
        self._listener = self._listener or self._listen()
        descriptor = os.dup(self._listener.socket.fileno())
        return f"{descriptor}:{self._listener.session}", descriptor

    def started(self, pid: int) -> None:
        """Nothing more to do for it."""

    def _listen(self) -> Listener:
        try:
            return listen(self._port)
        except OperatorError:
            if not self._or_any:
                raise
            return listen(0)
