BEGIN TRANSACTION;
CREATE TABLE "_sqlite_migrations" (
   "id" INTEGER PRIMARY KEY,
   "migration_set" TEXT,
   "name" TEXT,
   "applied_at" TEXT
);
INSERT INTO "_sqlite_migrations" VALUES(1,'nightshift','m001_queue','2026-01-01 00:00:00.000000+00:00');
INSERT INTO "_sqlite_migrations" VALUES(2,'nightshift','m002_chat','2026-01-01 00:00:00.000000+00:00');
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
    exit TEXT, usage TEXT,
    PRIMARY KEY (job_id, number)
) WITHOUT ROWID;
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    data TEXT NOT NULL,
    hash TEXT NOT NULL
);
CREATE TABLE box (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
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
CREATE TABLE environments (
    key TEXT PRIMARY KEY,
    variables TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id INTEGER,
    attempt INTEGER,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL DEFAULT '{}'
);
CREATE TABLE inbox (
    update_id INTEGER PRIMARY KEY,
    body TEXT NOT NULL,
    received_at TEXT NOT NULL,
    handled_at TEXT
);
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
, owner TEXT GENERATED ALWAYS AS (json_extract(spec, '$.owner')) VIRTUAL, held_by TEXT);
CREATE TABLE leases (
    resource TEXT NOT NULL,
    slot INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    PRIMARY KEY (resource, slot)
) WITHOUT ROWID;
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
CREATE TABLE pairings (
    digest TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    made_by TEXT NOT NULL,
    expires_at TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE people (
    id INTEGER PRIMARY KEY,
    role TEXT,
    name TEXT NOT NULL DEFAULT '',
    paired_by TEXT,
    paired_at TEXT,
    noise TEXT NOT NULL DEFAULT 'all',
    quiet TEXT
);
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
CREATE TABLE workspaces (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    stamp TEXT,
    environment TEXT
) WITHOUT ROWID;
CREATE UNIQUE INDEX "idx__sqlite_migrations_migration_set_name"
    ON "_sqlite_migrations" ("migration_set", "name");
CREATE INDEX jobs_waiting ON jobs (lane, rank, position) WHERE state = 'QUEUED' AND ready = 1;
CREATE INDEX jobs_live ON jobs (id) WHERE state IN ('STARTING', 'RUNNING');
CREATE INDEX jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX events_of_job ON events (job_id);
CREATE INDEX notices_open ON notices (id) WHERE told_at IS NULL AND parked IS NULL;
CREATE INDEX notices_of_job ON notices (job_id);
CREATE INDEX inbox_open ON inbox (update_id) WHERE handled_at IS NULL;
CREATE INDEX jobs_ended ON jobs (state, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_of_owner ON jobs (owner, state) WHERE state IN ('QUEUED', 'STARTING', 'RUNNING');
CREATE INDEX threads_by_message ON threads (chat, message);
CREATE INDEX buttons_by_age ON buttons (created_at);
CREATE INDEX messages_open ON messages (chat, lane, id) WHERE told_at IS NULL AND parked IS NULL;
CREATE INDEX messages_parked ON messages (person) WHERE parked IS NOT NULL;
CREATE INDEX messages_by_number ON messages (chat, message);
CREATE INDEX messages_by_age ON messages (created_at);
DELETE FROM "sqlite_sequence";
COMMIT;
PRAGMA user_version = 2;
