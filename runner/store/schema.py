"""The tables, as a list of migrations. New ones are only added at the end."""

from __future__ import annotations

import json
import secrets
from contextlib import closing
from typing import Any

import sqlite_utils
from sqlite_utils import Migrations

from runner import clock
from runner.commands.duration_kind import kinds_of
from runner.model import JobSpec
from runner.schedule.request import lane_of, request_of
from runner.store.connection import SCHEMA_VERSION, connect

KINDS_OF_LATEST = 5_000

migrations = Migrations("nightshift")


@migrations()
def m001_queue(db: sqlite_utils.Database) -> None:
    """Jobs, attempts, leases, events, notices, inbox, audit, environments, workspaces, box."""
    _run(db, _QUEUE)


@migrations()
def m002_chat(db: sqlite_utils.Database) -> None:
    """People, pairing, threads, buttons and messages; holding single jobs; GPU usage of attempts."""
    _run(db, _CHAT)


@migrations()
def m003_watch(db: sqlite_utils.Database) -> None:
    """The state of the watchdogs over live jobs."""
    _run(db, _WATCH)


@migrations()
def m004_probe(db: sqlite_utils.Database) -> None:
    """How the batch of an attempt was found, and the memory that each kind of job is known to need."""
    _run(db, _PROBE)


@migrations()
def m005_scheduling(db: sqlite_utils.Database) -> None:
    """Dependencies and begin times, memory reserved by leases, groups, kinds of jobs, and fair shares."""
    _run(db, _SCHEDULING)
    _name_kinds(db)


@migrations()
def m006_places(db: sqlite_utils.Database) -> None:
    """An index on the positions of unfinished jobs; all columns that a page of the queue needs are in an index."""
    _run(db, _PLACES)


def _run(db: sqlite_utils.Database, statements: str) -> None:
    for statement in statements.split(";\n"):
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

_CHAT = """
ALTER TABLE jobs ADD COLUMN owner TEXT GENERATED ALWAYS AS (json_extract(spec, '$.owner')) VIRTUAL;
ALTER TABLE jobs ADD COLUMN held_by TEXT;
CREATE INDEX jobs_ended ON jobs (state, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_of_owner ON jobs (owner, state) WHERE state IN ('QUEUED', 'STARTING', 'RUNNING');
ALTER TABLE attempts ADD COLUMN usage TEXT;
CREATE TABLE people (
    id INTEGER PRIMARY KEY,
    role TEXT,
    name TEXT NOT NULL DEFAULT '',
    paired_by TEXT,
    paired_at TEXT,
    noise TEXT NOT NULL DEFAULT 'all',
    quiet TEXT
);
CREATE TABLE pairings (
    digest TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    made_by TEXT NOT NULL,
    expires_at TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE successors (
    chat INTEGER PRIMARY KEY,
    became INTEGER NOT NULL
);
CREATE TABLE threads (
    job_id INTEGER PRIMARY KEY,
    person INTEGER NOT NULL,
    chat INTEGER NOT NULL,
    message INTEGER,
    topic INTEGER
);
CREATE INDEX threads_by_message ON threads (chat, message);
CREATE TABLE buttons (
    nonce TEXT PRIMARY KEY,
    person INTEGER NOT NULL,
    action TEXT NOT NULL,
    job_id INTEGER,
    data TEXT NOT NULL DEFAULT '{}',
    created_at TEXT NOT NULL,
    expires_at TEXT,
    once INTEGER NOT NULL DEFAULT 0,
    used_at TEXT
) WITHOUT ROWID;
CREATE INDEX buttons_by_age ON buttons (created_at);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    chat INTEGER NOT NULL,
    person INTEGER,
    job_id INTEGER,
    notice_id INTEGER,
    method TEXT NOT NULL,
    body TEXT NOT NULL,
    lane TEXT NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT,
    tries INTEGER NOT NULL DEFAULT 0,
    begun INTEGER NOT NULL DEFAULT 0,
    next_try_at TEXT,
    told_at TEXT,
    message INTEGER,
    parked TEXT
);
CREATE INDEX messages_open ON messages (chat, lane, id) WHERE told_at IS NULL AND parked IS NULL;
CREATE INDEX messages_parked ON messages (person) WHERE parked IS NOT NULL;
CREATE INDEX messages_by_number ON messages (chat, message);
CREATE INDEX messages_by_age ON messages (created_at);
"""

_WATCH = """
CREATE TABLE watches (
    job_id INTEGER PRIMARY KEY,
    attempt INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT '{}',
    keep TEXT,
    warning INTEGER,
    put_off_until REAL,
    evidence TEXT
);
CREATE INDEX messages_of_notice ON messages (notice_id) WHERE notice_id IS NOT NULL;
"""


