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
from runner.supervisor import cgroup
from runner.terminal.checks import FAIL, INFO, OK, WARN, Finding, verdict
from runner.terminal.wait import Changes

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


def proc() -> Iterator[Finding]:
    """Check that /proc can be read: a job's processes are found there."""
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
    path = os.path.join(folder, f".doctor.{os.getpid()}")
    with closing(Changes(folder)) as changes:
        with open(path, "w", encoding="ascii") as file:
            file.write("?")
        began = time.monotonic()
        changes.wait(1.0)
        reported = time.monotonic() - began < 0.9
        os.unlink(path)
    yield verdict(
        reported,
        "inotify",
        "changes are reported at once",
        "changes are not reported: `log -f` and `wait` notice them every 5 s only",
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
    pid = process_lock.holder(home, RUNNER_LOCK)
    if pid is None:
        yield Finding(INFO, "limits", "whether --cpus and --ram of jobs are enforced is known when a runner is up")
        return
    try:
        enforced = cgroup.controllers(cgroup.delegated(pid))
    except cgroup.NotEnforcedError as why:
        text = f"--cpus and --ram are reserved and passed to the job, but not enforced: {why}"
        yield Finding(INFO, "limits", text, HOW_TO_ENFORCE)
        return
    what = " and ".join({cgroup.CPU: "--cpus", cgroup.MEMORY: "--ram"}[name] for name in enforced)
    yield Finding(OK, "limits", f"{what} of jobs are enforced by control groups")


def binding() -> Iterator[Finding]:
    """Check that nvidia-ml-py is installed and recent, and no other package that provides the same module."""
    version = _version_of("nvidia-ml-py")
    namesakes = [name for name in ("pynvml", "nvidia-ml-py3") if _version_of(name)]
    good = version is not None and not namesakes and _numbers(version) >= OLDEST_BINDING
    installed = f"nvidia-ml-py {version or 'is not installed'}"
    also = f", beside {' and '.join(namesakes)}" if namesakes else ""
    yield verdict(good, "binding", installed, installed + also, WRONG_BINDING)


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


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


def under_load(home: str, gpus: str) -> Iterator[Finding]:
    """Load each free GPU and watch it: `doctor --gpu`."""
    for result in load_check.check(home, gpus):
        level = _LEVELS[result.level]
        yield Finding(level, "GPU load", result.sentence, "see `nvidia-smi` and `dmesg`" if level == FAIL else None)
