"""Checks in a new process whether NVML can be opened. A session that is already open does not prove that."""

from __future__ import annotations

import json
import subprocess
import sys

from runner.gpu.nvml_errors import NvmlUnavailableError
from runner.processes.interpreter import python_command

_PATIENCE_S = 15.0


def check() -> NvmlUnavailableError | None:
    """Return why a new process cannot open NVML; None if it can. Wait at most 15 s for the driver."""
    try:
        done = subprocess.run(
            python_command(__name__),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return NvmlUnavailableError(f"A new process got no answer from NVML in {_PATIENCE_S:.0f} s: see `dmesg`.")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return NvmlUnavailableError("A new process could not load NVML: see `nvidia-smi` and `dmesg`.")
    return NvmlUnavailableError(answer["trouble"], answer["code"]) if answer["trouble"] else None


def main(_argv: list[str]) -> None:
    """Open NVML and print the result as one line of JSON."""
    from runner.gpu.nvml import open_session

    answer: dict[str, object] = {"trouble": None, "code": None}
    try:
        open_session().close()
    except NvmlUnavailableError as error:
        answer = {"trouble": str(error), "code": error.code}
    sys.stdout.write(json.dumps(answer) + "\n")
