"""A Unix datagram that only wakes its listener and carries nothing. Truth is in the database."""

from __future__ import annotations

import contextlib
import os
import socket

ADDRESS_LIMIT = 107  # sun_path holds 108 bytes, the last one is NUL


@contextlib.contextmanager
def _address(folder: str, name: str):  # type: ignore[no-untyped-def]
    """A path to the socket that fits into sun_path however deep the folder lies."""
    path = os.path.join(folder, name)
    if len(os.fsencode(path)) <= ADDRESS_LIMIT:
        yield path
        return
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{name}"
    finally:
        os.close(handle)


def ring(folder: str, name: str) -> bool:
    """Wake whoever listens under this name; False if nobody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as bell:
        try:
            with _address(folder, name) as address:
                bell.sendto(b"!", address)
        except BlockingIOError:
            return True  # its queue of rings is full: it will wake
        except OSError:
            return False
    return True


class Doorbell:
    """The listener's side. The holder of a lock on the folder may take over a dead one's address."""

    def __init__(self, folder: str, name: str) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))
        with _address(folder, name) as address:
            self._socket.bind(address)

    def fileno(self) -> int:
        """For select and epoll."""
        return self._socket.fileno()

    def clear(self) -> None:
        """Take all rings at once."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(1)

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
