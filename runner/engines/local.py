"""Runs attempts on this host: supervisors are forked from a zygote."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import socket
import subprocess
import time

from runner.errors import TransientError
from runner.processes.interpreter import python_command
from runner.supervisor import zygote

log = logging.getLogger(__name__)

STABLE_AFTER_S = 5.0
RESTART_AT_MOST_EVERY_S = 30.0


class LocalEngine:
    """Keeps one zygote. The runner replaces it with `clean_up` and `start_zygote` when it dies."""

    def __init__(self, home: str, open_files: tuple[int, int], spares: int = 2) -> None:
        self._home, self._open_files, self._spares = home, open_files, spares
        self._wait_s = 0.0
        self.start_zygote()

    def start_zygote(self) -> None:
        """Start a zygote. Raise OSError if the host cannot run another process."""
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                python_command("runner.supervisor.zygote", str(theirs.fileno()), str(self._spares)),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the runner's terminal must not reach the jobs
                # it inherits nothing of ours, except the state folder that tells this box's processes from another's
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "NIGHTSHIFT_HOME": self._home},
                cwd="/",
            )
        self._started_at = time.monotonic()
        self.pidfd = os.pidfd_open(self._process.pid)
        # the runner raised its own limit of open files; jobs get the usual one
        resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, self._open_files)

    def clean_up(self) -> float:
        """Clean up after a dead zygote, when `pidfd` is readable. Return the seconds to wait before `start_zygote`.

        The leashes of orders that no fork took close, so the runner learns of them.
        """
        self.close()
        if time.monotonic() - self._started_at > STABLE_AFTER_S:
            self._wait_s = 0.0
        log.warning("zygote %s died (%s); another in %.1f s", self._process.pid, self._process.wait(), self._wait_s)
        wait_s, self._wait_s = self._wait_s, min(max(0.1, 2 * self._wait_s), RESTART_AT_MOST_EVERY_S)
        return wait_s

    def start(self, folder: str, lock: int) -> int:
        """Start a supervisor for the attempt in this run directory. Takes over the lock's descriptor.

        Return the leash: a descriptor on which the supervisor reports its progress, a byte for each step. It closes
        when the supervisor ends. Raise TransientError if nothing can be started now.
        """
        try:
            leash, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                zygote.send(self._orders, zygote.StartOrder(folder, lock, theirs))
            except OSError as error:
                os.close(leash)
                raise TransientError(f"the zygote takes no orders: {error}") from error
            finally:
                os.close(theirs)
        finally:
            os.close(lock)
        return leash

    def close(self) -> None:
        """Start nothing more. Running attempts go on."""
        self._orders.close()
        with contextlib.suppress(OSError):
            os.close(self.pidfd)
