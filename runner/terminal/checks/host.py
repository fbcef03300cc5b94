"""Checks of the host: Python, kernel, shell, clock, limits and GPUs. They never load the driver's library."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from contextlib import closing
from importlib import metadata
from typing import TYPE_CHECKING

from runner.config.home import RUNNER_LOCK
from runner.errors import NightshiftError
from runner.gpu import load_check
from runner.gpu.availability import STALE_AFTER_S
from runner.gpu.nvml_errors import WRONG_BINDING
from runner.gpu.published import read_published
from runner.gpu.sampler_client import SamplerClient
from runner.gpu.sim import state
from runner.processes import linux, process_lock
from runner.processes.file_changes import Changes
from runner.supervisor import cgroup
from runner.terminal.checks import FAIL, INFO, OK, WARN, Finding, Problem, check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.model import Snapshot

OLDEST_BINDING = (12, 535, 108)
_LEVELS = {load_check.OK: OK, load_check.WARNING: WARN, load_check.ERROR: FAIL}
OLDEST_PYTHON = (3, 10)
SANE_YEARS = range(2024, 2100)
HOW_TO_ENFORCE = (
    "if you want that: a systemd service (systemd 254 or newer) with Delegate=yes and DelegateSubgroup=nightshift;"
    " see docs/running.md"
)


@check("python")
def python() -> str:
    """Check the version of Python."""
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        raise Problem(f"{version} is too old", "install nightshift with Python 3.10 or newer")
    return f"{version} ({sys.executable})"


@check("pidfd")
def pidfd() -> str:
    """Check that the kernel gives handles for processes (pidfd)."""
    kernel = f"Linux {platform.release()}"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        fix = "Linux 5.3 or newer is needed; a sandbox (seccomp) may forbid pidfd_open"
        raise Problem(f"{kernel} does not hand out pidfds", fix) from None
    return kernel


@check("subreaper")
def subreaper() -> str:
    """Check that orphans of a job become children of its supervisor."""
    if not orphans_come_to_us():
        fix = "a sandbox forbids prctl(PR_SET_CHILD_SUBREAPER): run outside of it"
        raise Problem("orphans of a job do not come to its supervisor: strays could outlive it", fix)
    return "orphans of a job come to its supervisor"


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
    linux.become_subreaper()
    hear, tell = os.pipe()
    parent = os.fork()
    if parent == 0:
        between = os.getpid()
        if os.fork() == 0:
            while os.getppid() == between:
                time.sleep(0.001)
            os.write(tell, str(os.getppid()).encode())
        os._exit(0)
    os.waitpid(parent, 0)
    return int(os.read(hear, 20)) == os.getpid()


@check("/proc")
def proc() -> str:
    """Check that /proc can be read: a job's processes are found there."""
    try:
        readable = os.getpid() in linux.Family().pids and os.path.exists("/proc/self/environ")
    except OSError:
        readable = False
    if not readable:
        raise Problem("cannot be read: processes of jobs could not be found", "mount /proc in the container")
    return "readable"


@check("bash")
def bash() -> str:
    """Check for bash, which runs the commands."""
    path = shutil.which("bash")
    if path is None:
        raise Problem("not found: commands are run by it", "install bash")
    return path


@check("inotify")
def inotify(folder: str) -> str:
    """Check whether changes of files are reported at once."""
    path = os.path.join(folder, f".doctor.{os.getpid()}")
    with closing(Changes(folder)) as changes:
        with open(path, "w", encoding="ascii") as file:
            file.write("?")
        began = time.monotonic()
        changes.wait(1.0)
        waited_s = time.monotonic() - began
        os.unlink(path)
    if waited_s >= 0.9:
        text = "changes are not reported: `log -f` and `wait` notice them every 5 s only"
        raise Problem(text, "raise fs.inotify.max_user_instances with sysctl", WARN)
    return "changes are reported at once"


