"""Schema of a mailbox file: numbered migrations, each in one transaction with its number.

A migration that was released never changes; a change is a new one at the end. Times are milliseconds since 1970 by the
mailbox's clock.
"""

import sqlite3
from typing import Final

APPLICATION_ID: Final = 0x6E61_7468  # "nath": says that an SQLite file is a mailbox

_FIRST: Final = """
-- A turn: one piece of work, its place in the queue, and later its result. See states.py for `state`.
CREATE TABLE turn (
    seq              INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order of the queue; never used twice
    state            TEXT    NOT NULL,
    kind             TEXT    NOT NULL,
    sender           TEXT    NOT NULL,
    envelope_id      TEXT    NOT NULL,
    body             BLOB,                               -- the envelope; NULL once ended
    session          INTEGER REFERENCES session (seq),
    attempts         INTEGER NOT NULL DEFAULT 0,         -- starts, counted before each
    epoch            INTEGER NOT NULL DEFAULT 0,         -- claims; only ever grows
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    queued_at        INTEGER NOT NULL,
    claimed_at       INTEGER,
    due_at           INTEGER,                            -- delayed: when it may be claimed
    kept_from        INTEGER,                            -- ended: its record is kept this long from here
    status           TEXT,                               -- the outcome, from here on
    result           BLOB,
    error            TEXT,
    code             TEXT,
    verify           TEXT
);
CREATE INDEX turn_queue   ON turn (seq)          WHERE state = 'queued';
CREATE INDEX turn_delayed ON turn (due_at)       WHERE state = 'delayed';
CREATE INDEX turn_open    ON turn (state)        WHERE state <> 'ended';
CREATE INDEX turn_session ON turn (session, seq) WHERE session IS NOT NULL AND state <> 'ended';
CREATE INDEX turn_kept    ON turn (kept_from)    WHERE state = 'ended';

-- Every accepted envelope: the dedupe record, and the turn that it stands for (its own, or as an alias).
CREATE TABLE envelope (
    sender      TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    turn        INTEGER NOT NULL REFERENCES turn (seq),
    is_alias    INTEGER NOT NULL,
    received_at INTEGER NOT NULL,
    repeated_at INTEGER,                                 -- when a repeat of it was last answered with the result
    channel     TEXT    NOT NULL,                        -- where its result goes
    is_direct   INTEGER NOT NULL,
    PRIMARY KEY (sender, id)
) WITHOUT ROWID;
CREATE INDEX envelope_turn ON envelope (turn);

CREATE TABLE session (
    seq               INTEGER PRIMARY KEY AUTOINCREMENT,
    starter           TEXT    NOT NULL,
    wave_id           TEXT    NOT NULL,
    session_id        TEXT    NOT NULL,
    state             TEXT    NOT NULL,                  -- open, closing, closed
    start_turn        INTEGER,
    start_envelope_id TEXT    NOT NULL,
    start_payload     BLOB    NOT NULL,
    digest            BLOB    NOT NULL,
    context           BLOB,
    used_at           INTEGER NOT NULL,
    UNIQUE (starter, wave_id, session_id)
);
CREATE INDEX session_id    ON session (session_id);
CREATE INDEX session_used  ON session (used_at);
CREATE INDEX session_start ON session (start_turn);

-- Cancels that came before their task.
CREATE TABLE early_cancel (
    sender       TEXT    NOT NULL,                       -- the task's
    task_id      TEXT    NOT NULL,                       -- an envelope's id, in a wave also its task's
    wave_id      TEXT    NOT NULL,                       -- '' outside a wave
    requested_by TEXT    NOT NULL,
    recorded_at  INTEGER NOT NULL,
    PRIMARY KEY (sender, task_id, wave_id)
) WITHOUT ROWID;
CREATE INDEX early_cancel_age ON early_cancel (requested_by, recorded_at);

-- What must still be published. A row is deleted once it is acked.
CREATE TABLE outbox (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    lane       TEXT    NOT NULL,                         -- rows of a lane go out one after the other
    publish_id TEXT    NOT NULL,                         -- its Nats-Msg-Id, kept over retries
    channel    TEXT    NOT NULL,
    body       BLOB    NOT NULL,
    added_at   INTEGER NOT NULL
);
CREATE INDEX outbox_lane ON outbox (lane, seq);

-- Received messages, for readers that come back with the number of the last one that they saw.
CREATE TABLE received (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,       -- never used twice
    sender      TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    body        BLOB    NOT NULL,
    received_at INTEGER NOT NULL,
    UNIQUE (sender, id)
);
CREATE INDEX received_age ON received (received_at);

-- Tasks that this identity delegated to others.
CREATE TABLE tracked (
    task_id    TEXT    PRIMARY KEY,
    worker     TEXT    NOT NULL,
    channel    TEXT    NOT NULL,
    request    BLOB    NOT NULL,
    state      TEXT    NOT NULL,                         -- running, done, error, cancelled
    status     TEXT,                                     -- the last progress status
    position   INTEGER,                                  -- how far the stored channel was read
    result     BLOB,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX tracked_age ON tracked (state, changed_at);

CREATE TABLE tracked_event (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT    NOT NULL REFERENCES tracked (task_id),
    body    BLOB    NOT NULL
);
CREATE INDEX tracked_event_task ON tracked_event (task_id, seq);
"""

MIGRATIONS: Final[tuple[str, ...]] = (_FIRST,)
"""Migration n (from 1) leads from version n - 1 to n; the file's version is SQLite's `user_version`."""

VERSION: Final = len(MIGRATIONS)


def version_of(db: sqlite3.Connection) -> int:
    """The schema version of an open file; 0 for an empty one."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def migrate(db: sqlite3.Connection, migrations: tuple[str, ...] = MIGRATIONS) -> list[int]:
    """Bring a file to the newest version, one transaction a migration.

    Args:
        db: a connection in autocommit mode; its version is not newer than `migrations` know.

    Returns:
        The numbers of the migrations that were applied.
    """
    applied = []
    for number in range(version_of(db) + 1, len(migrations) + 1):
        statements = migrations[number - 1]
        # One script, so that the number is committed with what it stands for, or neither is.
        try:
            db.executescript(f"BEGIN IMMEDIATE;\n{statements}\nPRAGMA user_version = {number};\nCOMMIT;")
        except sqlite3.Error:
            if db.in_transaction:
                db.rollback()
            raise
        applied.append(number)
    return applied
