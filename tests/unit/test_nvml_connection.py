"""Opening NVML again and again: how often, and what the sampler may not load meanwhile."""

from __future__ import annotations

import subprocess
import sys

import pytest

from runner.gpu.nvml_connection import RETRY_MAX_S, Connection


def test_the_pauses_grow_to_a_limit_and_no_further() -> None:
    connection = Connection(None, lambda _: None, 1.0, lambda: 100.0)
    pauses = []
    for _ in range(2000):
        connection.lose("gone")
        assert connection.retry_at is not None
        pauses.append(connection.retry_at - 100.0)
    assert pauses[:6] == [1, 2, 4, 8, 16, RETRY_MAX_S]
    assert set(pauses[5:]) == {RETRY_MAX_S}
    assert connection.outage == "gone"


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("runner.gpu.sampler", ["pydantic", "sqlite3", "pysqlite3", "sqlite_utils"]),
        ("runner.gpu.published", ["pynvml", "ctypes", "pydantic", "sqlite3"]),
        ("runner.gpu.availability", ["pynvml", "pydantic", "sqlite3"]),
        ("runner.gpu.load_check", ["pynvml", "pydantic", "sqlite3"]),
        ("runner.gpu.sim.load", ["pynvml", "pydantic", "sqlite3"]),
    ],
)
def test_only_what_is_needed_is_loaded(module: str, unwanted: list[str]) -> None:
    look = f"import sys, {module}; print([name for name in {unwanted!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
