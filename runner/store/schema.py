"""The tables, as a list of migrations in SQL.

A new migration goes to the end. A released one is never changed, and needs no code of this program.
"""

from __future__ import annotations

# Jobs, attempts, leases, events, notices, inbox, audit, environments, workspaces, box.
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

# People, pairing, threads, buttons and messages; holding single jobs; GPU usage of attempts.
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

# The state of the watchdogs over live jobs.
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

# How the batch of an attempt was found, and the memory that each kind of job is known to need.
_PROBE = """
ALTER TABLE attempts ADD COLUMN probe TEXT;
CREATE TABLE known_batches (
    key TEXT PRIMARY KEY,
    gpu TEXT NOT NULL,
    body TEXT NOT NULL,
    used_at TEXT NOT NULL
) WITHOUT ROWID;
"""

# Dependencies and begin times, memory reserved by leases, groups, kinds of jobs, and fair shares.
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

# An index on the positions of unfinished jobs; all columns that a page of the queue needs are in an index.
_PLACES = """
CREATE INDEX jobs_in_order ON jobs (position) WHERE state IN ('QUEUED', 'STARTING', 'RUNNING');
DROP INDEX jobs_waiting;
CREATE INDEX jobs_waiting ON jobs (lane, rank, position, submitted_at, attempt) WHERE state = 'QUEUED' AND ready = 1;
"""

# What became of notices and messages, in the words of the program; messages are found by their job.
_DELIVERY = """
ALTER TABLE notices RENAME COLUMN told_at TO handled_at;
ALTER TABLE notices ADD COLUMN delivered_at TEXT;
DROP INDEX notices_open;
ALTER TABLE notices DROP COLUMN parked;
ALTER TABLE notices DROP COLUMN tries;
ALTER TABLE notices DROP COLUMN next_try_at;
CREATE INDEX notices_open ON notices (id) WHERE handled_at IS NULL;
ALTER TABLE messages RENAME COLUMN told_at TO done_at;
ALTER TABLE messages RENAME COLUMN parked TO undeliverable;
CREATE INDEX messages_of_job ON messages (job_id) WHERE job_id IS NOT NULL;
UPDATE notices SET delivered_at = handled_at WHERE handled_at IS NOT NULL
    AND (NOT EXISTS (SELECT 1 FROM messages WHERE notice_id = notices.id)
    OR EXISTS (SELECT 1 FROM messages WHERE notice_id = notices.id AND done_at IS NOT NULL AND message IS NOT NULL));
"""

# Which memory a job ran out of: gpu or host.
_MEMORY = """
ALTER TABLE jobs ADD COLUMN memory TEXT;
"""

# How far a job was when its output was last read, as a ProgressRecord.
_PROGRESS = """
ALTER TABLE jobs ADD COLUMN progress TEXT;
"""

# The time zone in which a person reads and types times; without one, the box's.
_ZONE = """
ALTER TABLE people ADD COLUMN zone TEXT;
"""

# Jobs are found by their name; presets; questions that people answer by typing.
_NAMES = """
ALTER TABLE jobs ADD COLUMN name TEXT GENERATED ALWAYS AS (json_extract(spec, '$.name')) VIRTUAL;
CREATE INDEX jobs_of_name ON jobs (name, id) WHERE name IS NOT NULL;
CREATE TABLE presets (
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    spec TEXT NOT NULL,
    saved_at TEXT NOT NULL,
    PRIMARY KEY (owner, name)
) WITHOUT ROWID;
CREATE INDEX buttons_typed ON buttons (person) WHERE action = 'typed';
"""

# Messages that are changed in place while their job or group is not over.
_CARDS = """
CREATE TABLE cards (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    chat INTEGER NOT NULL,
    person INTEGER NOT NULL,
    job_id INTEGER,
    group_name TEXT,
    message_id INTEGER,
    number INTEGER,
    text TEXT NOT NULL,
    keyboard TEXT NOT NULL,
    state TEXT NOT NULL
);
CREATE INDEX cards_by_message ON cards (message_id) WHERE message_id IS NOT NULL;
"""

# The host where the latest attempt runs, if that is not the runner's.
_NODE = """
ALTER TABLE jobs ADD COLUMN node TEXT;
"""

MIGRATIONS = {
    "m001_queue": _QUEUE,
    "m002_chat": _CHAT,
    "m003_watch": _WATCH,
    "m004_probe": _PROBE,
    "m005_scheduling": _SCHEDULING,
    "m006_places": _PLACES,
    "m007_delivery": _DELIVERY,
    "m008_memory": _MEMORY,
    "m009_progress": _PROGRESS,
    "m010_zone": _ZONE,
    "m011_names": _NAMES,
    "m012_cards": _CARDS,
    "m013_node": _NODE,
}
SCHEMA_VERSION = len(MIGRATIONS)
