-- What a berth of any later version may rely on: `meta` with the row 'berth', the version that last changed the schema.
CREATE TABLE meta (
    key   TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The log. Sequences have no gaps; what lies before the oldest snapshot is history and goes oldest first. `bytes` is what
-- an event takes in the file, pages and all.
CREATE TABLE event (
    seq     INTEGER NOT NULL PRIMARY KEY,
    at      INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    version INTEGER NOT NULL,
    inputs  INTEGER,
    bytes   INTEGER NOT NULL,
    body    TEXT NOT NULL
) STRICT;

-- Answers already given, by idempotency key.
CREATE TABLE answer (
    key     TEXT NOT NULL PRIMARY KEY,
    request BLOB NOT NULL,
    seq     INTEGER NOT NULL,
    body    TEXT NOT NULL,
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX answer_by_expiry ON answer (expires);

-- Workloads that are over.
CREATE TABLE finished (
    id        INTEGER NOT NULL PRIMARY KEY,
    name      TEXT NOT NULL,
    project   INTEGER NOT NULL,
    user      TEXT NOT NULL,
    kind      TEXT NOT NULL,
    phase     TEXT NOT NULL,
    -- Whether it is left out of lists: whoever deleted it wants to see it no more.
    hidden    INTEGER NOT NULL,
    submitted INTEGER NOT NULL,
    started   INTEGER,
    ended     INTEGER NOT NULL,
    document  TEXT NOT NULL
) STRICT;
CREATE INDEX finished_by_end ON finished (hidden, ended, id);
CREATE INDEX finished_by_project ON finished (project, hidden, ended, id);
CREATE INDEX finished_by_user ON finished (user, hidden, ended, id);
CREATE INDEX finished_by_name ON finished (name, ended, id);

-- States of the log's reader. The parts are written one by one; the row of `snapshot` comes with the last.
CREATE TABLE snapshot (
    seq            INTEGER NOT NULL PRIMARY KEY,
    at             INTEGER NOT NULL,
    bytes          INTEGER NOT NULL,
    sha256         BLOB NOT NULL,
    appended_bytes INTEGER NOT NULL
) STRICT;
CREATE TABLE snapshot_part (
    seq  INTEGER NOT NULL,
    part INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (seq, part)
) STRICT;

-- Samples for charts. Time comes first in the keys: what arrives together lies together, and so does what goes together.
CREATE TABLE series (
    id   INTEGER NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE sample (
    at     INTEGER NOT NULL,
    series INTEGER NOT NULL,
    value  INTEGER NOT NULL,
    PRIMARY KEY (at, series)
) STRICT, WITHOUT ROWID;
CREATE TABLE rollup (
    width  INTEGER NOT NULL,
    start  INTEGER NOT NULL,
    series INTEGER NOT NULL,
    count  INTEGER NOT NULL,
    sum    INTEGER NOT NULL,
    min    INTEGER NOT NULL,
    max    INTEGER NOT NULL,
    PRIMARY KEY (width, start, series)
) STRICT, WITHOUT ROWID;

-- One row: what the size limits are measured by, kept in the transactions that change it.
CREATE TABLE tally (
    id                INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    last_seq          INTEGER NOT NULL,
    appended_bytes    INTEGER NOT NULL,
    dropped_bytes     INTEGER NOT NULL,
    raw_rows          INTEGER NOT NULL,
    five_minutes_rows INTEGER NOT NULL,
    hours_rows        INTEGER NOT NULL
) STRICT;
INSERT INTO tally VALUES (1, 0, 0, 0, 0, 0, 0);
INSERT INTO meta VALUES ('failed_writes', '0');
