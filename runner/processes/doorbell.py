"""A Unix datagram that wakes its listener and carries no data. The listener looks at the database."""

from __future__ import annotations

import contextlib
import os

# not `socket`: its names for constants take 3 ms of every client's start
from _socket import AF_UNIX, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK, socket

KIND = SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC

ADDRESS_LIMIT = 107  # sun_path has 108 bytes, the last one is NUL


@contextlib.contextmanager
def address_of(folder: str, name: str):  # type: ignore[no-untyped-def]
    """Yield a path to the socket that fits into sun_path, however long the folder's path is."""
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
    """Wake the process that listens under this name. Return False if none does."""
    bell = socket(AF_UNIX, KIND)
    try:
        with address_of(folder, name) as address:
            bell.sendto(b"!", address)
    except BlockingIOError:
        return True  # its queue is full, so it will wake anyway
    except OSError:
        return False
    finally:
        bell.close()
    return True


class Doorbell:
    """The listener's side. It replaces an existing socket, so its owner must hold a lock on the folder."""

    def __init__(self, folder: str, name: str) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._socket = socket(AF_UNIX, KIND)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))
        with address_of(folder, name) as address:
            self._socket.bind(address)

    def fileno(self) -> int:
        """Return the descriptor, for select and poll."""
        return self._socket.fileno()

    def clear(self) -> None:
        """Read and drop all rings."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(1)

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
