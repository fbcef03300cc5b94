"""Checks of the host: Python, kernel, shell, clock, limits."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

from runner.terminal.checks.finding import INFO, OK, WARN, Finding, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST_PYTHON = (3, 10)
SANE_YEARS = range(2024, 2100)
HOW_TO_ENFORCE = (
    "if you want that: a systemd service (systemd 254 or newer) with Delegate=yes and DelegateSubgroup=nightshift;"
    " see docs/running.md"
)


def python() -> Iterator[Finding]:
    """Check the version of Python."""
    version = platform.python_version()
    yield verdict(
        sys.version_info >= OLDEST_PYTHON,
        "python",
        f"{version} ({sys.executable})",
        f"{version} is too old",
        "install nightshift with Python 3.10 or newer",
    )


def pidfd() -> Iterator[Finding]:
    """Check that the kernel gives handles for processes (pidfd)."""
    try:
        os.close(os.pidfd_open(os.getpid()))
        works = True
    except OSError:
        works = False
    yield verdict(
        works,
        "pidfd",
        f"Linux {platform.release()}",
        f"Linux {platform.release()} does not hand out pidfds",
        "Linux 5.3 or newer is needed; a sandbox (seccomp) may forbid pidfd_open",
    )


def subreaper() -> Iterator[Finding]:
    """Check that orphans of a job become children of its supervisor."""
    yield verdict(
        orphans_come_to_us(),
        "subreaper",
        "orphans of a job come to its supervisor",
        "orphans of a job do not come to its supervisor: strays could outlive it",
        "a sandbox forbids prctl(PR_SET_CHILD_SUBREAPER): run outside of it",
    )


def orphans_come_to_us() -> bool:
    """Try it in a child process. Return whether it adopted an orphan."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        os._exit(0 if _adopts_an_orphan() else 1)
    finally:
        os._exit(1)


def _adopts_an_orphan() -> bool:
    from runner.processes import linux

    linux.become_subreaper()
    told, tell = os.pipe()
    parent = os.fork()
    if parent == 0:
        between = os.getpid()
        if os.fork() == 0:
            while os.getppid() == between:
                time.sleep(0.001)
            os.write(tell, str(os.getppid()).encode())
        os._exit(0)
    os.waitpid(parent, 0)
    return int(os.read(told, 20)) == os.getpid()


def proc() -> Iterator[Finding]:
    """Check that /proc can be read: a job's processes are found there."""
    from runner.processes import linux

    try:
        seen = os.getpid() in linux.Family().pids and os.path.exists("/proc/self/environ")
    except OSError:
        seen = False
    yield verdict(
        seen,
        "/proc",
        "readable",
        "cannot be read: processes of jobs could not be found",
        "mount /proc in the container",
    )


def bash() -> Iterator[Finding]:
    """Check for bash, which runs the commands."""
    found = shutil.which("bash")
    yield verdict(found is not None, "bash", str(found), "not found: commands are run by it", "install bash")


def inotify(folder: str) -> Iterator[Finding]:
    """Check whether changes of files are reported at once."""
    from runner.terminal.wait_for_jobs import Changes

    path = os.path.join(folder, f".doctor.{os.getpid()}")
    with closing(Changes(folder)) as changes:
        with open(path, "w", encoding="ascii") as file:
            file.write("?")
        began = time.monotonic()
        changes.wait(1.0)
        told = time.monotonic() - began < 0.9
        os.unlink(path)
    yield verdict(
        told,
        "inotify",
        "changes are told at once",
        "changes are not told: `log -f` and `wait` notice them every 5 s only",
        "raise fs.inotify.max_user_instances with sysctl",
        level=WARN,
    )


def clock() -> Iterator[Finding]:
    """Check that the wall clock shows a plausible year and does not jump."""
    now = time.localtime()
    zone = time.strftime("%Z %z", now)
    yield verdict(
        now.tm_year in SANE_YEARS,
        "clock",
        f"{time.strftime('%Y-%m-%d %H:%M:%S', now)} {zone}",
        f"says it is the year {now.tm_year}",
        "set the clock, and let NTP keep it (timedatectl set-ntp true)",
        level=WARN,
    )
    wall, steady = time.time(), time.monotonic()
    time.sleep(0.05)
    drift_s = (time.time() - wall) - (time.monotonic() - steady)
    yield verdict(
        abs(drift_s) < 0.02,
        "clock steps",
        "wall and monotonic clock agree",
        f"the wall clock moved by {drift_s:+.2f} s within a moment",
        "something keeps setting it: times of jobs will look odd",
        level=WARN,
    )


def limits(home: str) -> Iterator[Finding]:
    """Check whether the kernel enforces --cpus and --ram of jobs. Useful, but not required."""
    from runner.config.home import RUNNER_LOCK
    from runner.processes.process_lock import holder
    from runner.supervisor import cgroup

    pid = holder(home, RUNNER_LOCK)
    if pid is None:
        yield Finding(INFO, "limits", "whether --cpus and --ram of jobs are enforced is known when a runner is up")
        return
    try:
        given = cgroup.controllers(cgroup.delegated(pid))
    except cgroup.NotEnforcedError as why:
        told = f"--cpus and --ram are reserved and passed to the job, but not enforced: {why}"
        yield Finding(INFO, "limits", told, HOW_TO_ENFORCE)
        return
    what = " and ".join({cgroup.CPU: "--cpus", cgroup.MEMORY: "--ram"}[name] for name in given)
    yield Finding(OK, "limits", f"{what} of jobs are enforced by control groups")
