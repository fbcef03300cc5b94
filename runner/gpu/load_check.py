"""The check behind `nightshift doctor --gpu`: puts a short load on each free GPU and watches what the driver reports.

A private sampler process does the watching; this process never touches NVML. Simulated GPUs get simulated load,
and the findings say so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from runner.errors import NightshiftError
from runner.gpu.availability import why_not_free
from runner.gpu.sampler_client import FIRST_ANSWER_S, SamplerClient
from runner.model import GpuHealth
from runner.processes.interpreter import python_command

if TYPE_CHECKING:
    from runner.model import Gpu, Snapshot

OK, WARNING, ERROR = "ok", "warning", "error"

MEMORY_MIB = 512
LOAD_STARTS_WITHIN_S = 90.0  # the first import of a deep-learning framework is slow
MEMORY_BACK_WITHIN_S = 30.0
BACK_AT_MIB = 64
LOOK_EVERY_S = 0.1
NO_TORCH = 77

_TORCH = f"""
import sys, time
try:
    import torch
except ImportError:
    sys.exit({NO_TORCH})
held = torch.empty(int(sys.argv[1]) << 20, dtype=torch.uint8, device="cuda").zero_()
square = torch.randn(2048, 2048, device="cuda")
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    square = torch.tanh(square @ square)
    torch.cuda.synchronize()
