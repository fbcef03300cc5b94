"""Checks of the GPUs. They never load the driver's library into this process."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING

from runner.config.home import RUNNER_LOCK
from runner.errors import NightshiftError
from runner.gpu import load_check
from runner.gpu.sim import state
from runner.processes import process_lock
from runner.terminal.checks.finding import FAIL, INFO, OK, WARN, Finding, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.model import Snapshot

OLDEST_BINDING = (12, 535, 108)
_LEVELS = {load_check.OK: OK, load_check.WARNING: WARN, load_check.ERROR: FAIL}


def binding() -> Iterator[Finding]:
    """Check that nvidia-ml-py is installed and recent, and no other package that provides the same module."""
    from runner.gpu.nvml_errors import WRONG_BINDING

    version = _version_of("nvidia-ml-py")
    namesakes = [name for name in ("pynvml", "nvidia-ml-py3") if _version_of(name)]
    good = version is not None and not namesakes and _numbers(version) >= OLDEST_BINDING
    found = f"nvidia-ml-py {version or 'is not installed'}"
    also = f", beside {' and '.join(namesakes)}" if namesakes else ""
    yield verdict(good, "binding", found, found + also, WRONG_BINDING)


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
        is_up = process_lock.holder(home, RUNNER_LOCK) is not None
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
    from runner.gpu.published import read_published
    from runner.gpu.standing import STALE_AFTER_S

    found = read_published(home)
    return found[0] if found and found[1] < STALE_AFTER_S else None


def _sampled(home: str, gpus: str) -> Snapshot:
    from runner.gpu.sampler_client import SamplerClient

    with SamplerClient(home, gpus, "--private") as sampler:
        return sampler.sample(timeout_s=60.0)


def under_load(home: str, gpus: str) -> Iterator[Finding]:
    """Load each free GPU and watch it: `doctor --gpu`."""
    for found in load_check.check(home, gpus):
        level = _LEVELS[found.level]
        yield Finding(level, "GPU load", found.sentence, "see `nvidia-smi` and `dmesg`" if level == FAIL else None)
