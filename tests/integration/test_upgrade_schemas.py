"""Queues of every schema there ever was. tests/data/upgrade/schema/ has their tables as they were released."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from runner.api import Queue
from runner.model import State
from runner.store.connection import DATABASE
from tests.upgrade.state_folder import DATA

RELEASED = sorted((DATA / "schema").glob("*.sql"), key=lambda path: int(path.stem))
AT = "2026-01-01T00:00:00.000000+00:00"
JOBS = """INSERT INTO jobs (id, spec, state, reason, exit_code, attempt, run_id, lane, rank, position, submitted_at,
 started_at, finished_at, key) VALUES (?, ?, ?, ?, ?, ?, '0a', '1:', 0, ?, ?, ?, ?, ?)"""


def old_queue(tables: Path, home: Path) -> None:
    """Write a queue with these tables: one job that has ended, one that waits, one workspace, one notice."""
    home.mkdir(mode=0o700)
    spec = {"command": "one", "owner": "ada", "dir": "/", "environment": "e", "gpus": 1, "priority": "normal"}
    with contextlib.closing(sqlite3.connect(home / DATABASE)) as old:
        old.executescript(tables.read_text())
        old.execute(JOBS, (1, json.dumps(spec), "FAILED", "EXIT", 3, 1, 1, AT, AT, AT, "update 7"))
        old.execute(JOBS, (2, json.dumps(spec), "QUEUED", None, None, 0, 2, AT, None, None, None))
        old.execute(
            "INSERT INTO attempts (job_id, number, gpus, boot_id, claimed_at) VALUES (1, 1, '[]', 'b', ?)", (AT,)
        )
        old.execute("INSERT INTO notices (job_id, kind, data, created_at) VALUES (1, 'ended', '{}', ?)", (AT,))
        old.execute("INSERT INTO workspaces VALUES ('lab', ?, NULL, NULL)", (json.dumps({"name": "lab", "dir": "/"}),))
        old.commit()


def tables_of(home: Path) -> dict[str, str]:
    """Return every table and index, as SQL. White space does not count."""
    with contextlib.closing(sqlite3.connect(home / DATABASE)) as queue:
        rows = queue.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {name: " ".join(sql.split()) for name, sql in rows}


@pytest.mark.parametrize("tables", RELEASED, ids=lambda path: f"schema {path.stem}")
def test_a_queue_of_every_released_schema_is_upgraded_with_all_it_has(tables: Path, tmp_path: Path):
    old_queue(tables, tmp_path / "old")
    with Queue(str(tmp_path / "old"), actor="somebody") as queue:
        assert [(queue.job(job_id).state, queue.job(job_id).exit_code) for job_id in (1, 2)] == [
            (State.FAILED, 3),
            (State.QUEUED, None),
        ]
        assert queue.job(2).spec.command == "one"
        assert [notice.kind for notice in queue.notices.about(1)] == ["ended"]
        assert queue.workspaces.get("lab").dir == "/"
    with Queue(str(tmp_path / "new"), actor="somebody", begin=True):
        pass
    assert tables_of(tmp_path / "old") == tables_of(tmp_path / "new")
