"""Bring a database to this program's schema: new, from an older version, or restored from a copy."""

from __future__ import annotations

import json
import secrets
from contextlib import closing
from typing import TYPE_CHECKING, Any

import sqlite_utils
from sqlite_utils import Migrations

from runner import clock
from runner.model import JobSpec
from runner.store.box import BoxKey
from runner.store.connection import connect
from runner.store.schema import MIGRATIONS, SCHEMA_VERSION
from runner.store.spec_changes import computed_columns

if TYPE_CHECKING:
    from runner.notices import Payload

LATEST_SUCCESSES = 5_000  # the duration of later jobs is estimated from these


migrations = Migrations("nightshift")


def _register(name: str, statements: str) -> None:
    @migrations(name=name)
    def run(db: sqlite_utils.Database) -> None:
        for statement in statements.split(";\n"):
            if statement.strip():
                db.execute(statement)


for _name, _statements in MIGRATIONS.items():
    _register(_name, _statements)


def migrate(path: str) -> None:
    """Bring a database, new or old, to this program's schema. The caller holds the opening lock."""
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        apply(connection)


def apply(connection: Any) -> None:
    """Apply the migrations over an open connection."""
    db = sqlite_utils.Database(connection)
    migrations.apply(db)
    _refresh_derived_columns(db)
    connection.commit()
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.commit()


def _refresh_derived_columns(db: sqlite_utils.Database) -> None:
    """Compute lane, kind and shape from the specs of unfinished jobs and of the latest successful ones.

    An older version may have computed them differently, or not at all.
    """
    jobs = db.execute(
        "SELECT id, spec FROM jobs WHERE state IN ('QUEUED', 'STARTING', 'RUNNING')"
        " UNION ALL SELECT * FROM (SELECT id, spec FROM jobs WHERE state = 'SUCCEEDED' ORDER BY id DESC LIMIT ?)",
        (LATEST_SUCCESSES,),
    ).fetchall()
    rows = [(*computed_columns(JobSpec.from_json(json.loads(spec))), job_id) for job_id, spec in jobs]
    db.conn.executemany("UPDATE jobs SET lane = ?, kind = ?, shape = ? WHERE id = ?", rows)


def name(path: str, home: str) -> None:
    """Store, once, which queue this is: a random lineage, and the folder it belongs to."""
    with closing(connect(path)) as connection:
        for key, value in ((BoxKey.LINEAGE, secrets.token_hex(16)), (BoxKey.HOME, home)):
            connection.execute("INSERT OR IGNORE INTO box VALUES (?, ?)", (key.value, json.dumps(value)))
        connection.commit()


def note(path: str, payload: Payload) -> None:
    """Add a notice to a database that is not in use yet."""
    with closing(connect(path)) as connection:
        connection.execute(
            "INSERT INTO notices (kind, data, created_at) VALUES (?, ?, ?)",
            (payload.kind, json.dumps(payload.to_json()), clock.text(clock.now())),
        )
        connection.commit()
