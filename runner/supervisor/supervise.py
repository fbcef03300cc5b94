"""One supervisor from start to end: take the order, start the job, wait for its end, record it. See `supervise`."""

from __future__ import annotations

import contextlib
import os
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

STARTED, PROBED, GONE, ENDED, TROUBLE = b"s", b"p", b"g", b"x", b"e"  # what is sent on the leash


def get_ready(boot_id: str) -> Ready:
    """Do everything that can be done before there is a job, so that the job starts sooner."""
    linux.become_subreaper()
    drain, pipe = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(drain, False)
    started = rundir.StartRecord(
        pid=os.getpid(),
        start_time=linux.start_time(),
        boot_id=boot_id,
        pipe=os.fstat(pipe).st_ino,
        extendable=True,
        at=clock.text(clock.now()),
    )
    # Ctrl-C and a closed terminal are ignored: jobs go on
    ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE)
    wake = linux.readable_signals((signal.SIGCHLD, signal.SIGTERM), ignored)
    launch.get_ready()
    rundir.warm_up(started)
    return Ready(started, wake, drain, pipe)


def supervise(ready: Ready, folder: str, lock: int, leash: int, on_start: Callable[[], None]) -> None:
    """Run one attempt from its spec to its exit record, and release the lock."""
    spec = rundir.read_spec(folder)
    if spec is None:
        return  # nothing was executed: the runner queues the job again
    with contextlib.suppress(BlockingIOError):
        os.read(ready.wake, 256)  # drop signals that came before there was a job
    at = clock.text(clock.now())
    started = replace(ready.started, job_id=spec.job_id, attempt=spec.attempt, run_id=spec.run_id, at=at)
    try:
        rundir.write_started(folder, started)
    except OSError as error:
        _report(leash, TROUBLE + str(error).encode())
        return
    if spec.probe:
        from runner.supervisor import probed_attempt  # imported late: most jobs do not need it

        _report(leash, STARTED)
        on_start()
        attempt = probed_attempt.run(folder, spec, ready, lambda: _report(leash, PROBED))
    else:
        attempt = Execution(folder, spec, ready)
        attempt.start()
        _report(leash, STARTED)
        on_start()
        attempt.watch()
    _report(leash, GONE)  # the GPU can be read while the record is being written
    _record(folder, attempt)
    os.close(lock)
    _report(leash, ENDED)  # comes sooner than the end of this process, which means the same


def _report(leash: int, what: bytes) -> None:
    with contextlib.suppress(OSError):  # the runner is gone; the next one reads the run directory
        os.write(leash, what)


def _record(folder: str, attempt: Execution) -> None:
    """Write the exit record. Retry until it works or the folder is gone."""
    wait_s = 0.05
    while True:
        try:
            rundir.write_exit(folder, attempt.reserved, attempt.exit())
        except OSError:
            if not os.path.isdir(folder):
                return
            time.sleep(wait_s)  # disk full: nothing wakes us when there is room again
            wait_s = min(2 * wait_s, 5.0)
        else:
            return
