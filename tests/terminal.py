"""A command at a real terminal: a pty, as a terminal window or ssh gives it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import struct
import sys
import termios
import threading
import time

from tests.box import Box


class Terminal:
    """The command, and all that was seen on its screen."""

    def __init__(self, box: Box, *words: str, shell: str = "", **env: str) -> None:
        """Call the command with these words; with `shell`, that shell text instead."""
        command = ["/bin/sh", "-c", shell] if shell else box.command(*words)
        self._box, self._before = box, 0
        self._before = max(self.jobs(), default=0)
        self.pid, self.screen = pty.fork()
        if self.pid == 0:
            os.execve(command[0] if shell else sys.executable, command, {**box.environ, **env})
        self.seen = b""

    def jobs(self) -> list[int]:
        """The jobs submitted since the terminal is there."""
        ids = [int(job["id"]) for job in json.loads(self._box.run("ls", "--json").stdout)]
        return sorted(job_id for job_id in ids if job_id > self._before)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def until(self, text: bytes) -> None:
        deadline = time.monotonic() + 60
        while text not in self.seen:
            assert select.select([self.screen], [], [], deadline - time.monotonic())[0], self.seen
            try:
                self.seen += os.read(self.screen, 4096)
            except OSError:
                raise AssertionError(f"ended without {text!r}: {self.seen.decode()}") from None

    def type(self, text: bytes) -> None:
        os.write(self.screen, text)

    def close(self) -> None:
        """As when ssh is cut off: the command gets SIGHUP."""
        os.close(self.screen)
        os.waitpid(self.pid, 0)

    def code(self) -> int:
        """Its exit code, once it has ended."""

        def drain() -> None:
            with contextlib.suppress(OSError):
                while data := os.read(self.screen, 4096):
                    self.seen += data

        reader = threading.Thread(target=drain)
        reader.start()
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        reader.join()
        os.close(self.screen)
        return code
