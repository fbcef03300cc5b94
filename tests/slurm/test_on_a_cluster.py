"""Runs the tests of `inside`, and the contract of engines over Slurm, in a real cluster that is made for them.

One test for all of them: then there is one cluster however many processes run the suite, and it ends with its test.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.slurm import cluster

TESTS = ("tests/slurm/inside", "tests/contract/test_engines.py")


@pytest.mark.timeout(280)
def test_everything_about_slurm() -> None:
    if why := cluster.missing():
        pytest.skip(f"no Slurm cluster can be made here: {why}")
    folder = Path(tempfile.mkdtemp(prefix="slurm"))  # not tmp_path: only root could enter that
    try:
        folder.chmod(0o755)
        place = ["-p", "no:cacheprovider", "--basetemp", str(folder / "c" / "tmp" / "t")]
        options = ["-n", "3", "--dist", "loadgroup", *place]
        done = cluster.run(folder / "c", sys.executable, "-m", "pytest", *options, *TESTS)
        logs = "".join(f"\n--- {path.name}\n{path.read_text()[-2000:]}" for path in folder.glob("c/log/slurm*.log"))
        assert done.returncode == 0, f"{done.stdout[-20_000:]}{logs if 'passed' not in done.stdout else ''}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
