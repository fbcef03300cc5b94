"""The process that supervisors are forked from. Single-threaded; it never opens the database or the network.

It keeps a few forks waiting on the runner's socket, so that no job waits for a fork. The fork that takes the next
order becomes its supervisor. When all of its job is over, it waits for another order, and leaves after a while without
one. The zygote forks a new one when too few wait. As the subreaper above all supervisors it also ends what a killed
supervisor leaves behind. When the runner is gone, it stays until its last supervisor has ended.
"""

from __future__ import annotations

import array
import contextlib
import gc
import mmap
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import NamedTuple

from runner.processes import linux
from runner.supervisor.supervise import get_ready, ready_again, supervise

ORDER_LIMIT = 1 << 14
TRY_AGAIN_MS = 500
SWEEPS, SWEEP_EVERY_S = 100, 0.002
MOST_FORKS = 1 << 14
JOBS_EACH = 1000  # then a supervisor leaves: it collects no garbage
LEAVES_AFTER_S = 5  # a fork that waits this long for an order leaves, if enough others wait
BUSY, WAITING = b"\0", b"w"
TIMEVAL = struct.Struct("@ll")  # what SO_RCVTIMEO takes


def main(arguments: list[str]) -> None:
    """Serve orders from a socket. The arguments are its descriptor and the number of forks to keep waiting."""
    zygote = Zygote(socket.socket(fileno=int(arguments[0])), spares_wanted=int(arguments[1]))
    zygote.serve()


class Zygote:
    """Forks, and tells its forks from the orphans of dead supervisors."""

    def __init__(self, orders: socket.socket, spares_wanted: int) -> None:
        self._orders = orders
        orders.set_inheritable(False)  # jobs must not get it
        # the kernel gives an order to the fork that has waited longest
        orders.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, TIMEVAL.pack(LEAVES_AFTER_S, 0))
        self._spares_wanted = spares_wanted
        self._forks: dict[int, int] = {}  # pid -> its place among the states
        self._states = mmap.mmap(-1, MOST_FORKS)  # shared: each fork writes whether it waits for an order
        self._boot_id = linux.boot_id()
        self._woken, self._wake_zygote = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

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
        for descriptor in (self._woken, self._wake):
            poll.register(descriptor, select.POLLIN)
        orders = self._orders.fileno()
        poll.register(orders, 0)  # only to notice its hang-up: the forks read the orders
        while True:
            _empty(self._woken)
            self._reap()
            forked = True
            while self._waiting() < self._spares_wanted and forked:
                forked = self._fork()
            if not self._spares_wanted and not self._forks:
                return
            if any(descriptor == orders for descriptor, _ in poll.poll(None if forked else TRY_AGAIN_MS)):
                self._spares_wanted = 0
                poll.unregister(orders)
                self._orders.close()  # orders that no fork took are lost with it

    def _waiting(self) -> int:
        """Return how many forks wait for an order."""
        return self._states[:].count(WAITING)

    def _note(self, place: int, state: bytes) -> None:
        self._states[place : place + 1] = state

    def _reap(self) -> None:
        """Reap ended children. If a supervisor was killed or failed, or an orphan ended, kill the other orphans."""
        _empty(self._wake)
        orphaned = False
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                orphaned |= status != 0 or pid not in self._forks
                if (place := self._forks.pop(pid, None)) is not None:
                    self._note(place, BUSY)
        if orphaned:
            self._end_orphans()

    def _end_orphans(self) -> None:
        """Kill the children that are not our forks: their supervisor is gone.

        Each kill may turn its children into ours, so look again until none is left.
        """
        for _ in range(SWEEPS):  # what survives this is tried again when the next child ends
            family = linux.Family()
            orphans = [pid for pid in family.children(os.getpid()) if pid not in self._forks]
            if not orphans:
                return
            linux.kill_all([*orphans, *(below for pid in orphans for below in family.descendants(pid))])
            time.sleep(SWEEP_EVERY_S)

    def _fork(self) -> bool:
        """Fork. Return False if the host cannot run another process now."""
        taken = set(self._forks.values())
        place = next((place for place in range(MOST_FORKS) if place not in taken), None)
        if place is None:
            return False
        self._note(place, WAITING)  # before the fork: it may take an order at once
        try:
            pid = os.fork()
        except OSError:
            self._note(place, BUSY)
            return False
        if pid:
            self._forks[pid] = place
            return True
        code = 1
        try:
            self._serve_orders(place)
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    # -- in the fork -------------------------------------------------------------------------------

    def _serve_orders(self, place: int) -> None:
        """Take an order and become its supervisor; then take the next. Runs in the fork."""
        linux.die_with_parent(signal.SIGKILL)
        os.setsid()
        ready = get_ready(self._boot_id)

        def taken() -> None:
            """Let the zygote fork another if too few wait, only after the job has started."""
            self._note(place, BUSY)
            if self._waiting() < self._spares_wanted:
                os.write(self._wake_zygote, b"t")

        for number in range(JOBS_EACH):
            order = self._next_order()
            if order is None:
                return
            if number == 0:
                linux.die_with_parent(0)
            linux.set_name("ns-supervisor")
            if not supervise(ready, *order, self._orders, taken):
                return
            linux.set_name("ns-zygote")
            self._note(place, WAITING)
            ready = ready_again(ready.started, ready.wake)

    def _next_order(self) -> StartOrder | None:
        """Wait for an order. Return None if the runner is gone, or if enough others wait."""
        while True:
            try:
                return receive(self._orders)
            except BlockingIOError:
                if self._waiting() > self._spares_wanted:
                    return None


def _empty(descriptor: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(descriptor, 256):
            pass


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
