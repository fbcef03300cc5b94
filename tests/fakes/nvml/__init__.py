"""A fake NVIDIA driver for processes under test: a C library and the folder of text files it answers from.

    nvml = FakeNvml(tmp_path)
    nvml.add_gpu()
    subprocess.Popen(..., env={**os.environ, **nvml.env})
    nvml.fault(0, "lost")

The folder is laid out as `runner/gpu/sim/state.py` describes, faults as `tests/fakes/faulty_driver.py` does; on top of
those `fault("all", "driver", "535.54.03")` sets the version the driver tells. An upgrade is
`replace_library(build=2)`, which leaves the old driver loaded, and a reload of the driver `fault("all", "loaded", 2)`.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

import pytest

from runner.gpu.sim import state
from runner.gpu.sim.state import ELSEWHERE, Claim

SOURCES = [Path(__file__).parent / name for name in ("nvml.c", "folder.c")]
LIBRARY = "libnvidia-ml.so.1"
DRIVERS = {
    "current": (),
    "r470": ("NO_MEMORY_V2", "NO_PROCESSES_V3"),
    "old": ("NO_MEMORY_V2", "NO_PROCESSES_V3", "NO_PROCESSES_V2"),
}


class FakeNvml:
    """One fake driver with its GPUs, processes and faults."""

    def __init__(self, folder: Path, driver: str = "current") -> None:
        self.folder = folder / "nvml"
        self._libraries = folder / "nvml-lib"
        self._driver = driver
        self._gpus: list[str] = []
        self._faults: dict[tuple[str, str], str] = {}
        (self.folder / state.PROCS).mkdir(parents=True)
        self._libraries.mkdir()
        self.replace_library()

    @property
    def env(self) -> dict[str, str]:
        """What a process needs in its environment, from its start, to meet this driver."""
        return {"LD_LIBRARY_PATH": str(self._libraries), "FAKE_NVML_DIR": str(self.folder)}

    def add_gpu(
        self,
        total_mib: int = 24576,
        reserved_mib: int = 300,
        name: str = "Fake GPU",
        gpu_uuid: str | None = None,
    ) -> str:
        """One more GPU; returns its UUID."""
        gpu_uuid = gpu_uuid or f"GPU-{uuid.uuid4()}"
        self._gpus.append(f"{len(self._gpus)} {gpu_uuid} {total_mib} {reserved_mib} {name}\n")
        _replace(self.folder / state.GPUS, "".join(self._gpus))
        return gpu_uuid

    def hold(self, pid: int, gpu: int, mib: int, util: int = 0, *, elsewhere: bool = False) -> None:
        """A process holds memory and makes load until it dies or lets go; one from elsewhere never dies."""
        started = ELSEWHERE if elsewhere else state.start_time(pid)
        assert started is not None, f"process {pid} is dead"
        state.write_claim(str(self.folder), f"{gpu}.{pid}", Claim(pid, started, mib, util))

    def release(self, pid: int, gpu: int) -> None:
        """A process lets go of a GPU."""
        state.drop_claim(str(self.folder), f"{gpu}.{pid}")

    def fault(self, gpu: int | str, what: str, value: object = "") -> None:
        """Something goes wrong with a GPU, or with `all` of the driver."""
        self._faults[str(gpu), what] = str(value)
        self._write_faults()

    def block(self, gpu: int | str) -> None:
        """Calls about a GPU do not return any more."""
        self.fault(gpu, "block")

    def mend(self, gpu: int | str, what: str) -> None:
        """One thing is well again."""
        del self._faults[str(gpu), what]
        self._write_faults()

    def clear(self) -> None:
        """All is well again."""
        self._faults.clear()
        self._write_faults()

    def replace_library(self, build: int = 1) -> None:
        """Another file in the library's place, as a driver upgrade leaves it."""
        fresh = self._libraries / "new"
        shutil.copy(_built(self._driver, build), fresh)
        fresh.replace(self._libraries / LIBRARY)

    def _write_faults(self) -> None:
        lines = [f"{gpu} {what} {value}".strip() + "\n" for (gpu, what), value in self._faults.items()]
        _replace(self.folder / "faults.conf", "".join(lines))


@functools.cache
def _built(driver: str, build: int) -> Path:
    """The library, compiled once per test process. Skips the test where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("the fake NVML library needs a C compiler (gcc or cc)")
    folder = Path(tempfile.mkdtemp(prefix="fake-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / LIBRARY
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    flags += ["-Wl,-Bsymbolic", f"-Wl,-soname,{LIBRARY}", f"-DBUILD={build}"]
    flags += [f"-D{name}" for name in DRIVERS[driver]]
    subprocess.run([compiler, *flags, "-o", target, *SOURCES], check=True)
    return target


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(text)
    os.replace(draft, path)
