"""One supervisor from start to end: take the order, start the job, wait for its end, record it. See `supervise`."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from dataclasses import replace

from runner import clock, rundir
from runner.processes import linux
from runner.supervisor import launch
from runner.supervisor.job_processes import Execution, Ready

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from socket import socket

STARTED, PROBED, GONE, ENDED, TROUBLE = b"s", b"p", b"g", b"x", b"e"  # what is sent on the leash


def get_ready(boot_id: str) -> Ready:
    """Do everything that can be done before there is a job, so that the job starts sooner."""
    linux.become_subreaper()
    launch.limit_core_files()
    # Ctrl-C and a closed terminal are ignored: jobs go on
    ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE)
    wake = linux.readable_signals((signal.SIGCHLD, signal.SIGTERM), ignored)
    at = clock.text(clock.now())
    started = rundir.StartRecord(
        pid=os.getpid(), start_time=linux.start_time(), boot_id=boot_id, extendable=True, at=at
    )  # fmt: skip
    rundir.warm_up(started)
    return ready_again(started, wake)


def ready_again(started: rundir.StartRecord, wake: int) -> Ready:
    """Prepare what each job needs for itself."""
    drain, pipe = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(drain, False)
    launch.offer_to_oom_killer()
    return Ready(replace(started, pipe=os.fstat(pipe).st_ino), wake, drain, pipe)


def supervise(
    ready: Ready, folder: str, lock: int, leash: int, orders: socket, on_start: Callable[[], None]
) -> bool:  # fmt: skip
    """Run one attempt from its spec to its exit record, and release the lock.

    Return whether this process may take another order. It may not after a job that left anything unusual. Before it
    does, the runner has noted the end: a request to stop that job cannot reach the next one.
    """
    spec = rundir.read_spec(folder)
    if spec is None:
        return False  # nothing was executed: the runner queues the job again
    with contextlib.suppress(BlockingIOError):
        os.read(ready.wake, 256)  # drop signals that came before there was a job
    at = clock.text(clock.now())
    started = replace(ready.started, job_id=spec.job_id, attempt=spec.attempt, run_id=spec.run_id, at=at)
    try:
        rundir.write_started(folder, started)
    except OSError as error:
        _report(leash, TROUBLE + str(error).encode())
        return False
    if spec.terminal:
        from runner.supervisor.terminal_attempt import TerminalAttempt  # imported late: most jobs do not need it

        orders.close()
        attempt: Execution = TerminalAttempt(folder, spec, ready)  # before the report: then its client can come
        _report(leash, STARTED)
        on_start()
        attempt.start()
        attempt.watch()
    elif spec.probe:
        from runner.supervisor import probed_attempt  # imported late: most jobs do not need it

        orders.close()
        rundir.reserve_exit(lock)
        _report(leash, STARTED)
        on_start()
        attempt = probed_attempt.run(folder, spec, ready, lambda: _report(leash, PROBED))
    else:
        attempt = Execution(folder, spec, ready, orders=orders)
        with _scratch_of(folder) if spec.trial else contextlib.nullcontext():
            attempt.start()
            rundir.reserve_exit(lock)
            _report(leash, STARTED)
            on_start()
            attempt.watch()
    _report(leash, GONE)  # the GPU can be read while the record is being written
    if not _record(folder, lock, attempt):
        orders.close()
        _record_late(folder, lock, attempt)
    goes_on = attempt.is_clean and orders.fileno() != -1
    if goes_on:
        attempt.close()
    os.close(lock)
    _report(leash, ENDED)  # comes sooner than the end of this process, which means the same
    if goes_on:
        _await_hang_up(leash)
    return goes_on


def _scratch_of(folder: str) -> AbstractContextManager[None]:
    from runner.supervisor.scratch import scratch_folder  # imported late: most jobs do not need it

    return scratch_folder(os.path.join(folder, rundir.SCRATCH))


def _report(leash: int, what: bytes) -> None:
    with contextlib.suppress(OSError):  # the runner is gone; the next one reads the run directory
        os.write(leash, what)


def _record(folder: str, lock: int, attempt: Execution) -> bool:
    """Write the exit record. Return whether that worked."""
    try:
        rundir.write_exit(folder, lock, attempt.exit())
    except OSError:
        return False
    return True


def _record_late(folder: str, lock: int, attempt: Execution) -> None:
    """Write the exit record when the disk has room again, or give up when the folder is gone."""
    wait_s = 0.05
    while os.path.isdir(folder) and not _record(folder, lock, attempt):
        time.sleep(wait_s)  # nothing wakes us when there is room again
        wait_s = min(2 * wait_s, 5.0)


def _await_hang_up(leash: int) -> None:
    """Wait until the runner has read that the job ended and has closed its end of the leash."""
    poll = select.poll()
    poll.register(leash, 0)
    poll.poll()
    os.close(leash)
