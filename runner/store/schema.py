"""The tables, as a list of migrations that only ever grows."""

from __future__ import annotations

import json
import secrets

import sqlite_utils
from sqlite_utils import Migrations

from runner.store.connection import SCHEMA_VERSION, connect

migrations = Migrations("nightshift")


@migrations()
def m001_queue(db: sqlite_utils.Database) -> None:
    """Jobs and what happened to them, who holds which GPU, who is to be told, who did what."""
    for statement in _QUEUE.split(";\n"):
        if statement.strip():
            db.execute(statement)


_QUEUE = """
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    spec TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    phase TEXT,
    exit_code INTEGER,
    signal INTEGER,
    attempt INTEGER NOT NULL DEFAULT 0,
    gpus TEXT NOT NULL DEFAULT '[]',
    batch_size INTEGER,
    run_id TEXT NOT NULL,
    lane TEXT NOT NULL,
    rank INTEGER NOT NULL,
    position INTEGER NOT NULL,
    ready INTEGER NOT NULL DEFAULT 1,
    retries_left INTEGER NOT NULL DEFAULT 0,
    submitted_at TEXT NOT NULL,
    started_at TEXT,
    finished_at TEXT,
    stop_reason TEXT,
    stop_by TEXT,
    stop_at TEXT,
    key TEXT UNIQUE
);
CREATE INDEX jobs_waiting ON jobs (lane, rank, position) WHERE state = 'QUEUED' AND ready = 1;
CREATE INDEX jobs_live ON jobs (id) WHERE state IN ('STARTING', 'RUNNING');
CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL;
CREATE TABLE attempts (
    job_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    gpus TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    claimed_at TEXT NOT NULL,
    started_at TEXT,
    finished_at TEXT,
    state TEXT,
    reason TEXT,
    exit TEXT,
    PRIMARY KEY (job_id, number)
) WITHOUT ROWID;
CREATE TABLE leases (
    resource TEXT NOT NULL,
    slot INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    PRIMARY KEY (resource, slot)
) WITHOUT ROWID;
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id INTEGER,
    attempt INTEGER,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL DEFAULT '{}'
);
CREATE INDEX events_of_job ON events (job_id);
CREATE TABLE notices (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id INTEGER,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    created_at TEXT NOT NULL,
    told_at TEXT,
    tries INTEGER NOT NULL DEFAULT 0,
    next_try_at TEXT,
    parked TEXT
);
CREATE INDEX notices_open ON notices (id) WHERE told_at IS NULL AND parked IS NULL;
CREATE INDEX notices_of_job ON notices (job_id);
CREATE TABLE inbox (
    update_id INTEGER PRIMARY KEY,
    body TEXT NOT NULL,
    received_at TEXT NOT NULL,
    handled_at TEXT
);
CREATE INDEX inbox_open ON inbox (update_id) WHERE handled_at IS NULL;
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    data TEXT NOT NULL,
    hash TEXT NOT NULL
);
CREATE TABLE environments (
    key TEXT PRIMARY KEY,
    variables TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE workspaces (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    stamp TEXT,
    environment TEXT
) WITHOUT ROWID;
CREATE TABLE box (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
"""


def migrate(path: str) -> None:
    """Bring a database, new or old, to this program's schema. The caller holds the opening lock."""
    connection = connect(path, timeout=15.0)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        db = sqlite_utils.Database(connection)
        migrations.apply(db)
        connection.commit()
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.commit()
    finally:
        connection.close()


def name(path: str, home: str) -> None:
    """Write down, once, which queue this is: a lineage of its own, and the folder it belongs to."""
    connection = connect(path, timeout=15.0)
    try:
        for key, value in (("lineage", secrets.token_hex(16)), ("home", home)):
            connection.execute("INSERT OR IGNORE INTO box VALUES (?, ?)", (key, json.dumps(value)))
        connection.commit()
    finally:
        connection.close()