@check("clock")
def clock() -> str:
    """Check that the wall clock shows a plausible year."""
    now = time.localtime()
    if now.tm_year not in SANE_YEARS:
        fix = "set the clock, and let NTP keep it (timedatectl set-ntp true)"
        raise Problem(f"says it is the year {now.tm_year}", fix, WARN)
    return time.strftime("%Y-%m-%d %H:%M:%S %Z %z", now)


@check("clock steps")
def clock_steps() -> str:
    """Check that the wall clock does not jump."""
    wall, steady = time.time(), time.monotonic()
    time.sleep(0.05)
    drift_s = (time.time() - wall) - (time.monotonic() - steady)
    if abs(drift_s) >= 0.02:
        text = f"the wall clock moved by {drift_s:+.2f} s within a moment"
        raise Problem(text, "something keeps setting it: times of jobs will look odd", WARN)
    return "wall and monotonic clock agree"


@check("limits")
def limits(home: str) -> str:
    """Check whether the kernel enforces --cpus and --ram of jobs. Useful, but not required."""
    pid = process_lock.holder(home, RUNNER_LOCK)
    if pid is None:
        raise Problem("whether --cpus and --ram of jobs are enforced is known when a runner is up", level=INFO)
    try:
        enforced = cgroup.controllers(cgroup.delegated(pid))
    except cgroup.NotEnforcedError as why:
        text = f"--cpus and --ram are reserved and passed to the job, but not enforced: {why}"
        raise Problem(text, HOW_TO_ENFORCE, INFO) from None
    what = " and ".join({cgroup.CPU: "--cpus", cgroup.MEMORY: "--ram"}[name] for name in enforced)
    return f"{what} of jobs are enforced by control groups"


@check("binding")
def binding() -> str:
    """Check that nvidia-ml-py is installed and recent, and no other package that provides the same module."""
    version = _version_of("nvidia-ml-py")
    namesakes = [name for name in ("pynvml", "nvidia-ml-py3") if _version_of(name)]
    installed = f"nvidia-ml-py {version or 'is not installed'}"
    if version is None or namesakes or _numbers(version) < OLDEST_BINDING:
        raise Problem(installed + (f", beside {' and '.join(namesakes)}" if namesakes else ""), WRONG_BINDING)
    return installed


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


@check("GPUs")
def driver(home: str, gpus: str) -> Iterator[Finding]:
    """Check whether the driver answers, by fresh readings of the runner or by a private sampler."""
    if gpus == "none":
        yield Finding(INFO, "GPUs", "none, as NIGHTSHIFT_GPUS says")
        return
    try:
        if gpus.startswith("sim:"):
            state.parse_spec(gpus)
        is_up = process_lock.runner_is_up(home)
        snapshot = (_published(home) if is_up else None) or _sampled(home, gpus)
    except NightshiftError as error:
        yield Finding(FAIL, "GPUs", str(error), "nightshift needs them, unless NIGHTSHIFT_GPUS=none")
        return
    simulated = " (SIMULATED)" if snapshot.simulated else ""
    yield Finding(OK, "GPUs", f"{len(snapshot.gpus)} found, driver {snapshot.driver or 'unknown'}{simulated}")
    if snapshot.trouble:
        yield Finding(FAIL, "GPUs", snapshot.trouble, "see `nvidia-smi` and `dmesg`")
    for gpu in snapshot.gpus:
        if gpu.health.value != "ok":
            yield Finding(WARN, f"GPU {gpu.index}", f"{gpu.health.value}: {gpu.detail}", "see `dmesg`")


def _published(home: str) -> Snapshot | None:
    published = read_published(home)
    return published[0] if published and published[1] < STALE_AFTER_S else None


def _sampled(home: str, gpus: str) -> Snapshot:
    with SamplerClient(home, gpus, "--private") as sampler:
        return sampler.sample(timeout_s=60.0)


@check("GPU load")
def under_load(home: str, gpus: str) -> Iterator[Finding]:
    """Load each free GPU and watch it: `doctor --gpu`."""
    for result in load_check.check(home, gpus):
        level = _LEVELS[result.level]
        yield Finding(level, "GPU load", result.sentence, "see `nvidia-smi` and `dmesg`" if level == FAIL else None)