_PROBE = """
ALTER TABLE attempts ADD COLUMN probe TEXT;
CREATE TABLE known_batches (
    key TEXT PRIMARY KEY,
    gpu TEXT NOT NULL,
    body TEXT NOT NULL,
    used_at TEXT NOT NULL
) WITHOUT ROWID;
"""


_SCHEDULING = """
ALTER TABLE jobs ADD COLUMN blockers INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN begin_at TEXT;
ALTER TABLE jobs ADD COLUMN group_name TEXT GENERATED ALWAYS AS (json_extract(spec, '$.group')) VIRTUAL;
CREATE INDEX jobs_to_begin ON jobs (begin_at) WHERE begin_at IS NOT NULL;
CREATE INDEX jobs_of_group ON jobs (group_name, state) WHERE group_name IS NOT NULL;
ALTER TABLE jobs ADD COLUMN kind TEXT;
ALTER TABLE jobs ADD COLUMN shape TEXT;
ALTER TABLE jobs ADD COLUMN time_warning TEXT;
CREATE INDEX jobs_of_kind ON jobs (kind, finished_at) WHERE state = 'SUCCEEDED';
CREATE INDEX jobs_of_shape ON jobs (shape, finished_at) WHERE state = 'SUCCEEDED';
CREATE INDEX jobs_of_group_done ON jobs (group_name, finished_at) WHERE state = 'SUCCEEDED' AND group_name IS NOT NULL;
CREATE INDEX jobs_not_ready ON jobs (rank, position) WHERE state = 'QUEUED' AND ready = 0;
CREATE TABLE dependencies (
    on_job INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    PRIMARY KEY (on_job, job_id, kind)
) WITHOUT ROWID;
CREATE INDEX dependencies_of_job ON dependencies (job_id);
ALTER TABLE leases ADD COLUMN memory_mib INTEGER;
CREATE TABLE groups (
    name TEXT PRIMARY KEY,
    at_most INTEGER,
    body TEXT NOT NULL DEFAULT '{}',
    created_at TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE shares (
    owner TEXT PRIMARY KEY,
    gpu_s REAL NOT NULL,
    at TEXT NOT NULL
) WITHOUT ROWID;
"""


_PLACES = """
CREATE INDEX jobs_in_order ON jobs (position) WHERE state IN ('QUEUED', 'STARTING', 'RUNNING');
DROP INDEX jobs_waiting;
CREATE INDEX jobs_waiting ON jobs (lane, rank, position, submitted_at, attempt) WHERE state = 'QUEUED' AND ready = 1;
"""


def _name_lanes(db: sqlite_utils.Database) -> None:
    """Write the lanes of unfinished jobs again: an older version may have named them differently."""
    unfinished = db.execute("SELECT id, spec FROM jobs WHERE state IN ('QUEUED', 'STARTING', 'RUNNING')").fetchall()
    lanes = [(lane_of(request_of(JobSpec.from_json(json.loads(spec)))), job_id) for job_id, spec in unfinished]
    db.conn.executemany("UPDATE jobs SET lane = ? WHERE id = ?", lanes)


def _name_kinds(db: sqlite_utils.Database) -> None:
    """Set the kinds of jobs from before kinds were stored: all unfinished ones and the latest successful ones."""
    found = db.execute(
        "SELECT id, spec FROM jobs WHERE state IN ('QUEUED', 'STARTING', 'RUNNING')"
        " UNION ALL SELECT * FROM (SELECT id, spec FROM jobs WHERE state = 'SUCCEEDED' ORDER BY id DESC LIMIT ?)",
        (KINDS_OF_LATEST,),
    ).fetchall()
    kinds = [(*kinds_of(JobSpec.from_json(json.loads(spec))), job_id) for job_id, spec in found]
    db.conn.executemany("UPDATE jobs SET kind = ?, shape = ? WHERE id = ?", kinds)


def migrate(path: str) -> None:
    """Bring a database, new or old, to this program's schema. The caller holds the opening lock."""
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        apply(connection)


def apply(connection: Any) -> None:
    """Apply the migrations over an open connection."""
    db = sqlite_utils.Database(connection)
    migrations.apply(db)
    _name_lanes(db)
    connection.commit()
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.commit()


def name(path: str, home: str) -> None:
    """Store, once, which queue this is: a random lineage, and the folder it belongs to."""
    with closing(connect(path)) as connection:
        for key, value in (("lineage", secrets.token_hex(16)), ("home", home)):
            connection.execute("INSERT OR IGNORE INTO box VALUES (?, ?)", (key, json.dumps(value)))
        connection.commit()


def note(path: str, kind: str, data: dict[str, Any]) -> None:
    """Add a notice to a database that is not in use yet."""
    with closing(connect(path)) as connection:
        connection.execute(
            "INSERT INTO notices (kind, data, created_at) VALUES (?, ?, ?)",
            (kind, json.dumps(data), clock.text(clock.now())),
        )
        connection.commit()
