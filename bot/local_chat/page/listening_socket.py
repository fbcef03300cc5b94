"""The page's listening socket. `up` holds it and hands it to each bot, so the port is never free in between."""

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
    """A listening socket, and the name of its session: the time while it listens."""

    socket: socket.socket
    session: str

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.socket.getsockname()[1])


def listen(port: int) -> Listener:
    """Listen on this port. Raise OperatorError, which says how to choose another."""
    try:
        return Listener(socket.create_server((HOST, port)), secrets.token_hex(8))
    except OSError as error:
        why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
        raise OperatorError(
            f"Port {port} for the chat page {why}. Stop what uses it, or set NIGHTSHIFT_PAGE_PORT=… to a free one."
        ) from error


def inherited() -> Listener | None:
    """Return the socket that this process was handed, or None."""
    value = os.environ.pop(VARIABLE, None)
    if value is None:
        return None
    number, _, session = value.partition(":")
    try:
        os.set_inheritable(int(number), False)
        return Listener(socket.socket(fileno=int(number)), session)
    except (OSError, ValueError) as error:
        raise OperatorError(
            f"{VARIABLE}={value} is not an open socket, so the chat page cannot listen. Unset it and start again."
        ) from error


class HeldSocket:
    """Holds the page's port while this process lives, for one bot after the other."""

    variable = VARIABLE

    def __init__(self, port: int, *, or_any: bool = False) -> None:
        self._port, self._or_any = port, or_any
        self._listener: Listener | None = None

    def open(self) -> tuple[str, int]:
        """Return the variable's value and the descriptor to inherit."""
        self._listener = self._listener or self._listen()
        descriptor = os.dup(self._listener.socket.fileno())
        return f"{descriptor}:{self._listener.session}", descriptor

    def started(self, pid: int) -> None:
        """Do nothing: the bot has all it needs."""

    def _listen(self) -> Listener:
        try:
            return listen(self._port)
        except OperatorError:
            if not self._or_any:
                raise
            return listen(0)
