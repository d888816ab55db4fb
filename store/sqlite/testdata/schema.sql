PRAGMA application_id = 1414744144;
PRAGMA user_version = 1;

CREATE TABLE artifacts (
    run      INTEGER NOT NULL REFERENCES runs (seq) ON DELETE CASCADE,
    resource TEXT NOT NULL,
    name     TEXT NOT NULL,
    body     BLOB NOT NULL,
    PRIMARY KEY (run, resource, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE cursors (
    route    INTEGER NOT NULL REFERENCES routes (id) ON DELETE CASCADE,
    resource TEXT NOT NULL,
    cursor   BLOB,
    -- The remembered window: row ids of 16 bytes, one after the other.
    seen     BLOB,
    -- Not 0: the resource was reset. Runs up to this ordinal began before that
    -- and store no cursor any more; a later run's publish ends the reset.
    reset_ordinal INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (route, resource)
) STRICT, WITHOUT ROWID;

CREATE TABLE facts (
    run     INTEGER NOT NULL REFERENCES runs (seq) ON DELETE CASCADE,
    number  INTEGER NOT NULL,
    id      TEXT NOT NULL UNIQUE,
    type    TEXT NOT NULL,
    version INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE resources (
    run        INTEGER NOT NULL REFERENCES runs (seq) ON DELETE CASCADE,
    seq        INTEGER NOT NULL,
    name       TEXT NOT NULL,
    generation INTEGER NOT NULL,
    plan       BLOB NOT NULL,
    PRIMARY KEY (run, seq),
    UNIQUE (run, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE routes (
    id           INTEGER PRIMARY KEY,
    installation TEXT NOT NULL,
    pipeline     TEXT NOT NULL,
    source       TEXT NOT NULL,
    sink         TEXT NOT NULL,
    -- The greatest ordinal that a run of the route ever had (P1).
    last_ordinal INTEGER NOT NULL DEFAULT 0,
    UNIQUE (pipeline, source, sink)
) STRICT;

CREATE TABLE runs (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    route      INTEGER NOT NULL REFERENCES routes (id) ON DELETE CASCADE,
    version    TEXT NOT NULL,
    ordinal    INTEGER NOT NULL,
    state      TEXT NOT NULL CHECK (state IN
        ('scheduled', 'requested', 'running', 'paused', 'completed', 'failed', 'canceled')),
    resumable  INTEGER NOT NULL DEFAULT 0,
    error      TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at   INTEGER,
    attempts   INTEGER NOT NULL DEFAULT 0,
    receipt    BLOB,
    desired    TEXT NOT NULL DEFAULT 'run' CHECK (desired IN ('run', 'pause', 'cancel')),
    planned    INTEGER NOT NULL DEFAULT 0,
    -- The number of the run's last fact.
    last_fact  INTEGER NOT NULL DEFAULT 0,
    UNIQUE (route, ordinal)
) STRICT;

CREATE UNIQUE INDEX runs_open ON runs (route)
    WHERE state IN ('scheduled', 'requested', 'running', 'paused');

CREATE TABLE seen (
    id       INTEGER PRIMARY KEY,
    run      INTEGER NOT NULL REFERENCES runs (seq) ON DELETE CASCADE,
    resource TEXT NOT NULL,
    ids      BLOB NOT NULL
) STRICT;

CREATE INDEX seen_by_resource ON seen (run, resource);

CREATE TABLE slots (
    run        INTEGER NOT NULL REFERENCES runs (seq) ON DELETE CASCADE,
    slot       INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    -- Empty: free.
    holder     TEXT NOT NULL,
    expires    INTEGER NOT NULL,
    PRIMARY KEY (run, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE splits (
    run          INTEGER NOT NULL REFERENCES runs (seq) ON DELETE CASCADE,
    id           TEXT NOT NULL,
    resource     TEXT NOT NULL,
    resource_seq INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN ('read', 'publish')),
    generation   INTEGER NOT NULL,
    claim        INTEGER NOT NULL DEFAULT 0,
    epoch        INTEGER NOT NULL DEFAULT 0,
    position     BLOB,
    done         INTEGER NOT NULL DEFAULT 0,
    totals       BLOB,
    -- The slot and lease generation that claimed it; NULL: nobody's.
    owner            INTEGER,
    owner_generation INTEGER,
    PRIMARY KEY (run, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX splits_open ON splits (run, kind, resource_seq, seq) WHERE done = 0;