"""

_UNSEEN = (
    ("utilization", "its utilisation: idle jobs on it are not noticed"),
    ("processes", "who uses it: memory is only known for the whole GPU"),
    ("memory_reserved_mib", "reserved memory: an idle GPU seems to use some hundred MiB"),
    ("power_w", "its power"),
    ("temperature_c", "its temperature"),
)


class LoadFinding(NamedTuple):
    """One result of the check, and whether it is a problem."""

    level: str
    sentence: str


@dataclass(slots=True)
class _UnderLoad:
    """What the sampler reported about a GPU under load."""

    before: Gpu
    rise_mib: int = 0
    utilization: int = 0
    new_pids: set[int] = field(default_factory=set)

    def add(self, now: Gpu) -> None:
        if now.memory_used_mib is not None and self.before.memory_used_mib is not None:
            self.rise_mib = max(self.rise_mib, now.memory_used_mib - self.before.memory_used_mib)
        self.utilization = max(self.utilization, now.utilization or 0)
        old = {process.pid for process in self.before.processes or ()}
        self.new_pids |= {process.pid for process in now.processes or ()} - old


def check(home: str, gpus: str, *, python: str | None = None, seconds: float = 4.0) -> list[LoadFinding]:
    """Look at every GPU and load each free one for `seconds`, with the PyTorch of the given interpreter."""
    try:
        with SamplerClient(home, gpus, "--private", "--period-s", "3600") as sampler:
            first = sampler.sample(FIRST_ANSWER_S)
            findings = _about_all(first)
            for gpu in first.gpus:
                findings += _about_one(gpu)
                findings += _Trial(home, sampler, gpu, first.simulated, python, seconds).run()
            return findings
    except NightshiftError as error:
        return [LoadFinding(ERROR, str(error))]


@dataclass(slots=True)
class _Trial:
    """A load on one GPU, watched before, during and after."""

    _home: str
    _sampler: SamplerClient
    _gpu: Gpu
    _simulated: bool
    _python: str | None
    _seconds: float

    def run(self) -> list[LoadFinding]:
        """Load the GPU if it is free, and return the findings."""
        if why_not := why_not_free(self._gpu, leased_by_us=0):
            return [LoadFinding(WARNING, f"{_name(self._gpu)} was not tested: {why_not}.")]
        command = self._command()
        if command is None:
            return [LoadFinding(WARNING, f"{_name(self._gpu)} was not tested: no Python was found to run the load.")]
        seen = _UnderLoad(self._look() or self._gpu)
        with tempfile.TemporaryFile() as complaints:
            load = subprocess.Popen(
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
            )
            try:
                self._watch(load, seen)
            finally:
                load.kill()
                load.wait()
            complaints.seek(0)
            lines = complaints.read().decode(errors="replace").strip().splitlines()
        return self._judge(load, seen, lines[-1] if lines else "")

    def _command(self) -> list[str] | None:
        if self._simulated:
            load = ["--memory", f"{MEMORY_MIB}M", "--load", "90", "--time", f"{self._seconds}s"]
            return python_command("runner.gpu.sim.load", *load)
        python = self._python or shutil.which("python3") or shutil.which("python")
        return [python, "-c", _TORCH, str(MEMORY_MIB), str(self._seconds)] if python else None

    def _environment(self) -> dict[str, str]:
        ours = {"CUDA_VISIBLE_DEVICES": self._gpu.uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        return {**os.environ, **ours, "NIGHTSHIFT_HOME": self._home}

    def _watch(self, load: subprocess.Popen[bytes], seen: _UnderLoad) -> None:
        deadline = time.monotonic() + LOAD_STARTS_WITHIN_S + self._seconds
        while time.monotonic() < deadline:
            if (now := self._look()) is not None:
                seen.add(now)
            try:
                load.wait(LOOK_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                continue

    def _look(self) -> Gpu | None:
        return next((gpu for gpu in self._sampler.sample().gpus if gpu.uuid == self._gpu.uuid), None)

    def _judge(self, load: subprocess.Popen[bytes], seen: _UnderLoad, complaint: str) -> list[LoadFinding]:
        if load.returncode == NO_TORCH:
            who = self._python or "the Python found first"
            return [LoadFinding(WARNING, f"{_name(self._gpu)} was not tested: {who} has no PyTorch. Install it there.")]
        if load.returncode != 0:
            return [LoadFinding(ERROR, f"{_name(self._gpu)} could not be loaded: {complaint or load.returncode}")]
        return [
            self._memory(seen),
            self._utilization(seen),
            self._pids(load.pid, seen),
            self._memory_back(seen.before.memory_used_mib),
        ]

    def _memory(self, seen: _UnderLoad) -> LoadFinding:
        if seen.before.memory_used_mib is None:
            return LoadFinding(
                WARNING, f"{_name(self._gpu)}: the driver does not report memory in use, so it was not checked."
            )
        if seen.rise_mib >= MEMORY_MIB:
            return LoadFinding(OK, f"{_name(self._gpu)}: memory in use rose by {seen.rise_mib:.0f} MiB under load.")
        return LoadFinding(ERROR, f"{_name(self._gpu)}: memory in use did not rise under load.")

    def _utilization(self, seen: _UnderLoad) -> LoadFinding:
        if seen.utilization:
            return LoadFinding(OK, f"{_name(self._gpu)}: utilisation rose to {seen.utilization} % under load.")
        return LoadFinding(WARNING, f"{_name(self._gpu)}: load does not show as utilisation. Set NIGHTSHIFT_IDLE=off.")

    def _pids(self, pid: int, seen: _UnderLoad) -> LoadFinding:
        if pid in seen.new_pids:
            return LoadFinding(OK, f"{_name(self._gpu)}: the driver names our processes by their PIDs.")
        another_namespace = "names PIDs of another namespace, as in a container"
        elsewhere = another_namespace if seen.new_pids else "does not list our process"
        return LoadFinding(WARNING, f"{_name(self._gpu)}: the driver {elsewhere}: memory per job is unknown.")

    def _memory_back(self, before_mib: int | None) -> LoadFinding:
        """Wait until the GPU holds no more than before. Memory that is unknown does not count as free again."""
        if before_mib is None:
            return LoadFinding(WARNING, f"{_name(self._gpu)}: whether a job's memory is free after its end is unknown.")
        since = time.monotonic()
        while (waited_s := time.monotonic() - since) < MEMORY_BACK_WITHIN_S:
            now = self._look()
            if now and now.memory_used_mib is not None and now.memory_used_mib <= before_mib + BACK_AT_MIB:
                return LoadFinding(OK, f"{_name(self._gpu)}: memory was back {waited_s:.1f} s after the load ended.")
            time.sleep(LOOK_EVERY_S)
        return LoadFinding(ERROR, f"{_name(self._gpu)}: memory was still in use {waited_s:.0f} s after the load ended.")


def _about_all(snapshot: Snapshot) -> list[LoadFinding]:
    count = len(snapshot.gpus)
    sentence = f"{count} GPU{'' if count == 1 else 's'}, driver {snapshot.driver or 'of unknown version'}"
    if snapshot.simulated:
        sentence += "; simulated: this proves nothing about a real box"
    findings = [LoadFinding(OK, f"{sentence}.")]
    if snapshot.trouble:
        findings.append(LoadFinding(ERROR, snapshot.trouble))
    return findings


def _about_one(gpu: Gpu) -> list[LoadFinding]:
    """Warn about each value that the driver does not report. Nothing for a GPU whose health is not OK."""
    if gpu.health is not GpuHealth.OK:
        return []
    unseen = [what for name, what in _UNSEEN if getattr(gpu, name) is None]
    return [LoadFinding(WARNING, f"{_name(gpu)}: the driver does not report {what}.") for what in unseen]


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.name})" if gpu.name else f"GPU {gpu.index}"
