"""The process that supervisors are forked from. Single-threaded; it never opens the database or the network.

It keeps a few forks waiting on the runner's socket, so that no job waits for a fork. The fork that takes the next
order becomes its supervisor, and the zygote forks a new one. As the subreaper above all supervisors it also ends
what a killed supervisor leaves behind. When the runner is gone, it stays until its last supervisor has ended.
"""

from __future__ import annotations

import array
import contextlib
import gc
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import NamedTuple

from runner.processes import linux
from runner.supervisor.supervise import get_ready, supervise

ORDER_LIMIT = 1 << 14
TRY_AGAIN_MS = 500
SWEEPS, SWEEP_EVERY_S = 100, 0.002
TAKEN = struct.Struct("<i")  # the pid of a fork that has taken an order


def main(arguments: list[str]) -> None:
    """Serve orders from a socket. The arguments are its descriptor and the number of forks to keep waiting."""
    zygote = Zygote(socket.socket(fileno=int(arguments[0])), spares_wanted=int(arguments[1]))
    zygote.serve()


class Zygote:
    """Forks, and tells its children apart: waiting forks, supervisors, and orphans of dead supervisors."""

    def __init__(self, orders: socket.socket, spares_wanted: int) -> None:
        self._orders = orders
        self._spares_wanted = spares_wanted
        self._spares: set[int] = set()
        self._supervisors: set[int] = set()
        self._patience_ms: int | None = None
        self._boot_id = linux.boot_id()
        self._taken, self._take = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def serve(self) -> None:
        """Fork and reap until the runner is gone and every supervisor has ended."""
        linux.set_name("ns-zygote")
        linux.become_subreaper()
        ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
        self._wake = linux.readable_signals([signal.SIGCHLD], ignored)
        gc.collect()
        gc.freeze()
        gc.disable()  # all forks share these pages; a collection would copy them
        poll = select.poll()
        for descriptor in (self._taken, self._wake):
            poll.register(descriptor, select.POLLIN)
        orders = self._orders.fileno()
        poll.register(orders, 0)  # only to notice its hang-up: the forks read the orders
        while True:
            self._read_taken()
            self._reap()
            self._patience_ms = None
            while len(self._spares) < self._spares_wanted and self._patience_ms is None:
                self._fork()
            if not self._spares_wanted and not self._supervisors:
                return
            if any(descriptor == orders for descriptor, _ in poll.poll(self._patience_ms)):
                self._spares_wanted = 0
                poll.unregister(orders)
                self._orders.close()  # orders that no fork took are lost with it

    def _read_taken(self) -> None:
        """Read which forks have become supervisors."""
        with contextlib.suppress(BlockingIOError):
            while note := os.read(self._taken, TAKEN.size):
                (pid,) = TAKEN.unpack(note)
                self._spares.discard(pid)
                self._supervisors.add(pid)

    def _reap(self) -> None:
        """Reap ended children. If a supervisor was killed or failed, or an orphan ended, kill the other orphans."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake, 256):
                pass
        orphaned = False
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                self._read_taken()  # a fork writes its note before it can end
                orphaned |= status != 0 or pid not in self._spares | self._supervisors
                self._spares.discard(pid)
                self._supervisors.discard(pid)
        if orphaned:
            self._end_orphans()

    def _end_orphans(self) -> None:
        """Kill the children that are neither forks nor supervisors: their supervisor is gone.

        Each kill may turn its children into ours, so look again until none is left.
        """
        ours = self._spares | self._supervisors
        for _ in range(SWEEPS):  # what survives this is tried again when the next child ends
            family = linux.Family()
            orphans = [pid for pid in family.children(os.getpid()) if pid not in ours]
            if not orphans:
                return
            linux.kill_all([*orphans, *(below for pid in orphans for below in family.descendants(pid))])
            time.sleep(SWEEP_EVERY_S)

    def _fork(self) -> None:
        try:
            pid = os.fork()
        except OSError:
            self._patience_ms = TRY_AGAIN_MS
            return
        if pid:
            self._spares.add(pid)
            return
        code = 1
        try:
            self._wait_for_order()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def _wait_for_order(self) -> None:
        """Take one order and become its supervisor. Runs in the fork."""
        linux.die_with_parent(signal.SIGKILL)
        os.setsid()
        ready = get_ready(self._boot_id)
        order = receive(self._orders)
        if order is None:
            return
        linux.die_with_parent(0)
        linux.set_name("ns-supervisor")
        self._orders.close()
        # _report_taken makes the zygote fork the next one, only after the job has started
        supervise(ready, *order, self._report_taken)

    def _report_taken(self) -> None:
        os.write(self._take, TAKEN.pack(os.getpid()))


class StartOrder(NamedTuple):
    """What the runner sends for an attempt."""

    folder: str  # its run directory
    lock: int  # the run directory's lock, held
    leash: int  # pipe on which the supervisor reports to the runner


def receive(orders: socket.socket) -> StartOrder | None:
    """Return the next order; None if the runner is gone."""
    fds = array.array("i")
    message, ancillary, _, _ = orders.recvmsg(ORDER_LIMIT, socket.CMSG_SPACE(2 * fds.itemsize), socket.MSG_CMSG_CLOEXEC)
    for _, _, data in ancillary:
        fds.frombytes(data[: 2 * fds.itemsize])
    return StartOrder(os.fsdecode(message), fds[0], fds[1]) if message else None


def send(orders: socket.socket, order: StartOrder) -> None:
    """Send an order to `receive`. Does not wait: raises BlockingIOError if too many orders are waiting."""
    fds = array.array("i", [order.lock, order.leash])
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]
    orders.sendmsg([os.fsencode(order.folder)], ancillary, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
