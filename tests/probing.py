"""Jobs whose batch is probed, on simulated GPUs: a trainer that does as it is told, and what it noted down."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from runner.store.connection import connect
from tests.box import Box
from tests.wait import eventually

TRAINER = Path(__file__).parent / "fakes" / "trainer.py"
# 24 GiB less 300 MiB reserved, of which 92 % may be used: 2000 + 800 × 25 is within, × 26 is not
BEST = 25
WAIT_S = 90


def trainer(box: Box, *words: str) -> list[str]:
    return [sys.executable, str(TRAINER), "--notes", str(box.folder / "notes"), *words]


def notes(box: Box) -> list[dict[str, Any]]:
    path = box.folder / "notes"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def probed(box: Box, *words: str, options: tuple[str, ...] = ()) -> int:
    return box.submit("", "--probe", "--batch-arg", "--batch_size", *options, argv=trainer(box, *words))


def batches(box: Box) -> list[int]:
    return [seen["batch"] for seen in notes(box)]


def run_folder(box: Box, job_id: int, attempt: int = 1) -> Path:
    return box.home / "runs" / str(job_id) / str(attempt)


def faults(box: Box, text: str) -> None:
    path = box.home / "sim" / "faults.conf"
    path.with_suffix(".new").write_text(f"{text}\n")
    path.with_suffix(".new").rename(path)


def nothing_is_left(box: Box, job_id: int) -> None:
    """Of a job that has ended: no process, no lease, no scratch folder."""
    pids = [seen["pid"] for seen in notes(box)]
    eventually(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()], what="its processes are gone")
    assert not list((box.home / "runs" / str(job_id)).glob("*/scratch"))
    assert rows(box, "SELECT * FROM leases") == []


def remembered(box: Box) -> list[Any]:
    return rows(box, "SELECT * FROM known_batches")


def rows(box: Box, query: str) -> list[Any]:
    connection = connect(str(box.home / "nightshift.db"))
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def signal_sampler(box: Box, number: int) -> None:
    pid = eventually(lambda: [pid for pid, name in box.processes().items() if name == "ns-sampler"], what="a sampler")
    os.kill(pid[0], number)
