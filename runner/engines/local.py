"""Attempts on this host: a zygote from which supervisors are forked."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess

from runner.errors import TransientError
from runner.interpreter import python_command
from runner.supervisor import zygote

log = logging.getLogger(__name__)


class LocalEngine:
    """One zygote, replaced when it dies."""

    def __init__(self, home: str, spares: int = 2) -> None:
        self._home, self._spares = home, spares
        self._start_zygote()

    def _start_zygote(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                python_command("runner.supervisor.zygote", str(theirs.fileno()), str(self._spares)),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the runner's terminal is not for the jobs
                # nothing of ours to inherit but what tells this box's processes from another's
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "NIGHTSHIFT_HOME": self._home},
                cwd="/",
            )
        self.pidfd = os.pidfd_open(self._process.pid)

    @property
    def pid(self) -> int:
        """Of the zygote that takes orders now."""
        return self._process.pid

    def replace_dead_zygote(self) -> None:
        """Called when `pidfd` is readable. Orders that nobody took come back through their leashes."""
        self.close()
        log.warning("zygote %s died (%s); starting another", self._process.pid, self._process.wait())
        self._start_zygote()

    def start(self, folder: str, lock: int) -> int:
        """See Engine.start."""
        leash, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            zygote.send(self._orders, folder, lock, theirs)
        except OSError as error:
            os.close(leash)
            raise TransientError(f"the zygote takes no orders: {error}") from error
        finally:
            os.close(theirs)
            os.close(lock)
        return leash

    def close(self) -> None:
        """See Engine.close."""
        self._orders.close()
        with contextlib.suppress(OSError):
            os.close(self.pidfd)
