"""Connects this terminal with the terminal of a job: keys and window sizes one way, output the other way."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import termios
import tty

from runner import rundir
from runner.processes import linux
from runner.processes.doorbell import address_of
from runner.supervisor.terminal_attempt import INPUT, WINDOW

KEYS, SCREEN = 0, 1  # stdin and stdout
CHUNK = 1 << 12
OUTPUT_CHUNK = 1 << 16


def connected(folder: str) -> socket.socket | None:
    """Connect to the job in this run directory; None if it does not wait for that. The job starts when we do."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with address_of(folder, rundir.TERMINAL) as address:
            connection.connect(address)
        connection.send(_window())
    except OSError:
        connection.close()
        return None
    return connection


def relay(connection: socket.socket) -> int:
    """Pass everything on until the job has ended, and return 0. If this terminal is closed, return the signal for that.

    The terminal's settings are restored.
    """
    before = termios.tcgetattr(KEYS)
    wake = linux.readable_signals((signal.SIGWINCH, signal.SIGHUP, signal.SIGTERM), ())
    tty.setraw(KEYS, termios.TCSADRAIN)  # keeps what was typed ahead
    try:
        return _relay(connection, wake)
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(KEYS, termios.TCSANOW, before)


def _relay(connection: socket.socket, wake: int) -> int:
    pending: list[bytes] = []  # messages for the job; while it takes none, no more keys are read
    while True:
        reads = [connection.fileno(), wake, *([] if pending else [KEYS])]
        ready, _, _ = select.select(reads, [connection] if pending else [], [])
        if connection.fileno() in ready and not _show(connection):
            return 0
        if wake in ready:
            for number in os.read(wake, 256):
                if number != signal.SIGWINCH:
                    return number
            pending.append(_window())
        if KEYS in ready:
            if not (typed := _typed()):
                return signal.SIGHUP
            pending.append(INPUT + typed)
        with contextlib.suppress(OSError):  # it takes none now, or it has ended, which `_show` finds
            while pending:
                connection.send(pending[0], socket.MSG_DONTWAIT)
                del pending[0]


def _show(connection: socket.socket) -> bool:
    """Write the next part of the output. Return False if the job has ended."""
    try:
        data = connection.recv(OUTPUT_CHUNK)
    except ConnectionResetError:
        return False
    left = data
    while left:
        left = left[os.write(SCREEN, left) :]
    return bool(data)


def _typed() -> bytes:
    """Return what was typed; empty if this terminal is closed."""
    with contextlib.suppress(OSError):
        return os.read(KEYS, CHUNK)
    return b""


def _window() -> bytes:
    """Return the size of this window, as a message for the job."""
    return WINDOW + fcntl.ioctl(KEYS, termios.TIOCGWINSZ, bytes(8))
