"""An attempt with a terminal: the job gets a pty, and the client of `nightshift run` sees it through a socket.

The job starts when its client has come, so that it sees the right window size and nothing it prints is missed. Only
one client can come. When it leaves, the job is hung up and then stopped: nobody sees it, so it must not hold a GPU.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import termios
import time
from collections import deque
from dataclasses import replace

from runner import clock, rundir
from runner.processes import linux
from runner.processes.doorbell import address_of
from runner.supervisor.job_processes import CHUNK, Execution, Since

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runner.model import Exit
    from runner.rundir import AttemptSpec
    from runner.supervisor.job_processes import Ready

INPUT, WINDOW = b"i", b"w"  # how a message of the client begins: what was typed, or a struct winsize
COMES_WITHIN_S = 30.0
LEAVES_WITHIN_S = 5.0  # from SIGHUP to the stop
LOOK_EVERY_S = 0.1
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid


class TerminalAttempt(Execution):
    """The processes of a job with a terminal, and its client."""

    def __init__(self, folder: str, spec: AttemptSpec, ready: Ready) -> None:
        self._master, self._slave = os.openpty()  # the slave stays open: so the job may close and open it again
        os.set_blocking(self._master, False)
        super().__init__(folder, spec, ready._replace(drain=self._master, pipe=os.dup(self._slave)))
        for descriptor in (ready.drain, ready.pipe):
            os.close(descriptor)
        self._client: socket.socket | None = None
        self._typed = b""  # for the job
        self._unseen: deque[bytes] = deque()  # output for the client
        self._hung_up = False
        self._stop_at: float | None = None
        self._look_at: float | None = None
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with address_of(folder, rundir.TERMINAL) as address:
                self._door.bind(address)
            self._door.listen(1)
        except OSError as error:
            self._spawn_error = f"its terminal cannot be opened: {error.strerror}"

    # -- the client comes ------------------------------------------------------------------------------------------

    def _launch(self) -> None:
        if self._spawn_error is None and self._client_comes():
            super()._launch()
        else:
            self._launched = self._ended_at = time.monotonic()
            self._since = Since(clock.text(clock.now()), self._launched)
        self._door.close()
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._folder, rundir.TERMINAL))

    def _client_comes(self) -> bool:
        """Wait for the client and the size of its window. Return False if it does not come, or a stop does."""
        poll, until = select.poll(), time.monotonic() + COMES_WITHIN_S
        for descriptor in (self._wake, self._door.fileno()):
            poll.register(descriptor, select.POLLIN)
        while self._client is None and (left_s := until - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(left_s * 1000):
                if descriptor == self._door.fileno():
                    self._client = self._accepted()
                elif signal.SIGTERM in os.read(self._wake, 256):
                    self.asked_to_stop = self._stopped = True
                    return False
        self._hung_up = self._client is None
        return not self._hung_up

    def _accepted(self) -> socket.socket | None:
        """Take the client, if it is of this account and says how large its window is."""
        client, _ = self._door.accept()
        _, user, _ = _PEER.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        client.settimeout(1.0)
        with contextlib.suppress(OSError):
            if user == os.getuid() and (message := client.recv(CHUNK)):
                self._take_message(message)
                client.setblocking(False)
                return client
        client.close()
        return None

    # -- while it is there -----------------------------------------------------------------------------------------

    def _listen(self) -> None:
        super()._listen()
        self._listen_again()

    def _listen_again(self) -> None:
        """Wait only for what there is room for: neither side may fill our memory while the other does not read."""
        if self._client is None:
            self._poll.register(self._master, select.POLLIN)
            return
        takes_output, takes_input = not self._unseen, not self._typed
        self._poll.register(
            self._master, (select.POLLIN if takes_output else 0) | (0 if takes_input else select.POLLOUT)
        )
        self._poll.register(
            self._client, (select.POLLIN if takes_input else 0) | (0 if takes_output else select.POLLOUT)
        )

    def _hear(self, descriptor: int) -> None:
        if descriptor == self._wake:
            self._take_signals()
        elif descriptor == self._master:
            self._pass_on_input()
            self._take_output()
        elif self._client is not None:
            self._pass_on_output()
            self._hear_client(self._client)
        self._listen_again()

    def _keep_output(self, data: bytes) -> None:
        super()._keep_output(data)
        if self._client is not None:
            self._unseen.append(data)
            self._pass_on_output()

    def _pass_on_output(self) -> None:
        with contextlib.suppress(OSError):  # it takes no more now, or it is gone, which `_hear_client` finds
            while self._client is not None and self._unseen:
                self._client.send(self._unseen[0])
                self._unseen.popleft()

    def _pass_on_input(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._typed:
                self._typed = self._typed[os.write(self._master, self._typed) :]

    def _hear_client(self, client: socket.socket) -> None:
        try:
            message = client.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if message:
            self._take_message(message)
        else:
            self._hang_up(client)

    def _take_message(self, message: bytes) -> None:
        kind, body = message[:1], message[1:]
        if kind == INPUT:
            self._typed += body
            self._pass_on_input()
        elif kind == WINDOW:
            with contextlib.suppress(OSError, ValueError):
                fcntl.ioctl(self._master, termios.TIOCSWINSZ, body)  # the kernel sends SIGWINCH

    # -- the end ---------------------------------------------------------------------------------------------------

    def _hang_up(self, client: socket.socket) -> None:
        """Send SIGHUP to the job, as a terminal does that is closed. It has some seconds to end by itself."""
        self._poll.unregister(client)
        client.close()
        self._client = None
        self._unseen.clear()
        if self._status is None:
            self._hung_up = True
            self._stop_at = time.monotonic() + LEAVES_WITHIN_S
            linux.send(linux.descendants(os.getpid()), signal.SIGHUP, signal.SIGCONT)

    def _end_within(self, grace_s: float) -> None:
        super()._end_within(grace_s)
        self._look_at = time.monotonic()

    def _keep_time(self) -> None:
        super()._keep_time()
        now = time.monotonic()
        if self._stop_at is not None and now >= self._stop_at:
            self._stop_at = None
            self._stop()
        if self._look_at is not None and now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            self._hang_up_shell()

    def _hang_up_shell(self) -> None:
        """Send SIGHUP to the main process once it is alone: an interactive shell ignores SIGTERM.

        Not before: a shell passes it on to programs that may be saving their state because of the SIGTERM.
        """
        if self._main is not None and linux.descendants(os.getpid()) == [self._main]:
            linux.send([self._main], signal.SIGHUP)

    def _due(self) -> tuple[float | None, ...]:
        return (*super()._due(), self._stop_at, self._look_at)

    def watch(self) -> None:
        """Return when all of the job's processes are gone and its client has got the rest of the output."""
        super().watch()
        if self._client is not None:
            self._client.settimeout(1.0)
            self._pass_on_output()
            self._client.close()

    @property
    def is_clean(self) -> bool:
        """Return False: this process had a terminal, and no other job may find anything of it."""
        return False

    def exit(self) -> Exit:
        """Return how the attempt ended."""
        return replace(super().exit(), hung_up=self._hung_up)
