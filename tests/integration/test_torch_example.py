"""A real PyTorch training as the probed program: the memory is simulated, all else is not."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.box import Box

EXAMPLE = Path(__file__).parents[2] / "examples" / "torch_train.py"
PYTHON = os.environ.get("TORCH_PYTHON", sys.executable)
TIMES = "48"
WAIT_S = 300


@cache
def has_torch() -> bool:
    return subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0


@pytest.mark.evidence
@pytest.mark.timeout(2 * WAIT_S)
def test_an_unchanged_script_is_run_at_the_largest_batch_that_fits(box: Box):
    if not has_torch():
        pytest.skip("no PyTorch here: pip install '.[torch]', or name a Python that has it in TORCH_PYTHON")
    box.start_runner(gpus="sim:1x24GiB", probe_quiet="3s")
    words = [*box.command("sim-load", "--mirror", TIMES, "--"), PYTHON, str(EXAMPLE), "--max-seconds", "20"]
    job_id = box.submit("", "--probe", "--batch-arg", "--batch-size", argv=words)
    job = box.wait_state(job_id, "SUCCEEDED", timeout=WAIT_S)
    print(box.run("show", str(job_id), "--fit").stdout, box.log(job_id), sep="")

    assert job["batch_size"] > 2 * 8
    *_, last = box.log(job_id).splitlines()
    assert last.startswith(f"batch {job['batch_size']}: loss 2.")
    before, after = (float(words.split()[0]) for words in last.split("loss ")[1].split(" -> "))
    assert after < before
    with box.queue() as queue:
        found, used = queue.view.probe(job_id), queue.view.usage(job_id)
    assert found is not None
    assert used is not None
    assert 0.8 * found["budget_mib"] < used["peak_memory_mib"] <= found["budget_mib"]
