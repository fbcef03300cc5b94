"""The process that supervisors are forked from, as the engine sees it: kept alive, and given orders."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import socket
import subprocess
import time
from typing import TYPE_CHECKING

from runner.errors import TransientError
from runner.processes.interpreter import python_command
from runner.supervisor import zygote

if TYPE_CHECKING:
    from runner.processes.waiter import Waiter

log = logging.getLogger(__name__)

STABLE_AFTER_S = 5.0
TRY_AGAIN_S = 1.0
RESTART_AT_MOST_EVERY_S = 30.0


class ZygoteProcess:
    """Keeps one zygote, and starts another when it dies."""

    def __init__(self, home: str, spares: int = 2) -> None:
        self._home, self._open_files, self._spares = home, _open_more_files(), spares
        self._wait_s = 0.0
        self._start_process()

    def listen(self, waiter: Waiter) -> None:
        """Replace the zygote when it dies."""
        self._waiter = waiter
        waiter.add(self._pidfd, self._replace)

    def _start_process(self) -> None:
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
        self._pidfd = os.pidfd_open(self._process.pid)
        # the runner raised its own limit of open files; jobs get the usual one
        resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, self._open_files)

    def _replace(self) -> bool:
        """Clean up after a dead zygote. The leashes of orders that no fork took close, so the engine learns of them."""
        self._waiter.remove(self._pidfd)
        self.close()
        if time.monotonic() - self._started_at > STABLE_AFTER_S:
            self._wait_s = 0.0
        log.warning("zygote %s died (%s); another in %.1f s", self._process.pid, self._process.wait(), self._wait_s)
        self._waiter.after(self._wait_s, self._revive)
        self._wait_s = min(max(0.1, 2 * self._wait_s), RESTART_AT_MOST_EVERY_S)
        return False

    def _revive(self) -> bool:
        try:
            self._start_process()
        except OSError as error:
            log.error("no zygote can be started: %s", error)
            self._waiter.after(TRY_AGAIN_S, self._revive)
        else:
            self._waiter.add(self._pidfd, self._replace)
        return False

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
            os.close(self._pidfd)


def _open_more_files() -> tuple[int, int]:
    """Raise our limit of open files, since each live job takes two. Return the old limit, which jobs get."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    return before
